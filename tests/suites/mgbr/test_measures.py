"""The figures of the counting benchmark, by the audit's own statistics."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from suites import MGBR
from tests.suites.mgbr.planted import (
    WORDS,
    counts_only,
    measured,
    rows_of,
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
