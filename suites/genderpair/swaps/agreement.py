"""Whether every verb that agrees with a swapped pronoun was found and changed.

Both functions compare the words of a text with those of the text with swapped pronouns, one to one. Where a word might
be a second verb of the subject and stayed as it was, or may be a noun, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterator

from suites.genderpair.swaps.verbs import PARTICIPLES, SAME_IN_THE_PAST, VERBS, base_of_singular, is_past
from suites.genderpair.swaps.words import LISTS, Words
from suites.genderpair.texts.lexicon import SINGULAR_TO_PLURAL, word_sets

_OLDER = word_sets("pronouns")
_PLURAL_TO_SINGULAR = {plural: singular for singular, plural in SINGULAR_TO_PLURAL.items()}
_JOINS = frozenset(["and", "or", "but", "nor", "then", "yet"])
_FORMS_OF_BE = frozenset(["are", "were", "aren't", "weren't", "'re"])
_BEFORE_A_QUESTION = frozenset(
    [
        "what",
        "who",
        "how",
        "why",
        "when",
        "where",
        "which",
        "so",
        "nor",
        "neither",
        "than",
        "as",
        "and",
        "but",
        "only",
        "never",
    ]
)


def agrees_in_the_plural(words: Words, swapped: Words, subject: str) -> bool:
    """Whether each verb of ``subject``, he or she, has its plural form in ``swapped``."""
    return all(_becomes_plural(words, swapped, at) for at in _subjects(words, subject))


def agrees_in_the_singular(words: Words, swapped: Words, subject: str = "they") -> bool:
    """Whether each verb of "they" has its singular form in ``swapped``."""
    return all(_becomes_singular(words, swapped, at) for at in _subjects(words, subject))


def _subjects(words: Words, subject: str) -> Iterator[int]:
    return (at for at, word in enumerate(words.all) if word.lower.split("'")[0] == subject)


def _verb_of(words: Words, at: int) -> int | None:
    """The index of the word after the subject and its adverbs; None if punctuation parts them."""
    at += 1
    while at < len(words) and not words.all[at].gap:
        lower = words.all[at].lower
        if not (lower in LISTS["adverbs"] or lower.endswith(("ly", "self", "selves"))):
            return at
        at += 1
    return None


def _asks(words: Words, swapped: Words, at: int, table: dict[str, str]) -> bool | None:
    """Whether an auxiliary before the subject is its verb; None if it is and stayed, or if it cannot be told."""
    before = words.before(at)
    if before in table:
        return True if swapped.all[at - 1].lower == table[before] else None
    return before in LISTS["modals"] and (words.all[at - 1].opens or words.before(at - 1) in _BEFORE_A_QUESTION)


def _becomes_plural(words: Words, swapped: Words, at: int) -> bool:
    word, table = words.all[at], SINGULAR_TO_PLURAL
    asks = _asks(words, swapped, at, table)
    if asks is None:
        return False
    verb_at = _verb_of(words, at)
    if verb_at is None:
        return _has_no_verb_after(words, at)
    verb = words.all[verb_at].lower
    if word.lower.endswith("'s"):
        present = _contraction_is_clear(verb, words, at, verb_at)
        return present and _others_are_plural(words, swapped, verb_at - 1, past=False)
    if "'" in word.lower or verb in LISTS["modals"] or asks:
        return _others_are_plural(words, swapped, verb_at, past=True)
    if verb in table:
        return swapped.all[verb_at].lower == table[verb] and _others_are_plural(words, swapped, verb_at, past=False)
    if is_past(verb) or verb in ("were", "be") or verb in SAME_IN_THE_PAST:
        unchanged = swapped.all[verb_at].lower == verb
        return unchanged and _others_are_plural(words, swapped, verb_at, past=True)
    base = base_of_singular(verb)
    changed = base is not None and swapped.all[verb_at].lower in VERBS and swapped.all[verb_at].lower != verb
    return changed and _others_are_plural(words, swapped, verb_at, past=False)


def _has_no_verb_after(words: Words, at: int) -> bool:
    """Whether a subject ends its clause: "Is he?", "than he". "He, who" and a text cut off have a verb not seen."""
    after = words.at(at + 1)
    comma = after is not None and not after.opens and not after.gap.startswith((")", '"', "”", "’", "'"))
    ends = words.next(at) is None and not words.is_cut_off(at)
    return ends and not comma and "'" not in words.all[at].lower


def _contraction_is_clear(verb: str, words: Words, at: int, verb_at: int) -> bool:
    """Whether the "'s" of he's can only be is, or only has."""
    object_follows = words.next(verb_at) in LISTS["determiners"] | LISTS["object_pronouns"]
    has = verb in _OLDER["done"] or (verb.endswith("ed") and verb not in _OLDER["states"])
    if verb in LISTS["participles_of_have"] or (has and object_follows):
        return True
    if verb in _OLDER["states"]:
        return verb_at == at + 1 or words.all[verb_at - 1].lower not in ("never", "always", "already", "ever")
    return not (verb.endswith("ed") or verb in PARTICIPLES or is_past(verb))


