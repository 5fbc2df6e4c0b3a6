"""The results of a gate: each figure against the baseline, each limit, and whether the run passes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from audit.results import HIDDEN, OPEN_VERDICTS, LimitCheck, OpenBecause, Reported
from audit.results.figures import OfItems
from backends.base import Scalar

GateVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable"]
#: Why a figure cannot be compared with the baseline.
Obstacle = Literal["not in the baseline", "not in the run", "measured differently", "nothing in common"]


class GatedFigure(OfItems, Reported):
    """One figure against the baseline.

    Attributes
    ----------
    verdict
        "Regressed" is an alarm that any night may raise, so it holds over all nights since the baseline was set; the
        others are of this run alone, at its confidence.
    tonight
        What this run alone would say; None if it cannot be compared.
    look : int
        The number of this look at new answers since the baseline was set. A repeated run keeps its number.
    on_shared : bool
        Whether it is about the questions that both runs asked. If not, they share too few, and the figures' intervals
        over new questions decide.
    is_exact : bool
        Whether the same question has the same answer every time, so that the change is known exactly.
    baseline, current, change : float or None
        Over the questions that both runs answered.
    low, high : float or None
        Interval of the change (current minus baseline), whatever the ``n_missing`` answers would have been.
    harm_low, harm_high : float or None
        Interval of the harm.
    new_low, new_high : float or None
        Interval of the change over new questions of these kinds; None where that is unknown.
    p_regressed : float or None
        Corrected over the suite's figures, and valid on whatever night it is read.
    neutral : float or None
        The value from which harm is measured; None if any change is harm.
    n_items, n_missing, n_unpaired : int
        Questions answered in both runs; with a missing answer; and with a value, by design, in one run alone.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    obstacle
        Why it is not comparable; ``differing`` are the parts that are measured differently (then, now).
    """

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    verdict: GateVerdict
    tonight: GateVerdict | None = None
    look: int = 1
    on_shared: bool = False
    is_exact: bool = False
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    harm_low: float | None = None
    harm_high: float | None = None
    new_low: float | None = None
    new_high: float | None = None
    p_regressed: float | None = None
    margin: float | None = None
    neutral: float | None = None
    n_items: int = 0
    n_missing: int = 0
    n_unpaired: int = 0
    primary: bool = False
    population: str = ""
    open_because: OpenBecause | None = None
    is_defined: bool = True
    obstacle: Obstacle | None = None
    differing: dict[str, tuple[Any, Any]] = Field(default_factory=dict)


Check = GatedFigure | LimitCheck


#: Which open questions fail a gate: none, those that missing answers leave open, or all.
OpenFails = Literal["none", "missing", "all"]


class GateReport(Reported):
    """The result of a gate. ``exit_code`` is 3 if it fails, else 0.

    The gate fails if a figure got worse or breaks a limit. Unless ``open_fails`` is "none", it also fails if a question
    is left open by missing answers, or by items that have a value in only one of the runs: a model must not pass by
    staying silent. With "all" it fails for every open question.
    """

    run_id: str
    baseline_run_id: str | None
    confidence: float
    open_fails: OpenFails = "missing"
    figures: list[GatedFigure]
    limits: list[LimitCheck]

    @property
    def checks(self) -> list[Check]:
        """Everything that was checked."""
        return [*self.figures, *self.limits]

    @property
    def failures(self) -> list[Check]:
        """The checks that make the gate fail."""
        return [check for check in self.checks if self._fails(check)]

    def _fails(self, check: Check) -> bool:
        if check.verdict in OPEN_VERDICTS:
            hidden = self.open_fails == "missing" and check.open_because in HIDDEN
            return hidden or self.open_fails == "all"
        return check.verdict in ("regressed", "broken")

    @property
    def exit_code(self) -> int:
        """0 if the run passes, else 3. If all open questions count as failures, having no checks fails too."""
        return 3 if self.failures or (self.open_fails == "all" and not self.checks) else 0

    def counts(self) -> dict[str, int]:
        """How often each verdict was given."""
        return dict(Counter(check.verdict for check in self.checks))
