"""The coverage table in short: the truth is held in 93 % or more, and missed to one side in 4 % or less."""

from __future__ import annotations

import numpy as np
import pytest

from tests.audit.analysis.coverage import simulated, skewed_log_odds

REPS = 400
#: Three standard errors of a share near 4 %, of so many samples.
LUCK = 3 * float(np.sqrt(0.04 * 0.96 / REPS))


@pytest.mark.simulation
def test_intervals_hold_the_truth_in_the_coverage_table() -> None:
    rows = list(simulated(REPS))
    assert len(rows) == 69
    wrong = [row for row in rows if row.holds < 0.93 - LUCK or max(row.above, row.below) > 0.04 + LUCK]
    assert wrong == []


def test_skewed_means_near_0_rarely_miss_to_one_side() -> None:
    found = skewed_log_odds(-5, (20, 25), 2000)
    assert max(found.above, found.below) <= 0.04
