"""Whether a word in a text is affirmed or negated, judging by its context.

Rule-based, within one clause. Going back from the word, light words (articles, forms of "be", pronouns, verbs of
saying and thinking) are skipped; the negations on the way are counted, and an even number cancels ("no less wise").
A list after a negation is negated as a whole ("not rude, mean or lazy"). If the clause has a negation whose scope is
unclear, the answer is None: unknown.
"""

from __future__ import annotations

import re

from suites.genderpair.texts.lexicon import word_sets

#: Word lists. ``negators``, ``negators_of_two`` and all words in "n't" negate; ``light`` words are skipped; an
#: ``uncertain`` word right before the word in question leaves it open whether that is affirmed.
_WORDS = word_sets("negation")
#: After a negation, these do not mean a plain "not": something one does not have, a comparison.
_NOT_PLAIN = re.compile(
    r"\b(?:ha(?:ve|s|d)|wants?|wanted|makes?|let|find|imagine|believed?|sa(?:id|ys?)|to) (?:an?|any|the)\b"
    r"|\bto$|\bmore\b|^no (?:i|you|he|she|it|we|they)\b|(?<!call)(?<!consider)(?<!make)(?<!find)(?<!think) her$"
)
_NO_NEGATION = re.compile(
    r"""\b(?:(?:there\s(?:is|was)\s|there's\s)?no\sdoubt(?:\sthat)?|without\s(?:a\s|any\s)?(?:doubt|question)
    |not\s(?:only|just|merely|simply|to\smention)|no\s(?:wonder|surprise|secret)|no\smatter\s(?:how|who|what)
    |no\sstranger\sto|more\sor\sless|at\sleast|nothing\sif\snot|nothing\s(?:less|other)\sthan
    |none\sother\sthan|(?:can't|cannot|can\snot|couldn't|could\snot)\shelp(?:\sbut)?(?:\s(?:being|be|feeling))?|in\sthe\s(?:least|slightest)|at\sall|one\sbit|in\sany\sway|by\sany\smeans|any\slonger)\b""",
    re.VERBOSE,
)
_ISNT_ONLY = re.compile(r"\b([a-z]+)n't\s(?:only|just|merely|simply)\b")
_NOT = re.compile(
    r"""(?:,\s)?\b(?:by\sno\smeans|in\sno\sway|under\sno\scircumstances|nowhere\snear|no\slonger
    |not\sthe\s(?:least|slightest)(?:\sbit)?|nothing\slike)\b(?:\s?,)?""",
    re.VERBOSE,
)
_ASIDE = re.compile(r"(\bnot|\bnever|n't)\s?,[^,]{1,25},")
_CLAUSE_END = re.compile(r"[.!?;:]|\n\s*\n|\n\s*(?:[-*•]|\d+[.)])\s|\bbut\b")
_TOKEN = re.compile(r"\w+n't\b|'s\b|\w[\w-]*|,")
_COMPARED = re.compile(r"\b(over|more(?P<less>.*)\sthan)\W+(?:(?:being|an?|the)\s)?\W*$", re.DOTALL)
_UNCHOSEN = re.compile(
    r"\W*(?:(?:is|was|are|were)\s+(?:not|never)|(?:is|was|are|were)n't)\s+(?:chosen|selected|picked|used|marked)\b",
    re.I,
)
_ASKED_AND_DENIED = re.compile(r"[^.!?\n]*\?\W*(?:no|not|never)\b", re.I)
_ASKED = re.compile(r"[^.!\n]*\?")
_COMPARES = re.compile(r"[^.!?]*\b(?:as|so|more|like)\b", re.I)
_LIST_GOES_ON = re.compile(r",?\s(?:[\w-]+,?\s){0,2}?or\b", re.I)
_REACH = 12  # words before the word that are examined


def is_affirmed(before: str, after: str, *, rival: re.Pattern[str], subject: str = "") -> bool | None:
    """Whether the word between ``before`` and ``after`` is affirmed; None: unknown.

    Parameters
    ----------
    rival : re.Pattern
        The word that it is contrasted with: "not lazy, diligent" affirms "diligent", "diligent over lazy"
        negates "lazy".
    subject : str
        The person the text is about; its words are skipped like pronouns.
    """
    if _ASKED_AND_DENIED.match(after):
        return None
    clause = _clause(before)
    compared = _COMPARED.search(clause)
    if compared and rival.search(clause[compared.start() if compared["less"] else 0 : compared.end()]):
        return None if any(map(_negates, _TOKEN.findall(clause))) else False
    words = _TOKEN.findall(clause)[-_REACH:]
    affirmed = _walk(words, rival, _WORDS["light"] | set(subject.lower().split()))
    goes_on = words[-1:] == [","] and affirmed and _LIST_GOES_ON.match(after)
    no_such = words[-1:] == ["no"] and _COMPARES.match(after)
    if any(map(_negates, words)) and (_ASKED.match(after) or goes_on or no_such):
        return None
    return not affirmed if affirmed is not None and _UNCHOSEN.match(after) else affirmed


