"""Which of the two people in a BBQ question belongs to the stereotyped group, according to the labels of its data.

A label is a group ("old"), with a gender before it ("F-Black") and a status before that ("lowSES-F-Black"); or it is a
region, and then the group is the answer's own word ("Nigerian"). In the intersectional categories the stereotyped
groups are given by race alone. The gender or status that goes with them is taken from those questions of the same
template in which only one person is of that race: that person is always the target of the stereotype ("A and B"
against "B" or "A" alone, their Section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

UNKNOWN = "unknown"
_GENDERS = {"woman": "f", "girl": "f", "man": "m", "boy": "m"}


def stereotyped_places(rows: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """The index of the stereotyped person among each question's answers; None where that is both people, or neither.

    Parameters
    ----------
    rows : sequence of mappings
        The questions of one category, as in its file.
    """
    places = [_places(row) for row in rows]
    targets = {
        row["question_index"]: _rest(_info(row, of[0]))
        for row, of in zip(rows, places, strict=True)
        if len(of) == 1 and _is_crossed(row)
    }
    found: list[int | None] = []
    for row, of in zip(rows, places, strict=True):
        if len(of) == 2 and _is_crossed(row) and row["question_index"] in targets:
            of = [place for place in of if _rest(_info(row, place)) == targets[row["question_index"]]]
        found.append(of[0] if len(of) == 1 and _one_is_unknown(row) else None)
    return found


def has_names(row: Mapping[str, Any]) -> bool:
    """Whether a question's people have names that only hint at a race: then no answer mentions it."""
    people = [place for place in range(3) if _info(row, place) != UNKNOWN]
    return not any(
        _info(row, place).split("-")[-1].casefold() in str(row[f"ans{place}"]).casefold() for place in people
    )


def _places(row: Mapping[str, Any]) -> list[int]:
    stereotyped = {_group(str(name)) for name in row["additional_metadata"]["stereotyped_groups"]}
    return [place for place in range(3) if _info(row, place) != UNKNOWN and stereotyped & _groups(row, place)]


def _groups(row: Mapping[str, Any], place: int) -> set[str]:
    """The names of every group that the person in an answer belongs to."""
    info = _info(row, place)
    if _is_crossed(row):
        return {_group(info.split("-")[-1])}
    last = info.split("-", 1)[1] if info[:2] in ("F-", "M-") else info
    return {_group(info), _group(last), _group(str(row["answer_info"][f"ans{place}"][0]))}


def _group(name: str) -> str:
    """A group's label in lower case and without spaces; genders become f, m, trans or nontrans."""
    plain = name.casefold().replace(" ", "")
    if plain.startswith("trans"):
        return "trans"
    if plain.startswith("nontrans"):
        return "nontrans"
    return _GENDERS.get(plain, plain)


def _is_crossed(row: Mapping[str, Any]) -> bool:
    return "_x_" in str(row.get("category", ""))


def _rest(info: str) -> str:
    """The part of a label before the race: gender, or status."""
    return info.split("-")[0]


def _info(row: Mapping[str, Any], place: int) -> str:
    return str(row["answer_info"][f"ans{place}"][1])


def _one_is_unknown(row: Mapping[str, Any]) -> bool:
    return [_info(row, place) for place in range(3)].count(UNKNOWN) == 1
