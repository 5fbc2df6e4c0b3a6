"""The results of a gate: each figure against the baseline, each limit, and whether the run passes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field

from audit.results.comparisons import OpenBecause
from audit.results.figures import OfItems, Reported

GateVerdict = Literal["regressed", "improved", "unchanged", "inconclusive", "not comparable"]
LimitVerdict = Literal["met", "broken", "insufficient evidence"]
#: Verdicts that leave the question open.
OPEN_VERDICTS = ("inconclusive", "not comparable", "insufficient evidence")
#: Reasons that a model could exploit: missing answers, items that no longer have a value, and answers that are known
#: less closely than before.
HIDDEN = ("missing answers", "unpaired items", "wider bounds")
#: Why a figure cannot be compared with the baseline.
Obstacle = Literal["not in the baseline", "not in the run", "measured differently", "nothing in common"]
#: Which open questions fail a gate: none, those that missing answers leave open, or all.
OpenFails = Literal["none", "missing", "all"]


class _Checked(OfItems):
    """A figure that is checked on every night.

    Attributes
    ----------
    low, high : float or None
        The interval that decides, whatever the ``n_missing`` answers would have been.
    look : int
        The number of this look at new answers. A repeated run keeps its number.
    n_items, n_missing : int
        Questions answered, and those with a missing answer.
    """

    model: str
    low: float | None = None
    high: float | None = None
    look: int = 1
    population: str = ""
    open_because: OpenBecause | None = None


class GatedFigure(_Checked):
    """One figure against the baseline; ``low`` to ``high`` is the change, current minus baseline.

    Attributes
    ----------
    verdict
        "Regressed" is an alarm that any night may raise, so it holds over all nights since the baseline was set; the
        others are of this run alone, at its confidence.
    tonight
        What this run alone would say; None if it cannot be compared.
    on_shared : bool
        Whether it is about the questions that both runs asked. If not, they share too few, and the figures' intervals
        over new questions decide.
    is_exact : bool
        Whether the same question has the same answer every time, so that the change is known exactly.
    baseline, current, change : float or None
        Over the questions that both runs answered.
    new_low, new_high : float or None
        Interval of the change over new questions of these kinds; None where that is unknown.
    p_regressed : float or None
        Corrected over the suite's figures, and valid on whatever night it is read.
    neutral : float or None
        The value from which harm is measured; None if any change is harm.
    n_unpaired : int
        Questions with a value, by design, in one run alone.
    is_defined : bool
        Whether the run has a value of the figure, or bounds.
    obstacle
        Why it is not comparable; ``differing`` are the parts that are measured differently (then, now).
    """

    verdict: GateVerdict
    tonight: GateVerdict | None = None
    on_shared: bool = False
    is_exact: bool = False
    baseline: float | None = None
    current: float | None = None
    change: float | None = None
    new_low: float | None = None
    new_high: float | None = None
    p_regressed: float | None = None
    margin: float | None = None
    neutral: float | None = None
    n_unpaired: int = 0
    primary: bool = False
    is_defined: bool = True
    obstacle: Obstacle | None = None
    differing: dict[str, tuple[Any, Any]] = Field(default_factory=dict)


class LimitCheck(_Checked):
    """A figure against an absolute limit, by its interval.

    ``limit`` is what is limited: the measure itself, or its ``coverage`` or ``refusals``. ``value`` is over the items
    with a readable answer. Of the missing ``n_without_value`` were answered, but say nothing of the figure. "Broken"
    holds over all nights on which the limit was checked; ``tonight`` is what this run alone says. ``answers``: a hash.
    """

    limit: str
    at_least: float | None
    at_most: float | None
    value: float | None
    verdict: LimitVerdict
    tonight: LimitVerdict | None = None
    n_without_value: int = 0
    answers: str = ""


Check = GatedFigure | LimitCheck


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
        failing = ("regressed", "broken", *(OPEN_VERDICTS if self.open_fails == "all" else ()))
        hidden = HIDDEN if self.open_fails == "missing" else ()
        return [check for check in self.checks if check.verdict in failing or check.open_because in hidden]

    @property
    def exit_code(self) -> int:
        """0 if the run passes, else 3. If all open questions count as failures, having no checks fails too."""
        return 3 if self.failures or (self.open_fails == "all" and not self.checks) else 0

    def counts(self) -> dict[str, int]:
        """How often each verdict was given."""
        return dict(Counter(check.verdict for check in self.checks))
