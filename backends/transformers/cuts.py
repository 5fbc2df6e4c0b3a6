"""Where a text may be cut so that its two parts have the tokens of the whole, whatever is appended to it.

A text is cut before a single space between two ASCII letters: "… the nurse| said" has the tokens of "… the nurse", and
then those that " said" has behind any text that ends in such a letter. So prompts that end alike share the tokens of
their ends and continuations. That holds only for tokenizers of which it follows from their own file, `cuts_at_words`:

- No added token holds a letter and then a space, or ends in a letter: none lies across the cut, or strips its space.
- The normalizer leaves the letter and the space as they are, or writes the space as ▁: NFC, a replaced space, a prefix
  in front of the text. None of these joins a space with what is before it.
- Each step that splits the text into words does so by classes of characters, or by a regular expression that never
  reads across a letter and a space, looks back at nothing, and ahead by ``(?!\\S)`` alone: what is before the cut does
  not depend on what is after it, and the other way round.
- At the cut one word ends and another begins: a step takes every letter into some word. Or else no token of the
  vocabulary holds a letter and then a space, so that BPE, whose merges make nothing but tokens, merges nothing there.

Everything else (Unigram, WordPiece, dropout, lower case, other steps, expressions that are not understood here) is not
proved, and its texts are encoded whole.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: The end of the longest match is where a text is cut: the last place of this kind.
CUT = re.compile(r".*[A-Za-z](?= [A-Za-z])", re.DOTALL)
#: What ends of texts are encoded behind: the shortest text that may stand before a cut.
ANCHOR = "a"

#: The expression of ``ByteLevel``, which its file does not hold.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


# Texts that are tried on each tokenizer on loading, in all combinations: each prompt has a cut.
TRIED_STARTS = (
    "The nurse",
    "",
    "  \n\tSaid 12345 ",
    "\u00e9a\u0301 \u5979, don't 3.14\r\n\r\n",
    "<s>[INST] <|im_start|>user\n",
)
TRIED_ENDS = (
    " a b",
    "X y ",
    "Is she it's",
    "the 99 of no\n\n",
    "who Said\u00e9",
    "a b?</s><|im_end|>\n  ",
    "q w  \u5979 12",
)
TRIED_CONTINUATIONS = (
    "",
    " ",
    "  x",
    "she",
    " she",
    "'s",
    "'",
    "\u0301",
    "45",
    "678 ",
    "\n",
    "\n\n y",
    ".",
    "\u5979",
    " \u00e9",
    "</s>",
    "\U0001f469\u200d",
    "\u2581",
)


def cuts_at_words(state: Mapping[str, Any]) -> bool:
    """Whether it follows from a tokenizer's own file that texts may be cut at `CUT`."""
    try:
        space = _space_of(_steps(state.get("normalizer"), "normalizers"))
        model = state["model"]
        if model["type"] != "BPE" or model.get("dropout"):
            return False
        if any(_may_cross(token, space) for token in state.get("added_tokens") or ()):
            return False
        is_split = False
        for step in _steps(state.get("pre_tokenizer"), "pretokenizers"):
            space, splits = _after_step(step, space)
            is_split = is_split or splits
        return is_split or _merges_nothing(model, space)
    except (_NotProvedError, KeyError, TypeError):
        return False


class _NotProvedError(Exception):
    """A part of the tokenizer of which nothing is proved here."""