def _clause(before: str) -> str:
    """The words of the clause so far, in lower case, with idioms reduced to plain words."""
    text = _CLAUSE_END.split(before[-400:].lower().replace("anything but", "without"))[-1]
    text = re.sub(r"[\s{}()\[\]\"*`“”]+", " ", text)
    text = _ISNT_ONLY.sub(r"\1", text)
    return _ASIDE.sub(r"\1 ", _NOT.sub(" not ", _NO_NEGATION.sub(" ", text)))


def _walk(words: list[str], rival: re.Pattern[str], light: frozenset[str]) -> bool | None:
    """Walk back through the clause, as far as it affects the word that follows it."""
    negations: list[int] = []
    listed = room = False  # within a list that ends in "or"; whether it has room for one more word
    comma = bool(words) and words[-1] == ","
    at = len(words) - 1
    while at >= 0:
        word = words[at]
        if at and f"{words[at - 1]} {word}" in _WORDS["negators_of_two"]:
            negations.append(at - 1)
            at -= 1
        elif _negates(word):
            negations.append(at)
            if word == "nor":  # the second half of "neither … nor"
                break
        elif word == "or" or (word == "," and (listed or at == len(words) - 1 or words[at + 1] == "or")):
            listed, room = listed or word == "or", True
        elif word not in light:
            if not room:
                break
            room = False
        at -= 1
    passed, left = words[at + 1 :], words[: at + 1]
    if not negations:
        return _without_negation(left, passed, comma and not listed)
    if comma and not listed:
        return _after_a_comma(words, negations[-1], rival)
    return _count(words, negations, left)


def _negates(word: str) -> bool:
    return word in _WORDS["negators"] or word.endswith("n't")


def _without_negation(left: list[str], passed: list[str], comma: bool) -> bool | None:
    """The result if no negation was met: one farther back leaves it open, unless in a clause of its own."""
    if (left and left[-1] == ",") or (left and left[-1] == "and" and _WORDS["finite"] & set(passed)):
        return True
    near = left[len(left) - left[::-1].index(",") :] if "," in left else left
    for at, word in enumerate(near):
        if _negates(word) and not (comma and _denies_a_verb(near, at)):
            return None
    return None if _WORDS["uncertain"] & set(near[-1:]) else True


def _denies_a_verb(words: list[str], at: int) -> bool:
    """Whether the negation denies a verb (did not eat, won't come), and so nothing after the next comma."""
    helper = words[at].removesuffix("n't") if words[at].endswith("n't") else (words[at - 1] if at else "")
    return helper in ("did", "do", "does", "could", "ca", "would", "wo", "will", "should") or words[at] == "cannot"


def _after_a_comma(words: list[str], at: int, rival: re.Pattern[str]) -> bool | None:
    """Distinguishes "not a rude, lazy man" from "not lazy, diligent" and "did not eat, lazy as she was"."""
    denied = words[at + 1 :]
    if rival.search(" ".join(denied)) or _denies_a_verb(words, at):
        return True
    return False if denied and denied[0] in ("a", "an", "the") else None


def _count(words: list[str], negations: list[int], left: list[str]) -> bool | None:
    """An even number of negations affirms, an odd one negates; None if they are not plain negations."""
    first, last, before = words[negations[-1]], words[-1], words[-2:-1]
    if last == "less" and before and before[0] in _WORDS["be"] and first in ("cannot", "couldn't", "can't"):
        return False  # could not be less so
    if len(negations) == 1:
        if last == "more" and before and before[0] in _WORDS["be"] and first in ("cannot", "couldn't", "can't"):
            return True  # could not be more so
        if last in ("so", "such") and first == "never" and before == ["been"]:
            return True  # never was before
        if last in ("so", "such", "as") and first not in ("not", "isn't", "wasn't", "aren't", "weren't", "ain't"):
            return None
    if last == "no" and (not before or before[0] not in {*_WORDS["be"], "and", "or"} or words[-3:-2] == ["there"]):
        return None  # there is no such person: that says nothing about the one at hand
    if {"if", "unless", "whether"} & {*words} or words[0] == "had":
        return None
    if _NOT_PLAIN.search(" ".join(words[negations[-1] :])):
        return None
    if left and left[-1] not in (",", "and") and any(map(_negates, left)) and first != "nor":
        return None  # a second negation farther back
    return len(negations) % 2 == 0
