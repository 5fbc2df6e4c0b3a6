"""Why a text may not be swapped."""

from __future__ import annotations

import re
from typing import Literal

from suites.genderpair.pairs import GROUPS
from suites.genderpair.swaps.agreement import agrees_in_the_plural, agrees_in_the_singular
from suites.genderpair.swaps.cases import case_of_her, case_of_his
from suites.genderpair.swaps.identities import nouns_between, swap_identity
from suites.genderpair.swaps.nouns import counterparts_meet, has_name, has_unsafe_noun, nouns_of
from suites.genderpair.swaps.people import has_unclear_persons
from suites.genderpair.swaps.pronouns import swap_pronouns
from suites.genderpair.swaps.words import Words
from suites.genderpair.texts.lexicon import FORMS, NEOPRONOUNS

Reason = Literal["noun", "name", "persons", "case", "agreement"]
#: noun: a gendered noun, or one in a compound or a fixed phrase; name: a name, or what may be one; persons: whom a
#: pronoun means; case: "her" or "his"; agreement: a verb of a swapped pronoun.
REASONS: tuple[Reason, ...] = ("noun", "name", "persons", "case", "agreement")
#: Forms that are an object and a possessive at once.
_OBJECT_OR_POSSESSIVE = {
    "male": frozenset[str](),
    "female": frozenset(["her"]),
    "neither": frozenset(forms[1] for forms in NEOPRONOUNS if forms[1] == forms[2]),
}
_MALE = {"object": "him", "possessive": "his"}
_FEMALE = {"possessive": "her", "alone": "hers"}


def reason_against(text: str, target: str, aspect: str, source: str) -> Reason | None:
    """Why ``text``, about ``target`` of group ``source``, is not swapped; None if it can be, or needs no swap.

    A text is swapped only if every gendered word stands in a form known to be safe, in both versions.
    """
    words = Words(text)
    others = [group for group in GROUPS if group != source]
    if has_unsafe_noun(words, target, aspect, source):
        return "noun"
    if all(swap_identity(text, target, aspect, source, group) is None for group in others):
        return None
    if counterparts_meet(words, source) or _has_no_counterpart(target, aspect, source, others):
        return "noun"
    if has_name(words, target, aspect, source):
        return "name"
    if has_unclear_persons(words, target, source) or _is_shouted(words, source):
        return "persons"
    subjects = frozenset(["she", target.casefold(), *nouns_of("female")])
    if not _cases_are_clear(words, text, source, subjects):
        return "case"
    return None if _verbs_agree(words, text, source) else "agreement"


def _has_no_counterpart(target: str, aspect: str, source: str, others: list[str]) -> bool:
    """Whether a target is a noun, as of an own set, that no list has: "the monk" became "the nonbinary"."""
    if source == "neither" or aspect not in ("identities", "titles"):
        return False  # agender is an adjective, as is what stands for it
    return any(target.casefold() not in nouns_between(source, group) for group in others)


def _is_shouted(words: Words, source: str) -> bool:
    own = {form for forms in (FORMS[source], *NEOPRONOUNS) for form in forms}
    spoken = [word for word in words.all if word.lower.split("'")[0] in own]
    return any(len(word.text) > 1 and word.text.isupper() for word in spoken) or any(
        word.text[0].isupper() and not word.opens for word in spoken
    )


def _cases_are_clear(words: Words, text: str, source: str, subjects: frozenset[str]) -> bool:
    """Whether the strict rule decides each "her" and "his", and the swap does the same."""
    swapped = Words(swap_pronouns(text, source, "female" if source == "male" else "male"))
    for at, word in enumerate(words.all):
        if word.lower in _OBJECT_OR_POSSESSIVE[source]:
            case = case_of_her(words, at, subjects)
            new = _MALE.get(case or "")
        elif word.lower == "his" and source == "male":
            case = case_of_his(words, at)
            new = _FEMALE.get(case or "")
        else:
            continue
        if swapped.all[at].lower != new:
            return False
    return True


def _verbs_agree(words: Words, text: str, source: str) -> bool:
    if source != "neither":
        swapped = Words(swap_pronouns(text, source, "neither"))
        return agrees_in_the_plural(words, swapped, FORMS[source][0])
    swapped = Words(swap_pronouns(text, source, "male"))
    if re.search(r"\bthey\b", text, re.IGNORECASE) and not agrees_in_the_singular(words, swapped):
        return False
    # Other pronouns of one person have singular verbs, which stay.
    return all(
        swapped.all[at + 1].lower == words.all[at + 1].lower
        for at in range(len(words) - 1)
        if words.all[at].lower in {forms[0] for forms in NEOPRONOUNS}
    )