def _steps(part: Mapping[str, Any] | None, parts: str) -> list[Mapping[str, Any]]:
    """The steps of a part of the file, which may be none, one, or a sequence."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for one in part[parts] for step in _steps(one, parts)]
    return [part]


def _space_of(steps: list[Mapping[str, Any]]) -> str:
    """How the normalizer writes a space."""
    space = " "
    for step in steps:
        if step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"] == "▁":
            space = "▁"
        elif step["type"] not in ("NFC", "Prepend"):
            raise _NotProvedError
    return space


def _may_cross(token: Mapping[str, Any], space: str) -> bool:
    """Whether an added token may lie across a cut, or treat the letter and the space of one as its own edge."""
    content = token["content"]
    inside = " " if not token["normalized"] else f" {space}"
    return bool(token["single_word"] or re.search(f"[A-Za-z](?:[{inside}]|$)", content))


def _after_step(step: Mapping[str, Any], space: str) -> tuple[str, bool]:
    """How a space is written after a step that splits texts, and whether it ends a word at every cut."""
    kind = step["type"]
    if kind == "Digits":  # by classes of characters: digits, and all else
        return space, False
    if kind == "ByteLevel":
        splits = step["use_regex"] and _splits(GPT2, space)
        return {" ": "Ġ"}.get(space, space), splits
    if kind == "Metaspace" and not step.get("split", True) and step["replacement"] == "▁" and space in " ▁":
        return "▁", False
    if kind == "Split" and not step["invert"]:
        if "String" in step["pattern"] and step["pattern"]["String"] == " " and space == "▁":
            return space, False  # there is none left to split at
        if step["behavior"] == "Isolated" and "Regex" in step["pattern"]:
            return space, _splits(step["pattern"]["Regex"], space)
    raise _NotProvedError


def _merges_nothing(model: Mapping[str, Any], space: str) -> bool:
    """Whether no merge of BPE joins a letter with a space after it, and all such spaces are known to the model."""
    vocabulary = model["vocab"]
    if space not in vocabulary or model.get("ignore_merges"):
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    across = re.compile(f"[A-Za-z]{space}")
    return not any(across.search(name) for name in vocabulary if len(name) > 1 and space in name)


# -- regular expressions --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Atom:
    """A part of an expression: a class of characters, or a group of words.

    ``letters``: the ASCII letters that it may hold; ``space``: whether it may hold a space.
    """

    letters: frozenset[str]
    space: bool
    optional: bool
    repeats: bool
    is_group: bool


_LETTERS = frozenset(string.ascii_letters)
_NO_LETTERS: frozenset[str] = frozenset()
#: The ASCII letters of a property, and whether a space has it.
_PROPERTIES: dict[str, tuple[frozenset[str], bool]] = {
    **dict.fromkeys(("L", "Letter"), (_LETTERS, False)),
    "Lu": (frozenset(string.ascii_uppercase), False),
    "Ll": (frozenset(string.ascii_lowercase), False),
    **dict.fromkeys(("Lt", "Lm", "Lo", "M", "Mn", "Mc", "N", "Nd", "Nl", "No", "P", "S", "Han"), (_NO_LETTERS, False)),
    **dict.fromkeys(("Z", "Zs"), (_NO_LETTERS, True)),
}
_CLASSES = {"s": (_NO_LETTERS, True), "S": (_LETTERS, False), "d": (_NO_LETTERS, False)}
_CONTROL = {"r", "n", "t"}
_TOKEN = re.compile(
    r"(?P<ahead>\(\?!\\S\)\Z)"
    r"|(?P<group>\((?:\?i:|\?:)[^()\[\]\\?*+{}.^$]*\))"
    r"|\[(?P<class>\^?(?:\\p\{\w+\}|\\P\{\w+\}|\\.|[^\\\[\]])+)\]"
    r"|(?P<one>\\p\{\w+\}|\\P\{\w+\}|\\.|[^\\\[\](){}?*+.^$|])"
)
_QUANTIFIER = re.compile(r"(?:(?P<sign>[?*+])|\{(?P<least>\d+)(?P<more>,\d*)?\})(?P<kind>[?+]?)")


def _splits(pattern: str, space: str) -> bool:
    """Whether an expression ends a match at every cut. Raises `_NotProvedError` where one may lie across a cut."""
    if space != " ":
        raise _NotProvedError
    alternatives = [list(_atoms(part)) for part in _alternatives(pattern)]
    for atoms, _ in (_parts(one) for one in alternatives):
        if not atoms or all(atom.optional for atom in atoms) or _crosses(atoms):
            raise _NotProvedError
    return all(any(_takes(letter, *_parts(one)) for one in alternatives) for letter in _LETTERS)


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of an expression, split outside of its classes and groups."""
    parts, depth, start, at = [], 0, 0, 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 1
        elif character in "[(":
            depth += 1
        elif character in "])":
            depth -= 1
        elif character == "|" and depth == 0:
            parts.append(pattern[start:at])
            start = at + 1
        at += 1
    return [*parts, pattern[start:]]


