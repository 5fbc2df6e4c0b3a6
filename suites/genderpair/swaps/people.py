"""Who the pronouns of a text mean: whether they can only mean the one person whom the text is about."""

from __future__ import annotations

import re
from functools import lru_cache

from suites.genderpair.swaps.nouns import TITLES_OF, has_phrase, nouns_of
from suites.genderpair.swaps.verbs import base_of_singular
from suites.genderpair.swaps.words import LISTS, UNLISTED, Words
from suites.genderpair.texts.lexicon import FORMS, NEOPRONOUNS

_THEY = frozenset(["they", "them", "their", "theirs", "they're", "they've", "they'll", "they'd"])
_PLURAL_ENDING = re.compile(r"[^su'i]s$|(?:[^l]e|i)es$")
_SINGULAR_SUBJECTS = frozenset(
    [
        "it",
        "he",
        "she",
        "who",
        "that",
        "everyone",
        "everybody",
        "nobody",
        "someone",
        "somebody",
        "anyone",
        "this",
        "which",
    ]
)
_IS = frozenset(["is", "was", "be", "been", "as", "become", "becomes", "became", "are", "were", "being"])
_EITHER = re.compile(
    r"\b(?:he|she|they|him|her|them|his|their)\s*(?:/|\bor\b|\band\b)\s*(?:he|she|they|hers?|him|his|them|theirs?|s)\b|\bs/he\b|\(s\)he",
    re.IGNORECASE,
)
_WORDS_THEMSELVES = re.compile(r"\b(?:words?|pronouns?|terms?)\b", re.IGNORECASE)


def has_unclear_persons(words: Words, target: str, source: str) -> bool:
    """Whether a pronoun of ``source`` may mean somebody else, several persons, or anybody."""
    if _EITHER.search(words.text) and not re.search(r"\b(?:her and her|him and his)\b", words.text, re.IGNORECASE):
        return True
    lowers = [word.lower.split("'")[0] for word in words.all]
    own = {form for forms in (FORMS[source], *(NEOPRONOUNS if source == "neither" else ())) for form in forms}
    if _WORDS_THEMSELVES.search(words.text) and any(lower in own for lower in lowers):
        return True
    for group in ("male", "female"):
        spoken_of = group != source and any(form in lowers for form in FORMS[group])
        if spoken_of and (source == "neither" or not _is_named(words, group)):
            return True
    if _contradicts(words, source):
        return True
    return source == "neither" and _means_several(words, target)


def _is_named(words: Words, group: str) -> bool:
    known = nouns_of(group) | UNLISTED[group] | TITLES_OF[group]
    return any(word.plain in known for word in words.all)


def _contradicts(words: Words, source: str) -> bool:
    """Whether somebody is said to be a noun of another group: he is a mother."""
    for at, word in enumerate(words.all):
        if not any(word.lower in nouns_of(group) for group in ("male", "female") if group != source):
            continue
        for back in range(1, 5):
            before = words.at(at - back)
            if before is None or words.all[at - back + 1].gap:
                break
            if before.lower in _IS:
                return True
            if before.lower in LISTS["function"] and before.lower not in LISTS["determiners"]:
                break
    return False


def _means_several(words: Words, target: str) -> bool:
    if has_phrase(words, "neither"):
        return True
    seen, checked = False, 0
    own = frozenset(part for part in target.casefold().split())
    for at, word in enumerate(words.all):
        if word.lower in LISTS["plural_marks"] and seen:
            return True
        if word.lower in _THEY:
            if _has_other_antecedent(words, checked, at, own) or _is_said_of_several(words, at):
                return True
            seen, checked = True, at
    return False


def _has_other_antecedent(words: Words, first: int, they_at: int, own: frozenset[str]) -> bool:
    """Whether somebody or several things stand before "they", in whom it may find its meaning."""
    for at in range(first, they_at):
        lower = words.all[at].plain
        if words.before(at) in own and not _is_plural(words, at):
            continue  # the nonbinary person
        if lower in own:
            if words.next(at) in ("and", "or") or words.before(at) in ("and", "or", "with"):
                return True
            continue
        if _is_plural(words, at) or (lower in LISTS["persons"] and not _is_predicate(words, at)):
            return True
        if lower in _named_persons() and not _is_predicate(words, at):
            return True
    return False


@lru_cache
def _named_persons() -> frozenset[str]:
    return nouns_of("male") | nouns_of("female")


def _is_plural(words: Words, at: int) -> bool:
    lower = words.all[at].lower
    if lower in LISTS["plurals"]:
        return True
    if not _PLURAL_ENDING.search(lower) or len(lower) < 4 or lower in LISTS["no_plurals"] | LISTS["times_units"]:
        return False
    before = words.before(at)
    verbs = base_of_singular(lower) is not None
    return not (verbs and (before in _SINGULAR_SUBJECTS or before in LISTS["persons"]))


def _is_predicate(words: Words, at: int) -> bool:
    """Whether a noun says what the person is: Avery is a good teacher."""
    for back in range(1, 5):
        before = words.at(at - back)
        if before is None or words.all[at - back + 1].gap:
            return False
        if before.lower in _IS or before.lower.endswith(("'s", "'re")):
            return True
        if before.lower in LISTS["function"] and before.lower not in ("a", "an", "the", "only", "most"):
            return False
    return False


def _is_said_of_several(words: Words, at: int) -> bool:
    """Whether a plural follows "they are", or somebody demands that "they" do something."""
    if words.before(at) == "that" and words.before(at - 1) in LISTS["demanding"]:
        return True
    verb = words.next(at)
    if verb not in ("are", "were") and words.all[at].lower != "they're":
        return False
    first = at + 1 if words.all[at].lower == "they're" else at + 2
    for place in range(first, min(first + 4, len(words))):
        word = words.all[place]
        if word.gap or (word.lower in LISTS["function"] and word.lower not in LISTS["determiners"]):
            return False
        if _is_plural(words, place) or word.lower == "ones":
            return True
    return False
