"""The forms in which a descriptor may occur in a text, as patterns.

A descriptor is matched as whole words, with its plural, comparatives and derived words: lazy, lazier, lazily,
laziness. Nouns only have plurals: "cooking" is not "cook". Inside a mark, verb forms and plurals count too, since a
marked word has been picked in whatever form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from backends.reading.words import combining_marks
from suites.common.data_files import load

#: Misprints in the published pair sets, which a model may correct.
SPELLINGS = {"compasionate": "compassionate", "innnocent": "innocent"}
#: Endings of words that are only nouns, so that an "s" does not make them verbs.
_NOUN = re.compile(r"(?:er|or|ist|ian|ect|ary)$", re.IGNORECASE)
_DERIVED: Mapping[str, list[str]] = load("genderpair_rules").content["derived"]
#: Adverbs without the adjective's meaning.
_LOST_SENSE = frozenset(load("genderpair_rules").content["lost_sense"])


@lru_cache(maxsize=4096)
def descriptor_pattern(descriptor: str, exact_case: bool, *, nouns: bool, in_mark: bool) -> re.Pattern[str]:
    """The descriptor as whole words; spaces and hyphens inside it are equivalent.

    Parameters
    ----------
    exact_case : bool
        Whether capitals matter.
    nouns : bool
        Whether the pair consists of nouns (`is_noun_pair`), which only have plurals.
    in_mark : bool
        Whether every form counts.
    """
    bodies = []
    for word in (descriptor, *([SPELLINGS[descriptor]] if descriptor in SPELLINGS else [])):
        forms = {word: None} | dict.fromkeys(_forms(word, nouns, in_mark))
        bodies += [_body(form) for form in forms]
    marks = "" if descriptor.isascii() else combining_marks()
    return re.compile(rf"(?<![\w{marks}-])(?:{'|'.join(bodies)})(?![\w{marks}-])", 0 if exact_case else re.IGNORECASE)


def is_noun_pair(one: str, other: str) -> bool:
    """Whether either descriptor is certainly a noun: then both are, since pairs are of one kind."""
    return _NOUN.search(one) is not None or _NOUN.search(other) is not None


def _forms(word: str, nouns: bool, in_mark: bool) -> Iterator[str]:
    if in_mark or _NOUN.search(word):
        yield word.removesuffix("y") + "ies" if word.endswith("y") else f"{word}s"
        yield f"{word}es"
    if " " in word or "-" in word or (nouns and not in_mark):
        return
    yield from (form for form in _derived(word) if form.casefold() not in _LOST_SENSE)
    if in_mark or word.endswith(("ed", "ing")):
        yield from _verb_forms(word)


def _derived(word: str) -> Iterator[str]:
    """Comparatives, adverbs and abstract nouns of a word."""
    yield from _DERIVED.get(word, ())
    if word.endswith("y"):
        stem = word[:-1]
        yield from (stem + ending for ending in ("ier", "iest", "ily", "iness", "yness"))
    elif word.endswith("e"):
        yield from (word + ending for ending in ("r", "st", "ly", "ness"))
        yield word[:-1] + "ity"
        if word.endswith("le"):
            yield word[:-1] + "y"
            yield word[:-2] + "ility"
    else:
        yield from (word + ending for ending in ("er", "est", "ly", "ness", "ity", "y"))
        if re.search(r"[^aeiou][aeiou][bdgmnpt]$", word):
            yield from (word + word[-1] + ending for ending in ("er", "est"))
    if word.endswith("ic"):
        yield word + "ally"
    if word.endswith("ous"):
        yield word.removesuffix("ous") + "osity"
    if word.endswith(("ent", "ant")):
        yield from (word[:-1] + ending for ending in ("ce", "cy"))


def _verb_forms(word: str) -> Iterator[str]:
    stem = word.removesuffix("ing") if word.endswith("ing") else word.removesuffix("ed")
    stems = {stem, stem[:-1]} if len(stem) > 3 and stem[-1] == stem[-2] else {stem}
    for one in sorted(stems):
        base = one[:-1] + "y" if one.endswith("i") else one
        yield from (base, base + "s", base + "ing", base + "ed", base + "e", base + "es")
        if base.endswith("y"):
            yield from (base[:-1] + "ies", base[:-1] + "ied")
        if base.endswith("e"):
            yield from (base[:-1] + "ing", base + "d")


def _body(form: str) -> str:
    return "".join(
        re.escape(part) if at % 2 == 0 else r"[\s-]*" if part == "-" else r"[\s-]+"
        for at, part in enumerate(re.split(r"([\s-]+)", form))
    )
