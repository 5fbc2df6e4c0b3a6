"""Families: the coarser groups within which templates, or occupations, are not independent of each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache

from suites.base import Factor, Family
from suites.common.data_files import load

#: Two templates are of one wording if at most this share of their words differs. At .4 the 25 explicit templates of
#: OccuGender are 19 wordings and the implicit ones 21; from .5 on, unlike ones are chained into one family of 14.
SAME_WORDING = 0.4

_FRAME = re.compile(r"\b[QA]:|Answer with (?:just )?one word\.?")


@cache
def _sectors() -> Mapping[str, str]:
    sectors: Mapping[str, list[str]] = load("sectors").content["sectors"]
    return {occupation: sector for sector, occupations in sectors.items() for occupation in occupations}


def sectors(occupations: Iterable[str]) -> Family:
    """The sectors of occupations: major groups of the US Standard Occupational Classification (`sectors.json`). An
    occupation that is not listed there is a sector of its own."""
    known = _sectors()
    return Family("sector", {name: known[name.lower()] for name in occupations if name.lower() in known})


def wordings(templates: Mapping[str, str]) -> Family:
    """The wordings of templates, by the words in which their texts differ.

    Two templates are of one wording if at most `SAME_WORDING` of the longer one's words must be put in, left out or
    replaced to make one from the other; and so are two that a chain of such templates links. ``Q:``, ``A:`` and the
    order to answer with one word do not count.

    ``templates``: texts by the level of the factor.
    """
    words = {name: re.findall(r"[\w'\[\]]+", _FRAME.sub(" ", text).lower()) for name, text in templates.items()}
    family: dict[Factor, str] = {}
    for name, own in words.items():
        like = {family[other] for other in family if _is_like(own, words[str(other)])}
        first = min(like, key=list(words).index, default=name)
        family = {other: first if found in like else found for other, found in family.items()} | {name: first}
    return Family("wording", {**family})


def _is_like(a: list[str], b: list[str]) -> bool:
    codes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    changed = sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in codes if tag != "equal")
    return changed <= SAME_WORDING * max(len(a), len(b))
