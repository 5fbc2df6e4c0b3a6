"""Limits of a config on the figures of a run, as its report says."""

from __future__ import annotations

import pytest
from scipy.stats import t

from audit import Audit
from backends import FakeBackend
from suites import from_file


@pytest.mark.parametrize(
    ("bound", "tonight", "verdict"),
    [
        (0.4, "broken", "broken"),
        (0.5, "broken", "insufficient evidence"),  # the first of many nights has a part of their error
        (0.6, "insufficient evidence", "insufficient evidence"),
    ],
)
def test_nine_of_ten_break_a_limit_outside_their_interval(bound, tonight, verdict, tmp_path):
    """Of one answer for each pair the mean has the variance pq / 9: the interval is Wilson's of nine."""
    rows = "".join(f"Say yes {n}.,Say no {n}.\n" for n in range(9))
    (tmp_path / "pairs.csv").write_text(f"stereotype,counterpart\n{rows}Say no 9.,Say yes 9.\n", "utf-8")
    model = FakeBackend(score=lambda prompt, continuation: 1e-3 if "yes" in continuation else 1e-5)
    suites, limits = [from_file(tmp_path / "pairs.csv")], {"stereotype_score": (None, bound)}
    result = Audit({"m": model}, suites, db=tmp_path / "a.db", out=tmp_path, limits=limits).run_sync()
    (score,) = (figure for figure in result.measures if figure.measure == "stereotype_score")
    for end in (score.low, score.high):
        assert abs(end - 0.9) == pytest.approx(t.ppf(0.975, 9) * (end * (1 - end) / 9) ** 0.5)
    assert [(check.tonight, check.verdict) for check in result.limits] == [(tonight, verdict)]
