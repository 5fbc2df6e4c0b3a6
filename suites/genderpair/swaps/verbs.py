"""Which words are forms of an English verb, from ``suites/data/english_verbs.json``."""

from __future__ import annotations

import re
from functools import lru_cache

from suites.common.data_files import load

_CONTENT = load("english_verbs").content
#: Base forms that are no noun, adjective or adverb: complain, become.
ONLY_VERBS = frozenset(_CONTENT["only_verbs"].split())
#: All base forms: complain, water.
VERBS = ONLY_VERBS | frozenset(_CONTENT["verbs_and_more"].split())
#: Irregular past forms that are not also a base form: went.
IRREGULAR_PAST = frozenset(_CONTENT["past"].split())
PARTICIPLES = frozenset(_CONTENT["participles"].split())
#: Base forms that are their own past: put, read.
SAME_IN_THE_PAST = frozenset(word for word in IRREGULAR_PAST & VERBS if word not in _CONTENT["past_of_another"])


@lru_cache(maxsize=1 << 14)
def base_of_singular(word: str) -> str | None:
    """The base of a third person singular: walks → walk, tries → try; None if it is none."""
    if not word.endswith("s") or word.endswith(("ss", "'s")):
        return None
    stems = [word[:-1]]
    if word.endswith("es"):
        stems.append(word[:-2])
    if word.endswith("ies"):
        stems.append(word[:-3] + "y")
    return next((stem for stem in stems if stem in VERBS), None)


def singular_of(base: str) -> str:
    """The third person singular of a regular base form."""
    if base.endswith(("ch", "sh", "s", "x", "z", "o")):
        return base + "es"
    return re.sub(r"([^aeiou])y$", r"\1ie", base) + "s"


@lru_cache(maxsize=1 << 14)
def is_past(word: str) -> bool:
    """Whether the word can be a past form: walked, went."""
    if word in IRREGULAR_PAST:
        return True
    return word.endswith("ed") and word not in VERBS


def can_be_verb(word: str) -> bool:
    """Whether the word can be a finite verb or a base form: complain, walks, went."""
    return word in VERBS or base_of_singular(word) is not None or is_past(word)


@lru_cache(maxsize=1 << 14)
def bases_of(word: str) -> frozenset[str]:
    """Base forms that a regular form may come from, the word itself among them."""
    stems = {word}
    for ending in ("s", "es", "d", "ed", "ing"):
        if word.endswith(ending):
            stem = word[: -len(ending)]
            stems |= {stem, stem + "e"}
            if len(stem) > 2 and stem[-1] == stem[-2]:
                stems.add(stem[:-1])
    if word.endswith(("ies", "ied")):
        stems.add(word[:-3] + "y")
    return frozenset(stems | {_IRREGULAR.get(word, word)})


_IRREGULAR: dict[str, str] = dict(_CONTENT["irregular"])
