"""The effect of an engine, or of one change of a model, on the answers."""

from __future__ import annotations

from audit.results.comparisons import Comparison
from audit.results.figures import Reported
from backends.base import Scalar


class EngineDrift(Reported):
    """The differences between two engines with the same weights, b minus a, by prompt.

    Attributes
    ----------
    n_prompts, n_logprobs : int
        Prompts and continuations that both engines scored exactly.
    n_unpaired : int
        Continuations left out because one engine has no score, or only bounds.
    logprob_mean, logprob_mean_abs, logprob_max_abs : float or None
        Difference of a continuation's log-probability, nats.
    quantities : mapping
        For each numeric quantity of the rows (P̃ of each group…): ``n``, ``mean``, ``mean_abs``
        and ``max_abs`` of its difference over items that are exact on both.
    """

    suite: str
    a: str
    b: str
    n_prompts: int
    n_logprobs: int
    n_unpaired: int
    logprob_mean: float | None
    logprob_mean_abs: float | None
    logprob_max_abs: float | None
    quantities: dict[str, dict[str, float]]


class Rung(Reported):
    """One end of a step: a model, as one suite asks it."""

    model: str
    suite: str

    def title_beside(self, other: Rung) -> str:
        """Its name next to another rung's: the model, with the suite if that is what differs."""
        return self.model if self.suite == other.suite else f"{self.model} ({self.suite})"


class ItemChange(Reported):
    """The change of one item's quantities in a step, b minus a. No entry if not exact on both."""

    item: str
    factors: dict[str, Scalar]
    quantities: dict[str, float]


class AttributionStep(Reported):
    """The effect of one change of a model, or of how it is asked: b minus a, by item.

    Attributes
    ----------
    changes : list of str
        What differs: parts of the model (``adapter``, ``quantisation``…) or keys of the suite's signature
        (``prompt_format``). Empty if the step is only declared.
    engine : list of str
        Fields of the engine that differ as well; the step then includes the engines' noise.
    comparisons : list of Comparison
        Each figure's change with its decision, corrected within this step alone.
    items : list of ItemChange
        Single items: all, or an even sample if there are many.
    """

    a: Rung
    b: Rung
    changes: list[str]
    engine: list[str] = []
    comparisons: list[Comparison]
    items: list[ItemChange] = []