def _is_joined(words: Words, at: int) -> bool:
    """Whether only adverbs stand between a word and a conjunction or a comma before it."""
    while at > 0:
        gap, before = words.all[at].gap, words.all[at - 1].lower
        if gap:
            return True
        if before in _JOINS:
            return True
        if not (before in LISTS["adverbs"] or before.endswith("ly") or before == "neither"):
            return False
        at -= 1
    return False


def _rest(words: Words, verb_at: int) -> Iterator[tuple[int, bool, str | None]]:
    """The later words of the sentence: their places, whether a conjunction leads to them, the last other subject."""
    other: str | None = None
    for at in range(verb_at + 1, words.sentence_end(verb_at)):
        lower = words.all[at].lower.split("'")[0]
        if lower in LISTS["subjects"] and lower not in ("this", "there", "one"):
            other = lower
            continue
        yield at, _is_joined(words, at), other


def _others_are_plural(words: Words, swapped: Words, verb_at: int, *, past: bool) -> bool:
    phrase = False
    for at, joined, other in _rest(words, verb_at):
        lower = words.all[at].lower
        changed = swapped.all[at].lower != lower
        if other in ("he", "she"):
            return True
        phrase |= joined and lower in LISTS["prepositions"]
        present = lower in SINGULAR_TO_PLURAL or base_of_singular(lower) is not None
        if not present or (past and lower not in SINGULAR_TO_PLURAL and not changed):
            continue
        if changed:
            if lower not in SINGULAR_TO_PLURAL and (other is not None or not joined):
                return False
        elif (phrase and lower not in SINGULAR_TO_PLURAL and other in (None, "who", "which", "that") and not past) or (
            joined and other not in ("who", "which")
        ):
            return False
    return True


def _becomes_singular(words: Words, swapped: Words, at: int) -> bool:
    word, table = words.all[at], _PLURAL_TO_SINGULAR
    asks = _asks(words, swapped, at, table)
    if asks is None:
        return False
    verb_at = _verb_of(words, at)
    if verb_at is None:
        return _has_no_verb_after(words, at)
    verb, new = words.all[verb_at].lower, swapped.all[verb_at].lower
    if word.lower.endswith("'ve"):
        has = verb.endswith("ed") or verb in PARTICIPLES
        return has and _others_are_singular(words, swapped, verb_at, "past")
    if word.lower.endswith("'re"):
        return _others_are_singular(words, swapped, verb_at - 1, "be")
    if "'" in word.lower or verb in LISTS["modals"] or asks:
        return new == verb and _others_are_singular(words, swapped, verb_at, "modal")
    if verb in table:
        kind = "be" if verb in _FORMS_OF_BE else "modal" if verb == "don't" else "present"
        return new == table[verb] and _others_are_singular(words, swapped, verb_at, kind)
    if verb in SAME_IN_THE_PAST:
        return False
    if is_past(verb):
        return new == verb and _others_are_singular(words, swapped, verb_at, "past")
    return verb in VERBS and base_of_singular(new) == verb and _others_are_singular(words, swapped, verb_at, "present")


def _others_are_singular(words: Words, swapped: Words, verb_at: int, kind: str) -> bool:
    phrase = False
    for at, joined, other in _rest(words, verb_at):
        lower = words.all[at].lower
        changed = swapped.all[at].lower != lower
        if other == "they":
            return True
        phrase |= joined and lower in LISTS["prepositions"]
        if changed and lower not in ("them", "their", "theirs", "themself", "themselves"):
            if kind == "modal" or not joined or other is not None:
                return False
            continue
        if lower not in VERBS or (lower in LISTS["function"] and lower not in _PLURAL_TO_SINGULAR):
            continue
        if kind == "past" and lower not in _PLURAL_TO_SINGULAR:
            continue
        if kind == "modal" and lower not in _PLURAL_TO_SINGULAR:
            continue
        describes = kind == "be" and (words.next(at) is None or words.next(at) in ("and", "or", "but"))
        if joined and not describes and other not in ("who", "which"):
            return False
        if phrase and other is None and words.next(at) in LISTS["function"]:
            return False
    return True
