"""The figures that MGBR reports, as specifications over its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suites.base import Factor, MeasureSpec, Row
from suites.mgbr.design import Design

#: Figures for how written steps classify the words, by the kind of their rows.
CLASSIFICATION = {
    "precision": ("precision",),
    "recall": ("recall",),
    "f1": ("f1",),
    "judged": ("words_judged", "words_contradicted"),
}

_Where = Mapping[str, Factor]

#: Quantities that count lists or words, their differences, and differences of these.
_SHARE: Mapping[str, Any] = {"unit": "share", "kind": "share"}
_OF_SHARES: Mapping[str, Any] = {"unit": "difference of shares", "kind": "difference", "is_count": True}
_OF_BIAS_SCORES: Mapping[str, Any] = {
    "unit": "difference of bias scores",
    "kind": "difference",
    "range": (-2.0, 2.0),
    "is_count": True,
}
_OVER_NEW_OCCUPATIONS = "new occupations of this stereotype and new lists"
#: Fractions of one list's words: not a single yes or no per row.
_PART: Mapping[str, Any] = {"unit": "share", "kind": "probability"}


def measure_specs(design: Design, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    """All figures; those of single levels only if a limited run has rows for them."""
    yield from _of_lists(design, rows)
    for condition in design.conditions:
        for group in design.groups:
            where: _Where = {"kind": "pair", "condition": condition, "gender": group}
            yield _mean(design, "bias_score", where, **_OF_SHARES, neutral=0.0, primary="+" not in condition)
    if not design.written:
        yield from _of_prior(design)
    yield from _of_changes(design, rows)
    yield from _of_occupations(design, rows, "occupation", "occupation_bias")
    if design.written:
        yield from _of_occupations(design, rows, "verdict", "called_stereotype")
    for condition in design.written_steps:
        for test_set in design.test_sets:
            for kind, quantities in CLASSIFICATION.items():
                where = {"kind": kind, "condition": condition, "test_set": test_set}
                for quantity in quantities:
                    yield _mean(design, quantity, where, **_PART, is_subgroup=quantity == "words_contradicted")


def _of_lists(design: Design, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    sizes = sorted({r for row in rows if isinstance(r := row.factors.get("r"), int)})
    options = {**_SHARE, "probability_mass": None if design.written else "coverage"}
    for condition in design.conditions:
        for test_set in design.test_sets:
            where: _Where = {"kind": "list", "condition": condition, "test_set": test_set}
            yield _mean(design, "accuracy", where, **options)
            for r in sizes:
                yield _mean(design, "accuracy", {**where, "r": r}, is_subgroup=True, **options)
            if design.written:
                yield _mean(design, "stereotyped_count", where, **_SHARE)
                yield _mean(design, "count_error", where, unit="words", neutral=0.0, is_subgroup=True)
            else:
                yield _mean(design, "tie", where, **_SHARE, is_subgroup=True)


def _of_prior(design: Design) -> Iterator[MeasureSpec]:
    for condition in design.conditions:
        for test_set in design.test_sets:
            where: _Where = {"kind": "prior_corrected", "condition": condition, "test_set": test_set}
            yield _mean(design, "prior_corrected_accuracy", where, **_SHARE)
        for group in design.groups:
            where = {"kind": "prior_corrected_pair", "condition": condition, "gender": group}
            yield _mean(design, "prior_corrected_bias_score", where, **_OF_SHARES, neutral=0.0)
            yield _mean(design, "accuracy_without_list", {**where, "kind": "no_list"}, **_SHARE)


def _of_changes(design: Design, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
    tested = _levels(rows, "mcnemar", "condition", "against", "test_set")
    for condition, against in design.changes:
        both: _Where = {"condition": condition, "against": against}
        for test_set in design.test_sets:
            where: _Where = {"kind": "change", **both, "test_set": test_set}
            yield _mean(design, "accuracy_change", where, **_OF_SHARES, neutral=0.0, contrast=True)
            yield _mean(design, "improved", where, **_SHARE, is_subgroup=True)
            yield _mean(design, "worsened", where, **_SHARE, is_subgroup=True)
            if (condition, against, test_set) in tested:
                of_p = {**where, "kind": "mcnemar"}
                yield MeasureSpec("mcnemar_p", "mcnemar_p", of_p, unit="p", family="mcnemar_p", is_subgroup=True)
        for group in design.groups:
            where = {"kind": "bias_change", **both, "gender": group}
            yield _mean(design, "bias_change", where, **_OF_BIAS_SCORES, neutral=0.0, contrast=True)


def _of_occupations(design: Design, rows: Sequence[Row], kind: str, quantity: str) -> Iterator[MeasureSpec]:
    """Each occupation's figure, and the correlation of the figures with the occupations' scores.

    Only within one stereotype: the female and male questions are not asked about the same
    occupations, so a correlation over both would reflect the difference between two questions.
    """
    levels = _levels(rows, kind, "condition", "gender", "occupation")
    for condition in design.conditions:
        for group in design.groups:
            if not any(level[:2] == (condition, group) for level in levels):
                continue
            where: _Where = {"kind": kind, "condition": condition, "gender": group}
            quantity_kind = _SHARE if kind == "verdict" else _OF_SHARES
            if kind == "verdict":  # occupations differ: most texts call some of them so, and none call others so
                overall = _mean(design, quantity, where, **quantity_kind, neutral=0.0)
                yield replace(overall, clusters=("instance", "occupation"), population=_OVER_NEW_OCCUPATIONS)
            for occupation in design.occupations(group):
                if (condition, group, occupation) in levels:
                    of_one = {**where, "occupation": occupation}
                    yield _mean(design, quantity, of_one, **quantity_kind, neutral=0.0, is_subgroup=True)
            if design.words.score_name:
                name = f"{quantity}_correlation"
                yield MeasureSpec(
                    name,
                    quantity,
                    where,
                    estimator="correlation",
                    clusters=("occupation",),
                    covariate="score",
                    **{**quantity_kind, "unit": "correlation"},
                    neutral=0.0,
                    family=name,
                    population="new occupations of this kind",
                )


def _levels(rows: Sequence[Row], kind: str, *factors: str) -> set[tuple[Factor, ...]]:
    """The levels of these factors that occur in rows of this kind."""
    return {tuple(row.factors.get(name) for name in factors) for row in rows if row.factors["kind"] == kind}


def _mean(design: Design, measure: str, where: _Where, **rest: Any) -> MeasureSpec:
    """The mean of a quantity over lists, and over the occupations in them if there are any.

    Rows of kind ``occupation`` concern one fixed occupation; a list has several, which it shares with other lists.
    """
    alone = "occupation" in where or where["kind"] in ("occupation", "verdict", "no_list")
    without = where.get("test_set") in {group.test_sets[False] for group in design.words.groups}
    rest["membership"] = None if alone or without else "occupation"
    population = "new lists of these words" if alone or without else _OVER_NEW_OCCUPATIONS
    family = f"{measure}, one level" if rest.get("is_subgroup") else measure
    return MeasureSpec(measure, measure, where, clusters=("instance",), family=family, population=population, **rest)
