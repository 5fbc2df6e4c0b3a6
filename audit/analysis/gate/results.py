"""The results of a gate: each figure against the baseline, each limit, and whether the run passes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from audit.results import (
    HIDDEN,
    OPEN_VERDICTS,
    Decided,
    LimitCheck,
    OpenBecause,
    Reported,
    decisive_reason,
)

GateVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable"]
#: Why a figure cannot be compared with the baseline.
Obstacle = Literal["not in the baseline", "not in the run", "measured differently", "nothing in common"]


class OverNights(Reported):
    """A figure against the baseline, over all nights since it was set (`audit.analysis.gate.over_nights`).

    Attributes
    ----------
    look : int
        The number of this look at new answers since the baseline was set. A repeated run keeps its number.
    confidence : float
        Level of the interval that decided: tonight's share of the error, corrected for the suite's figures.
    low, high : float or None
        The interval of the change at that level.
    n_items : int
        Tonight's items, and those that the same model answered on earlier nights unless tonight's alone decided.
    open_because : str or None
        As in `GatedFigure`, for the decision over all nights.
    """

    look: int
    confidence: float
    verdict: GateVerdict
    change: float | None = None
    low: float | None = None
    high: float | None = None
    harm_low: float | None = None
    harm_high: float | None = None
    p_regressed: float | None = None
    n_items: int = 0
    open_because: OpenBecause | None = None


class GatedFigure(Decided):
    """One figure against the baseline.

    Attributes
    ----------
    baseline, current, change : float or None
        Over the items that both runs answered (the complete cases). ``low`` and ``high`` are the interval of the change
        (current minus baseline).
    harm_low, harm_high : float or None
        Interval of the harm; ``decided_low`` and ``decided_high`` are intervals of it too.
    change_decided_low, change_decided_high : float or None
        Interval of the change at the level of ``decided_low`` and ``decided_high``.
    p_regressed : float or None
        Corrected over the suite's figures.
    unchanged_within : float or None
        The smallest margin within which the figure would be called unchanged, at the same ``largest_change``.
    neutral : float or None
        The value from which harm is measured; None if any change is harm.
    paired : bool
        Whether the change was computed item by item, or from the two runs' intervals alone.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    obstacle
        Why it is not comparable; ``differing`` are the parts that are measured differently (then, now),
        ``undefined_for`` the runs ("baseline", "run") whose figure is undefined on the common items.
    over_nights : OverNights or None
        The decision over all nights; all other fields are about this run alone. None without a store.
    """

    model: str
    verdict: GateVerdict
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    harm_low: float | None = None
    harm_high: float | None = None
    p_regressed: float | None = None
    margin: float | None = None
    neutral: float | None = None
    paired: bool = False
    is_defined: bool = True
    obstacle: Obstacle | None = None
    differing: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    unchanged_within: float | None = None
    change_decided_low: float | None = None
    change_decided_high: float | None = None
    over_nights: OverNights | None = None

    @property
    def decisive_verdict(self) -> GateVerdict:
        """The verdict behind the exit code.

        "Regressed" is an alarm that any night may raise, so it must hold over all nights. "Unchanged" and "improved"
        are only about this run and replaced on the next night: they hold at the run's confidence.
        """
        if self.over_nights is None:
            return self.verdict
        if self.over_nights.verdict == "regressed":
            return "regressed"
        return "inconclusive" if self.verdict == "regressed" else self.verdict

    @property
    def decisive_reason(self) -> OpenBecause | None:
        """Why the verdict behind the exit code is open: missing answers first, of this run or of all nights."""
        return decisive_reason(self)


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
        if check.decisive_verdict in OPEN_VERDICTS:
            hidden = self.open_fails == "missing" and check.decisive_reason in HIDDEN
            return hidden or self.open_fails == "all"
        return check.decisive_verdict in ("regressed", "broken")

    @property
    def exit_code(self) -> int:
        """0 if the run passes, else 3. If all open questions count as failures, having no checks fails too."""
        return 3 if self.failures or (self.open_fails == "all" and not self.checks) else 0

    def counts(self) -> dict[str, int]:
        """How often each decisive verdict was given."""
        return dict(Counter(check.decisive_verdict for check in self.checks))
