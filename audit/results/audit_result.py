"""The whole outcome of one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from audit.results.answers import DataQuality, Example, ModelInfo, SelfCheck, SuiteInfo
from audit.results.comparisons import Comparison, Ranking
from audit.results.figures import Reported
from audit.results.limits import LimitCheck
from audit.results.measures import Measure, Reproduction, VarianceComponents
from audit.results.older import RENAMED_MEASURES, upgraded
from audit.results.steps import AttributionStep, EngineDrift


class UntilDecided(Reported):
    """How a run ended that asks until its question is decided.

    Attributes
    ----------
    question
        What was to be decided: against a baseline, the limits, or how the models compare.
    decided : bool
        False: everything was asked, or the run was stopped, and the question is open; or no further item can close it.
    alike : bool
        What was asked is alike, and all templates and other clusters of the suite are among it.
    look, looks : int
        At which look the run ended, of how many planned.
    items, of_items : int
        Items asked of each model, of how many.
    confidence : float
        Level at which the run's statements hold together, wherever it ends. The result's own ``confidence``, that of
        its intervals, is higher: one look's share of the error.
    """

    question: Literal["baseline", "limits", "comparison"]
    decided: bool
    look: int
    looks: int
    items: int
    of_items: int
    confidence: float
    alike: bool = False


class AuditResult(Reported):
    """The whole outcome of one run."""

    run_id: str
    title: str
    started: str
    finished: str
    complete: bool
    interrupted: bool
    seed: int
    limit: int | None
    confidence: float
    versions: dict[str, str]
    models: list[ModelInfo]
    suites: list[SuiteInfo]
    measures: list[Measure]
    comparisons: list[Comparison]
    data_quality: list[DataQuality]
    examples: list[Example] = []
    problems: list[str] = []
    rankings: list[Ranking] = []
    drift: list[EngineDrift] = []
    reproductions: list[Reproduction] = []
    self_checks: list[SelfCheck] = []
    ladder: list[AttributionStep] = []
    components: list[VarianceComponents] = []
    until: UntilDecided | None = None
    limits: list[LimitCheck] = []

    def __repr__(self) -> str:
        """Short: thousands of figures take a second to write out, and asyncio asks for it of every task's result."""
        models, suites = ", ".join(model.name for model in self.models), ", ".join(info.name for info in self.suites)
        state = "interrupted" if self.interrupted else "complete" if self.complete else "incomplete"
        return f"<{type(self).__name__} {self.run_id}: {models} on {suites}; {len(self.measures)} figures, {state}>"

    __str__ = __repr__

    @model_validator(mode="before")
    @classmethod
    def _from_older(cls, data: Any) -> Any:
        return upgraded(data) if isinstance(data, dict) else data


def renamed_quantities(result: AuditResult) -> dict[str, Mapping[str, str]]:
    """By the names of a result's suites: today's names of quantities that its stored rows name otherwise."""
    return {info.name: RENAMED_MEASURES.get(info.signature.get("suite", ""), {}) for info in result.suites}
