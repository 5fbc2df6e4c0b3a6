"""The figures of the counting benchmark, by the audit's own statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from audit.collect.sample import Sample
from backends.base import (
    ContinuationScore,
    ScoreResponse,
)
from suites import MGBR
from suites.base import Item
from tests.suites.mgbr.planted import (
    WORDS,
    counts_only,
    in_measure,
    measured,
    rows_of,
    score,
)


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
