"""The effect of one change of a model on the answers."""

from __future__ import annotations

from audit.results.comparisons import Comparison
from audit.results.figures import Reported


class Rung(Reported):
    """One end of a step: a model, on one suite."""

    model: str
    suite: str


class AttributionStep(Reported):
    """The effect of one change of a model on a suite: b minus a, by item.

    Attributes
    ----------
    changes : list of str
        What differs: parts of the model (``adapter``, ``quantisation``…). Empty if the step is only declared.
    engine : list of str
        Fields of the engine that differ as well; the step then includes the engines' noise.
    comparisons : list of Comparison
        Each figure's change with its decision, corrected within this step alone.
    """

    a: Rung
    b: Rung
    changes: list[str]
    engine: list[str] = []
    comparisons: list[Comparison]
