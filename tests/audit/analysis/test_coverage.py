"""The coverage table in short: the truth is held in 93 % or more, and missed to one side in 4 % or less."""

from __future__ import annotations

import numpy as np
import pytest

from tests.audit.analysis.coverage import Coverage, outlier_templates, simulated

REPS = 400
#: Three standard errors of a share near 4 %, of so many samples.
LUCK = 3 * float(np.sqrt(0.04 * 0.96 / REPS))


@pytest.mark.simulation
def test_intervals_hold_the_truth_in_the_coverage_table() -> None:
    rows = [row for row in simulated(REPS) if row.process != "outlier templates"]
    assert len(rows) == 51
    wrong = [row for row in rows if row.holds < 0.93 - LUCK or max(row.above, row.below) > 0.04 + LUCK]
    assert wrong == []


@pytest.mark.simulation
def test_outliers_that_no_sampled_template_shows_are_missed() -> None:
    few: Coverage = outlier_templates((40, 3), REPS)
    many = outlier_templates((40, 25), REPS)
    assert many.holds > 0.93 - LUCK
    # None of three templates is one of ten in 73 %: no interval made from them can tell, so nothing is decided.
    assert few.holds < many.holds
