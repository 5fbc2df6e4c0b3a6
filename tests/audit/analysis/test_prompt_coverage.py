"""How many prompts have little coverage: a mean of a condition hides them."""

from __future__ import annotations

from collections.abc import Sequence

from audit.analysis.measures import prompt_coverage
from audit.analysis.table import Table
from audit.results import PromptCoverage
from suites.base import Factor, IdentifiedInterval, MeasureSpec, Row


def spec(**where: Factor) -> MeasureSpec:
    return MeasureSpec("gap", "gap", where=where, kind="difference", probability_mass="coverage")


def rows(bias: str, coverages: Sequence[float | IdentifiedInterval]) -> list[Row]:
    exact = [c if isinstance(c, IdentifiedInterval) else IdentifiedInterval.exact(c) for c in coverages]
    gap = IdentifiedInterval.exact(0.2)
    return [Row(f"{bias}-{i}", {"bias": bias}, {"gap": gap, "coverage": c}) for i, c in enumerate(exact)]


def coverage_of(rows: Sequence[Row], *specs: MeasureSpec) -> list[PromptCoverage]:
    return prompt_coverage(Table.of(rows), specs, {row.item_id for row in rows if "/" not in row.item_id})


def test_nine_of_ten_prompts_below_are_counted_under_a_fair_mean() -> None:
    (whole,) = coverage_of(rows("explicit", [0.01] * 9 + [0.94]), spec(bias="explicit"))
    assert (whole.n_prompts, whole.below, whole.may_be_below) == (10, 9, 9)
    assert (whole.median, whole.lowest) == (0.01, 0.01)
    assert whole.where == {}


def test_the_condition_where_most_are_below_is_named() -> None:
    answers = [*rows("explicit", [0.05] * 10), *rows("implicit", [0.05, 0.5, 0.5, 0.6] * 3)]
    whole, worst = coverage_of(answers, spec(bias="explicit"), spec(bias="implicit"), spec())
    assert (whole.n_prompts, whole.below) == (22, 13)
    assert (worst.where, worst.n_prompts, worst.below) == ({"bias": "explicit"}, 10, 10)
    few = [*rows("explicit", [0.05] * 9), *rows("implicit", [0.5] * 91)]
    assert len(coverage_of(few, spec(bias="explicit"), spec(bias="implicit"), spec())) == 1, "a condition of 9 prompts"


def test_a_coverage_between_bounds_may_be_below() -> None:
    (whole,) = coverage_of(
        rows("a", [IdentifiedInterval(None, 0.02, 0.3), IdentifiedInterval(None, 0.01, 0.04)]), spec()
    )
    assert (whole.below, whole.may_be_below, whole.lowest) == (1, 2, 0.01)


def test_rows_derived_from_several_prompts_are_no_prompts() -> None:
    derived = Row("a-0/effect", {"bias": "a"}, {"coverage": IdentifiedInterval.exact(0.01)})
    (whole,) = coverage_of([*rows("a", [0.5, 0.6]), derived], spec())
    assert (whole.n_prompts, whole.below) == (2, 0)


def test_a_prompt_without_an_answer_is_not_coverage_of() -> None:
    lost = Row("a-9", {"bias": "a"}, {}, "refusal")
    (whole,) = coverage_of([*rows("a", [0.5, 0.6]), lost], spec())
    assert whole.n_prompts == 2
