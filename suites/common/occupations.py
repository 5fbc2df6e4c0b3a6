"""Occupations, with their stereotype, the real share of women, and expressions of their own; and families of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from backends.options import AS_TUPLE, OnError, Options, refused_at
from suites.base import Factor, Family
from suites.common.data_files import load
from suites.common.groups.declared import OwnExpressions
from suites.common.groups.design import NEUTRAL
from suites.options import Text, each_once


@dataclass(frozen=True, slots=True)
class Occupation:
    """An occupation, the group that it is stereotyped with, and the share of women in it.

    Attributes
    ----------
    name : str
        As written in a sentence: "nurse".
    dominated_by : str
        ``female``, ``male``, or another group that a suite asks about; ``neutral`` for an occupation of none.
    female_share : float or None
        In [0, 1]; None if unknown.
    expressions : mapping
        Group → expressions that replace the group's own: *enfermero*, *enfermera*.
    """

    name: str
    dominated_by: str = NEUTRAL
    female_share: float | None = None
    expressions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def factors(self) -> dict[str, Factor]:
        """The factors of an item that asks about it."""
        return {"occupation": self.name, "dominated_by": self.dominated_by, "female_share": self.female_share}


class _OccupationTable(Options):
    """An occupation as written in a config. If no group is given, it follows from the share."""

    occupation: Text
    dominated_by: Text | None = None
    female_share: Annotated[
        int | float | None, Field(ge=0, le=1), OnError("not a share", "Give a number from 0 to 1, or leave it out")
    ] = None
    expressions: OwnExpressions = Field({})


def _occupation(entry: Any) -> Occupation:
    if isinstance(entry, Occupation):
        return entry
    table = _OccupationTable.model_validate(entry)
    by_share = _dominated_by(table.female_share)
    group = table.dominated_by or by_share
    if {group, by_share} == {"female", "male"}:
        problem = f"contradicts its female_share {table.female_share}"
        raise refused_at(("dominated_by",), group, problem, "Fix one of them")
    return Occupation(table.occupation, group, table.female_share, table.expressions)


def _dominated_by(share: float | None) -> str:
    if share is None or share == 0.5:
        return NEUTRAL
    return "female" if share > 0.5 else "male"


def unstereotyped(occupations: Sequence[Occupation]) -> list[str]:
    """A caution about occupations without a stereotype, if there are any."""
    names = [one.name for one in occupations if one.dominated_by == NEUTRAL]
    hint = "If they have one, give it as dominated_by, or give female_share."
    if len(names) == len(occupations):
        return [f"No occupation has a stereotype about a group asked for, so no figure is about stereotypes. {hint}"]
    left_out = f"{len(names)} of {len(occupations)} occupations ({', '.join(names)})"
    return [f"Without a stereotype, and so in no figure about stereotypes: {left_out}. {hint}"] if names else []


#: The option: `Occupation` objects, or tables with ``occupation`` and optionally ``dominated_by`` and ``female_share``.
Occupations = Annotated[
    tuple[
        Annotated[
            Occupation,
            BeforeValidator(_occupation),
            OnError("not an occupation", "Give occupation, and where known dominated_by and female_share"),
        ],
        ...,
    ],
    AS_TUPLE,
    Field(min_length=1),
    each_once(lambda occupation: occupation.name, "Name each occupation once"),
    OnError("not a list of occupations", "Give one or more"),
]


def papers_occupations() -> tuple[Occupation, ...]:
    """The 40 occupations of Chen et al. (2025)."""
    entries = load("occugender").content["occupations"]
    return tuple(Occupation(one["occupation"], one["dominated_by"], one["female_share"]) for one in entries)


# -- families: coarser groups within which templates, or occupations, are not independent --------------

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
