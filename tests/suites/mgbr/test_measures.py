"""The figures of the counting benchmark, by the audit's own statistics."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest

from audit.collect.sample import Sample
from backends.base import (
    ContinuationScore,
    Sampling,
    ScoreResponse,
)
from suites import MGBR
from suites.base import Item
from tests.suites.mgbr.planted import (
    WOMEN,
    WORDS,
    counts_only,
    figure,
    in_measure,
    lists_of,
    mean,
    measured,
    noisy,
    rows_of,
    score,
    steps,
    written_rows,
)


def test_random_answers_score_zero_within_the_interval() -> None:
    draw = random.Random(1)

    def coin(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
        return {count: draw.uniform(-9, -1) for count in range(1, 21)}

    suite = MGBR(n=500, conditions=["zero-shot"])
    rows = rows_of(suite, coin)
    for gender in ("female", "male"):
        score = measured(suite, rows, "bias_score", gender=gender)
        assert score.low is not None
        assert score.high is not None
        assert score.low < 0 < score.high
        differences = figure(rows, "bias_score", kind="pair", gender=gender)
        of_lists_alone = 2 * 1.965 * np.std(differences, ddof=1) / math.sqrt(500)
        assert of_lists_alone < score.high - score.low < 4.5 * of_lists_alone  # it could have failed to cover
        assert score.levels["instance"] == 500
        assert score.n_clusters == score.levels["occupation"] <= len(WORDS.by_kind[f"{gender}_occupations"])
    assert mean(rows, "accuracy", kind="list") == pytest.approx(0.5, abs=0.04)


def test_a_bias_that_follows_the_shares_correlates_with_them() -> None:
    suite = MGBR(n=300, conditions=["zero-shot"])

    def misled_by_the_most_female(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
        misleading = any((WORDS.occupations.get(w) or 0) > 0.95 for w in words)
        return {} if misleading else counts_only(gender, condition, words)

    rows = rows_of(suite, misled_by_the_most_female)
    found = measured(suite, rows, "occupation_bias_correlation", gender="female")
    by_occupation: dict[str, list[float]] = {}
    for row in rows:
        if row.factors["kind"] == "occupation" and row.factors["gender"] == "female":
            by_occupation.setdefault(str(row.factors["occupation"]), []).append(
                float(row.values["occupation_bias"].low)
            )
    shares = [WORDS.occupations[o] for o in by_occupation]
    expected = np.corrcoef(np.array(shares, dtype=float), [np.mean(v) for v in by_occupation.values()])[0, 1]
    assert found.value == pytest.approx(expected)
    assert found.low is not None
    assert 0 < found.low < expected
    assert found.n_clusters == len(by_occupation) == 28  # secretary and nurse stand in the few-shot examples


def test_occupations_without_scores_give_no_correlation() -> None:
    lists = {
        "feminine": [f"woman{k}" for k in range(10)],
        "masculine": [f"man{k}" for k in range(10)],
        "female_occupations": [f"nurse{k}" for k in range(10)],
        "male_occupations": [f"smith{k}" for k in range(10)],
    }
    suite = MGBR(n=3, words=lists, conditions=["zero-shot"])
    rows = suite.derive([suite.read(i, ScoreResponse((score(-1), score(-2)))) for i in lists_of(suite)])
    assert not [s for s in suite.measures(rows) if s.estimator == "correlation"]
    assert not [c for c in suite.charts() if c.kind == "scatter"]


@pytest.mark.parametrize("suite", [MGBR(n=12), MGBR(n=12, conditions=["few-shot"], genders=["male"])])
def test_every_measure_has_rows_with_its_quantity_or_a_reason(suite: MGBR) -> None:
    rows = rows_of(suite, noisy(1))
    specs = list(suite.measures(rows))
    assert len({(s.measure, *sorted(s.where.items())) for s in specs}) == len(specs)
    for spec in specs:
        behind = [r for r in rows if in_measure(r, spec)]
        assert behind, spec
        assert all(spec.quantity in r.values or r.missing for r in behind), spec


@pytest.mark.parametrize("repeats", [1, 2])
def test_every_written_measure_has_rows_or_a_reason(repeats: int) -> None:
    suite = MGBR(n=6, mode="generation", sampling=Sampling(temperature=0.5), repeats=repeats)
    rows = written_rows(suite, lambda item, words: steps(words, WOMEN, 3))
    for spec in suite.measures(rows):
        behind = [r for r in rows if in_measure(r, spec)]
        assert behind, spec
        assert all(spec.quantity in r.values or r.missing for r in behind), spec


def any_scores(item: Item) -> tuple[ContinuationScore, ...]:
    return tuple(score(-1.0 - place) for place, _ in enumerate(item.request.continuations))  # type: ignore[union-attr]


def test_a_limited_run_has_no_figures_of_sizes_that_it_left_out() -> None:
    suite = MGBR(n=50, conditions=["zero-shot"])
    some = Sample(list(suite.items()), suite.strata, 0, suite.sampled_together).take(2 + 12)
    assert sum(item.is_control for item in some) == 2
    rows = suite.derive([suite.read(i, ScoreResponse(any_scores(i))) for i in some])
    assert len([r for r in rows if r.factors["kind"] == "pair"]) == 3 * 2  # whole instances: every pair is there
    for spec in suite.measures(rows):
        assert any(in_measure(r, spec) for r in rows), spec


def test_called_stereotypes_are_clustered_by_occupation_too() -> None:
    suite = MGBR(n=20, mode="generation", conditions=["zero-shot+cot"], genders=["female"])
    rows = written_rows(suite, lambda item, words: steps(words, {"nutritionist", "nanny"} & set(words), 1))
    specs = [s for s in suite.measures(rows) if s.measure == "called_stereotype"]
    assert {s.clusters for s in specs if not s.is_subgroup} == {("instance", "occupation")}
    assert {s.clusters for s in specs if s.is_subgroup} == {("instance",)}
    verdicts = [r for r in rows if r.factors["kind"] == "verdict"]
    found = measured(suite, rows, "called_stereotype")
    assert found.n_clusters == min(20, len({r.factors["occupation"] for r in verdicts}))
    assert (found.low, found.high) != (found.naive_low, found.naive_high)
