"""What a gate found, as values: each figure against the baseline, each limit, and whether the run passes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from audit.results import OfFigure, Reported, Scalar

GateVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable"]
LimitVerdict = Literal["met", "broken", "insufficient evidence"]
#: Why a figure cannot be compared with the baseline.
Obstacle = Literal["not in the baseline", "not in the run", "measured differently", "nothing in common"]

#: Verdicts that leave the question open.
OPEN_VERDICTS = ("inconclusive", "not comparable", "insufficient evidence")


class OverNights(Reported):
    """A figure against the baseline, over all nights since that was set (`audit.analysis.gate.over_nights`).

    Attributes
    ----------
    look : int
        How many different answers were looked at since the baseline was set, these included. A repeated run keeps
        its number.
    confidence : float
        Level of the interval tonight. The intervals of all nights hold together at the run's confidence.
    n_items : int
        Tonight's, and those that the same model answered on earlier nights.
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


class GatedFigure(OfFigure, Reported):
    """One figure against the baseline.

    Attributes
    ----------
    baseline, current : float or None
        Over the ``n_items`` that both runs answered.
    low, high : float or None
        Interval of the change (current minus baseline) at the run's confidence; ``bound_low`` and ``bound_high`` are
        its identification bounds.
    harm_low, harm_high : float or None
        Interval of the harm.
    p_regressed : float or None
        After Holm's correction.
    neutral : float or None
        The value that the harm is measured from; None: any change is harm.
    n_unpaired : int
        Items that only one run answered.
    paired : bool
        Whether the change was taken item by item, or from the two runs' intervals alone.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    obstacle
        Why it is not comparable; ``differing`` are the parts that are measured differently (then, now),
        ``undefined_for`` the runs on whose common items the figure is not defined.
    over_nights : OverNights or None
        The decision over all nights; all else is of this run alone. None where no store keeps the nights.
    """

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    verdict: GateVerdict
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    bound_low: float | None = None
    bound_high: float | None = None
    harm_low: float | None = None
    harm_high: float | None = None
    p_regressed: float | None = None
    margin: float | None = None
    neutral: float | None = None
    n_items: int = 0
    n_unpaired: int = 0
    n_clusters: int = 0
    paired: bool = False
    is_defined: bool = True
    obstacle: Obstacle | None = None
    differing: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    undefined_for: list[Literal["baseline", "run"]] = Field(default_factory=list)
    over_nights: OverNights | None = None

    @property
    def decisive_verdict(self) -> GateVerdict:
        """What the exit code follows.

        "Regressed" is an alarm that any night may raise, so it needs the decision over all nights. "Unchanged" and
        "improved" are said of this run alone, and the next night's replaces them: they hold at the run's confidence.
        """
        if self.over_nights is None:
            return self.verdict
        if self.over_nights.verdict == "regressed":
            return "regressed"
        return "inconclusive" if self.verdict == "regressed" else self.verdict


class LimitCheck(OfFigure, Reported):
    """One figure against an absolute limit, decided on its interval.

    ``limit`` is what is limited: the measure itself, or ``coverage`` or ``refusals`` behind it.
    """

    model: str
    suite: str
    measure: str
    where: dict[str, Scalar]
    limit: str
    at_least: float | None
    at_most: float | None
    value: float | None
    low: float | None
    high: float | None
    verdict: LimitVerdict

    @property
    def decisive_verdict(self) -> LimitVerdict:
        """What the exit code follows: a limit has no sequence, it is checked anew on each run."""
        return self.verdict


Check = GatedFigure | LimitCheck


class GateReport(Reported):
    """What the gate found. ``exit_code`` is 3 where it fails, else 0."""

    run_id: str
    baseline_run_id: str | None
    confidence: float
    inconclusive_fails: bool
    figures: list[GatedFigure]
    limits: list[LimitCheck]

    @property
    def checks(self) -> list[Check]:
        """Everything that was checked."""
        return [*self.figures, *self.limits]

    @property
    def failures(self) -> list[Check]:
        """What makes the gate fail."""
        failing = {"regressed", "broken", *(OPEN_VERDICTS if self.inconclusive_fails else ())}
        return [check for check in self.checks if check.decisive_verdict in failing]

    @property
    def exit_code(self) -> int:
        """0 if the run passes, 3 if not. Where inconclusive checks fail it, so does a gate without checks."""
        return 3 if self.failures or (self.inconclusive_fails and not self.checks) else 0

    def counts(self) -> dict[str, int]:
        """How often each decisive verdict was given."""
        return dict(Counter(check.decisive_verdict for check in self.checks))
