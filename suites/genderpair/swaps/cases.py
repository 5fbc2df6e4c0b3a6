"""The case of "her" and "his" where the neighbouring words leave no doubt, else None."""

from __future__ import annotations

import re
from typing import Literal

from suites.genderpair.swaps.verbs import ONLY_VERBS, VERBS, base_of_singular, bases_of, can_be_verb, is_past
from suites.genderpair.swaps.words import LISTS, Words
from suites.genderpair.texts.lexicon import word_sets

Case = Literal["object", "possessive", "alone"]
_OLDER = word_sets("pronouns")
_ADJECTIVE = re.compile(r"(?:ful|ous|ive|able|ible|less)$")
_LIKE_VERY = frozenset(["much", "well", "often"])
_HAVE_AND_BE = frozenset(["have", "has", "had", "be", "been", "was", "were", "is", "are"])
_POSSESSIVES = frozenset(["his", "my", "your", "our", "their", "its"])


def case_of_her(words: Words, at: int, subjects: frozenset[str]) -> Case | None:
    """Whether "her" is an object or a possessive. ``subjects``: words for the same woman as a subject."""
    follower, second = words.next(at), words.next(at + 1)
    if words.is_cut_off(at):
        return None
    if follower is None:
        return "object"
    if follower in ("and", "or", "but"):
        return None if second is None or second in _POSSESSIVES else "object"
    if follower == "very":
        return "object" if second in _LIKE_VERY else None
    if follower in LISTS["object_follows"]:
        return None if (follower, second) in (("so", "called"), ("to", "do")) else "object"
    if follower in LISTS["ends_only"] or follower in ("before", "after"):
        return "object" if second is None and not words.is_cut_off(at + 1) else None
    if _ends_with_a_time(words, at, follower, second):
        return "object"
    if (
        follower in LISTS["times"]
        or follower in LISTS["numbers"]
        or follower[0].isdigit()
        or follower in LISTS["function"]
        or _is_uncertain(words, at)
    ):
        return None
    return _before_content(words, at, follower, second, subjects)


def case_of_his(words: Words, at: int) -> Case | None:
    """Whether "his" stands before its noun or alone."""
    follower = words.next(at)
    if words.is_cut_off(at):
        return None
    if follower is None or follower == "alone":
        return "alone"
    if follower in LISTS["function"] or follower in ("very", "and", "or"):
        safe = follower in ("is", "was", "were", "are", "to", "for", "but", "when", "because", "if", "than")
        return "alone" if safe else None
    if words.before(at) == "of" and _is_one_of_several(words, at) and can_be_verb(follower):
        return None
    return "possessive"


def _is_one_of_several(words: Words, at: int) -> bool:
    """Whether "his" may stand alone after "of": a friend of his came."""
    return any(word.lower in LISTS["one_of"] for word in words.all[max(0, at - 4) : at - 1])


def _ends_with_a_time(words: Words, at: int, follower: str, second: str | None) -> bool:
    """Whether only how or when it was done follows: missed her last night; pushes her hard."""
    verb = words.before(at)
    if verb is None or not can_be_verb(verb):
        return False
    if bases_of(verb) & (LISTS["giving"] | LISTS["seeing"] | LISTS["naming"]) or verb in _OLDER["before_a_time"]:
        return False
    if follower in LISTS["hard"]:
        return second is None and not words.is_cut_off(at + 1)
    timed = follower in ("last", "next", "this", "every") and second in LISTS["nights"]
    return timed and words.next(at + 2) is None and not words.is_cut_off(at + 2)


def _is_uncertain(words: Words, at: int) -> bool:
    """Whether the word after "her" can stand as a verb of its own: everyone around her laughed."""
    follower, second = words.next(at), words.next(at + 1)
    assert follower is not None
    acts = second is not None and (second in LISTS["function"] and second not in ("and", "or", "of", "in", "at"))
    if follower.endswith("ing") and follower not in _OLDER["ing_nouns"]:
        return True
    if is_past(follower) and follower not in VERBS:
        return second is None or second in LISTS["function"]
    return (follower in VERBS or base_of_singular(follower) is not None) and acts and second in LISTS["determiners"]


def _before_content(words: Words, at: int, follower: str, second: str | None, subjects: frozenset[str]) -> Case | None:
    before = words.before(at)
    if follower == "own":
        return "possessive"
    if before is None:
        return "possessive"
    if before in LISTS["conjunctions"] or before in _HAVE_AND_BE:
        listed = words.before(at - 1)
        return None if before in ("and", "or") and listed in ("him", "them", "me", "us", "you", "it") else "possessive"
    if follower.endswith("ly") and follower not in _OLDER["ly_nouns"]:
        ends = second is None or second in LISTS["function"]
        return "object" if ends and before not in LISTS["prepositions"] else None
    if before in LISTS["prepositions"]:
        return _after_a_preposition(before, follower, second)
    return _after_a_verb(words, at, follower, second, subjects)


def _after_a_preposition(before: str, follower: str, second: str | None) -> Case | None:
    if before in ("with", "without") and (follower in _OLDER["states"] or is_past(follower)):
        return None
    can_act = can_be_verb(follower)
    ends = second is None or second in LISTS["function"]
    if follower in LISTS["counted"] and follower != "mind":
        return "possessive"
    if before in LISTS["places"] and can_act:
        return None
    return None if before in LISTS["loose_prepositions"] and can_act and not ends else "possessive"


def _after_a_verb(words: Words, at: int, follower: str, second: str | None, subjects: frozenset[str]) -> Case | None:
    verb = words.before(at)
    assert verb is not None
    bases = bases_of(verb)
    ends = second is None or second in LISTS["function"]
    given = follower in _OLDER["given_things"] and second is None
    if not given and follower not in ONLY_VERBS and _has_own_subject(words, at - 1, subjects):
        return "possessive"
    if bases & LISTS["bare_infinitive"] and follower in ONLY_VERBS:
        return "object"
    if bases & LISTS["naming"] | bases & LISTS["seeing"]:
        return _after_seeing(bases, follower, second)
    if bases & LISTS["giving"]:
        if (
            given
            and bases & _OLDER["verbs_of_giving"]
            and not bases & {"pay", "ask", "cost", "sell", "feed", "send", "serve"}
        ):
            return "object"
        return "possessive" if follower in LISTS["counted"] and ends else None
    if follower in VERBS and second is not None and second in LISTS["determiners"]:
        return None
    return "possessive"


def _after_seeing(bases: frozenset[str], follower: str, second: str | None) -> Case | None:
    if "make" in bases and follower in LISTS["made_things"]:
        return "possessive"
    if follower in _OLDER["adjectives"] or _ADJECTIVE.search(follower):
        makes = bases & {"make", "keep", "leave", "consider"} and second is None
        return "object" if makes else None
    if bases & LISTS["naming"] or can_be_verb(follower):
        return None
    return "possessive"


def _has_own_subject(words: Words, verb_at: int, subjects: frozenset[str]) -> bool:
    """Whether the woman herself is the verb's subject: "her" after it is then no object (that would be "herself")."""
    at = verb_at
    for _ in range(4):
        if words.all[at].gap or words.all[at].opens:
            return False
        at -= 1
        word = words.all[at].lower
        if word in subjects:
            return True
        skipped = (
            word in LISTS["adverbs"] or word in LISTS["modals"] or word in ("to", "not", "has", "had", "is", "was")
        )
        if not skipped and not (word in ONLY_VERBS or base_of_singular(word) in ONLY_VERBS or word == "wants"):
            return False
    return False
