"""Absolute limits on figures, and why a check is left open."""

from __future__ import annotations

from typing import Literal, Protocol

from audit.results.comparisons import OpenBecause
from audit.results.figures import OfItems, Reported
from backends.base import Scalar

LimitVerdict = Literal["met", "broken", "insufficient evidence"]

#: Verdicts that leave the question open.
OPEN_VERDICTS = ("inconclusive", "not comparable", "insufficient evidence")

#: Reasons that a model could exploit: missing answers, items that no longer have a value, and answers that are known
#: less closely than before.
HIDDEN = ("missing answers", "unpaired items", "wider bounds")


class _HasReason(Protocol):
    @property
    def open_because(self) -> OpenBecause | None: ...


class _Check(Protocol):
    @property
    def decisive_verdict(self) -> str: ...
    @property
    def over_nights(self) -> _HasReason | None: ...
    @property
    def open_because(self) -> OpenBecause | None: ...


def decisive_reason(check: _Check) -> OpenBecause | None:
    """Why the verdict behind the exit code is open, missing answers first; None if it is not."""
    if check.decisive_verdict not in OPEN_VERDICTS:
        return None
    over_nights = None if check.over_nights is None else check.over_nights.open_because
    return over_nights if over_nights in HIDDEN else check.open_because or over_nights


class LimitOverNights(Reported):
    """A limit's decision over all nights on which it was checked (`audit.analysis.gate.limit_nights`).

    ``n_items``: those behind the decision, of earlier nights too where these decided it; None in older results.
    ``open_because`` is "kinds not asked" where what was asked breaks the limit, but every night asks others, and kinds
    that are not among them may keep it.
    """

    look: int
    confidence: float
    verdict: LimitVerdict
    low: float | None = None
    high: float | None = None
    n_items: int | None = None
    open_because: OpenBecause | None = None


class LimitCheck(OfItems, Reported):
    """A figure checked against an absolute limit, by its interval.

    ``limit`` is what is limited: the measure itself, or its ``coverage`` or ``refusals``. ``value`` is over the items
    with a readable answer; the interval holds whatever the ``n_missing`` others would have been. Of these
    ``n_without_value`` were answered, but say nothing of the figure. ``fewest_levels``: as of a `Measure`; None in
    older results. ``is_of_few``: as of a `Measure`. ``unseen_low`` and ``unseen_high`` are the interval where kinds
    not asked may be anything, if ``low`` and ``high`` rest on an assumption about them, or the limit is broken by what
    was asked; else None. ``over_nights`` is
    the decision over all nights on which it was checked; None without a store.
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
    n_items: int = 0
    n_missing: int = 0
    n_without_value: int = 0
    fewest_levels: int | None = None
    is_of_few: bool = False
    unseen_low: float | None = None
    unseen_high: float | None = None
    population: str = ""
    open_because: OpenBecause | None = None
    over_nights: LimitOverNights | None = None

    @property
    def decisive_verdict(self) -> LimitVerdict:
        """The verdict behind the exit code: "broken" must hold over all nights, "met" only for this run."""
        if self.over_nights is None or "broken" not in (self.verdict, self.over_nights.verdict):
            return self.verdict
        return "broken" if self.over_nights.verdict == "broken" else "insufficient evidence"

    @property
    def rests_on_assumption(self) -> bool:
        """Whether it is met, or broken, only if kinds that were not asked differ no more than assumed."""
        low, high = self.unseen_low, self.unseen_high
        if low is None or high is None:
            return False
        if self.verdict == "broken":
            under, over = (
                self.at_least is not None and high < self.at_least,
                self.at_most is not None and low > self.at_most,
            )
            return not (under or over)
        beyond = (self.at_least is not None and low < self.at_least) or (
            self.at_most is not None and high > self.at_most
        )
        return self.verdict == "met" and beyond

    @property
    def decisive_reason(self) -> OpenBecause | None:
        """Why the limit is neither met nor broken, unless more items would help."""
        return decisive_reason(self)
