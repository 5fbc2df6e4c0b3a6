"""`runs`: each question is asked afresh in each, and the shift of a run enters every interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from audit import Audit
from backends import FakeBackend
from suites import OccuGender

SUITE = OccuGender(("implicit",))
SHIFTS = (0.0, 0.1, -0.08)


class Shifting(FakeBackend):
    """All answers of a run lie higher or lower: asked a thousand questions, it has moved."""

    def __init__(self) -> None:
        super().__init__("m", score=self.of)
        self.seen: dict[str, int] = {}

    def of(self, prompt: str, continuation: str) -> float:
        key = f"{prompt}{continuation}"
        run = self.seen.get(key, 0)
        self.seen[key] = run + 1
        female = 0.4 + SHIFTS[run % 3]
        return 0.1 * (female if continuation.strip().lower() == "she" else 1 - female)


def test_each_run_is_asked_afresh_and_its_shift_widens_the_interval(tmp_path: Path) -> None:
    model = Shifting()
    audit = Audit({"m": model}, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", runs=3, limit=100)
    result = audit.run_sync()
    assert result.runs == 3
    assert sum(model.asked.values()) == 300
    (female,) = [m for m in result.measures if m.measure == "p_female" and m.where.get("dominated_by") == "female"
                 and not m.is_subgroup and m.where.get("bias") == "implicit"][:1]  # fmt: skip
    assert female.n_items == 50
    assert female.levels["run"] == 3
    one = Audit({"m": Shifting()}, [SUITE], db=tmp_path / "b.db", out=tmp_path / "out", limit=100).run_sync()
    (alone,) = [m for m in one.measures if m.id == female.id]
    widths = [m.high - m.low for m in (female, alone)]
    assert widths[0] > 5 * widths[1]
    assert widths[0] > 2 * np.std(SHIFTS, ddof=1) / 3**0.5 * 0.5