def _atoms(alternative: str) -> Iterator[_Atom | None]:
    """The parts of one alternative in order; None for ``(?!\\S)``, which ends one."""
    at = 0
    while at < len(alternative):
        found = _TOKEN.match(alternative, at)
        if found is None:
            raise _NotProvedError
        at = found.end()
        if found["ahead"]:
            yield None
            continue
        letters, space = _matched(found)
        optional = repeats = False
        if (quantifier := _QUANTIFIER.match(alternative, at)) is not None:
            at = quantifier.end()
            sign, least = quantifier["sign"], quantifier["least"]
            optional = sign in ("?", "*") or least == "0"
            if least is not None and int(least) > 1:
                raise _NotProvedError  # a match of one letter alone would not follow
            if least is not None and quantifier["more"] is None and quantifier["kind"]:
                raise _NotProvedError  # Oniguruma reads ``{1}+`` as one or more, and ``{1}?`` as one or none
            repeats = sign in ("*", "+") or quantifier["more"] is not None
        yield _Atom(letters, space, optional, repeats, is_group=found["group"] is not None)


def _matched(found: re.Match[str]) -> tuple[frozenset[str], bool]:
    """The letters that a part of an expression may hold, and whether it may hold a space."""
    if (group := found["group"]) is not None:
        text = group[group.index(":") + 1 : -1]
        if " " in text or "" in text.split("|"):
            raise _NotProvedError
        return frozenset(text.lower() + text.upper()) & _LETTERS, False
    if (members := found["class"]) is not None:
        return _class_of(members)
    return _one_of(found["one"])


def _class_of(members: str) -> tuple[frozenset[str], bool]:
    if "&&" in members:
        raise _NotProvedError
    negated = members.startswith("^")
    letters: set[str] = set()
    space = False
    parts = re.findall(r"\\[pP]\{\w+\}|\\.|.", members[negated:], re.DOTALL)
    at = 0
    while at < len(parts):
        if at + 2 < len(parts) and parts[at + 1] == "-" and len(parts[at]) == len(parts[at + 2]) == 1:
            low, high = parts[at], parts[at + 2]
            found, has_space = frozenset(c for c in _LETTERS if low <= c <= high), low <= " " <= high
            at += 3
        else:
            found, has_space = _one_of(parts[at])
            at += 1
        letters |= found
        space = space or has_space
    return (_LETTERS - letters, not space) if negated else (frozenset(letters), space)


def _one_of(part: str) -> tuple[frozenset[str], bool]:
    """The letters that an escape, a property or a character matches, and whether it matches a space."""
    if part.startswith(("\\p{", "\\P{")):
        if part[3:-1] not in _PROPERTIES:
            raise _NotProvedError
        letters, space = _PROPERTIES[part[3:-1]]
        return (letters, space) if part[1] == "p" else (_LETTERS - letters, not space)
    if part.startswith("\\"):
        name = part[1]
        if name in _CLASSES:
            return _CLASSES[name]
        if name in _CONTROL or not name.isalnum():
            return _NO_LETTERS, name == " "
        raise _NotProvedError
    return frozenset(part) & _LETTERS, part == " "


def _parts(alternative: list[_Atom | None]) -> tuple[list[_Atom], bool]:
    """The atoms of an alternative, and whether it looks ahead after them."""
    atoms = [atom for atom in alternative if atom is not None]
    return atoms, len(atoms) < len(alternative)


def _crosses(atoms: list[_Atom]) -> bool:
    """Whether a match, or a part of one, may hold a letter and a space right after it."""
    for i, atom in enumerate(atoms):
        if not atom.letters:
            continue
        if atom.repeats and atom.space:
            return True
        for later in atoms[i + 1 :]:
            if later.space:
                return True
            if not later.optional:
                break
    return False


def _takes(letter: str, atoms: list[_Atom], looks_ahead: bool) -> bool:
    """Whether an alternative surely matches from this letter on: one part takes it, and the others may be empty."""
    if looks_ahead:
        return False
    for i, atom in enumerate(atoms):
        if letter in atom.letters:
            return not atom.is_group and all(other.optional for other in atoms[i + 1 :])
        if not atom.optional:
            return False
    return False
