"""Absolute limits on figures, and which open checks a model could exploit."""

from __future__ import annotations

from typing import Literal

from audit.results.comparisons import OpenBecause
from audit.results.figures import OfItems, Reported
from backends.base import Scalar

LimitVerdict = Literal["met", "broken", "insufficient evidence"]

#: Verdicts that leave the question open.
OPEN_VERDICTS = ("inconclusive", "not comparable", "insufficient evidence")

#: Reasons that a model could exploit: missing answers, items that no longer have a value, and answers that are known
#: less closely than before.
HIDDEN = ("missing answers", "unpaired items", "wider bounds")


class LimitCheck(OfItems, Reported):
    """A figure against an absolute limit, by its interval.

    ``limit`` is what is limited: the measure itself, or its ``coverage`` or ``refusals``. ``value`` is over the items
    with a readable answer; the interval holds whatever the ``n_missing`` others would have been. Of these
    ``n_without_value`` were answered, but say nothing of the figure. "Broken" holds over all nights on which the limit
    was checked, of which this is the ``look``-th with new answers; ``tonight`` is what this run alone says.
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
    tonight: LimitVerdict | None = None
    look: int = 1
    n_items: int = 0
    n_missing: int = 0
    n_without_value: int = 0
    population: str = ""
    open_because: OpenBecause | None = None

    @property
    def decisive_verdict(self) -> LimitVerdict:
        """The verdict behind the exit code."""
        return self.verdict

    @property
    def decisive_reason(self) -> OpenBecause | None:
        """Why that verdict is open, unless more items would help; None if it is not."""
        return self.open_because if self.verdict in OPEN_VERDICTS else None
