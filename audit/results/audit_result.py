"""The complete result of a run."""

from __future__ import annotations

import json
from typing import Any, Literal

from audit.results.answers import DataQuality, Example, IdentityProblem, ModelInfo, SelfCheck, SuiteInfo
from audit.results.comparisons import Comparison, LimitCheck, Ranking
from audit.results.figures import Reported
from audit.results.measures import Measure, Reproduction, VarianceComponents
from audit.results.steps import AttributionStep


class UntilDecided(Reported):
    """How a run with ``until`` ended.

    Attributes
    ----------
    question
        What was to be decided: the comparison with a baseline, the limits, the comparison of the models, or whether
        every primary mean is known ``within`` so much.
    decided : bool
        False if the question is still open: everything was asked, the run was stopped, or no further item can close it.
    look, looks : int
        The interim look at which the run ended, and the number planned.
    items, of_items : int
        Items asked of each model, and items in total.
    confidence : float
        Level at which the run's statements hold jointly, wherever it stops. The result's own ``confidence``, that of
        its intervals, is higher: each look has a share of the error, unless it is their width that is in question.
    """

    question: Literal["baseline", "limits", "comparison", "precision"]
    decided: bool
    look: int
    looks: int
    items: int
    of_items: int
    confidence: float
    within: float | None = None


class AuditSource(Reported):
    """Where an audit comes from, as it was given.

    Attributes
    ----------
    config : str or None
        The path of its config; None for an audit made in Python or on the command line.
    db : str
        The path of its store.
    out : str
        The folder of its report.
    changed : mapping
        The config's options that the run replaced (`audit run --limit 200`); without a config, all that the command
        line gave (``suite``, ``model``…); empty for an audit made in Python.
    """

    config: str | None
    db: str
    out: str = "audit-out"
    changed: dict[str, Any] = {}


class AuditResult(Reported):
    """The complete result of a run.

    ``unanswered`` counts the questions without an answer. ``refused_rules``: margins and limits that name no figure.
    ``scorers``: the suites' own models, and what asking them took. ``runs``: how often each question was asked afresh.
    """

    run_id: str
    title: str
    started: str
    finished: str
    complete: bool
    interrupted: bool
    seed: int
    limit: int | None
    runs: int = 1
    confidence: float
    versions: dict[str, str]
    models: list[ModelInfo]
    suites: list[SuiteInfo]
    measures: list[Measure]
    comparisons: list[Comparison]
    data_quality: list[DataQuality]
    examples: list[Example] = []
    unanswered: int = 0
    scorers: list[ModelInfo] = []
    identity: list[IdentityProblem] = []
    refused_rules: list[str] = []
    rankings: list[Ranking] = []
    reproductions: list[Reproduction] = []
    self_checks: list[SelfCheck] = []
    ladder: list[AttributionStep] = []
    components: list[VarianceComponents] = []
    until: UntilDecided | None = None
    limits: list[LimitCheck] = []
    shard: tuple[int, int] | None = None
    source: AuditSource | None = None

    @classmethod
    def from_report(cls, report: bytes) -> AuditResult:
        """A result from a report.json, without the sentences that the report adds."""
        data = json.loads(report)
        if isinstance(data, dict):
            data.pop("problems", None)
            for comparison in data.get("comparisons", ()):
                if isinstance(comparison, dict):
                    comparison.pop("words", None)
        return cls.model_validate(data)

    @property
    def asked_everything(self) -> bool:
        """Whether every question of every suite was asked."""
        return all(info.n_items == info.of_items for info in self.suites)

    @property
    def has_answers(self) -> bool:
        """Whether any question has a readable answer."""
        return not self.data_quality or any(entry.answered > 0 for entry in self.data_quality)

    @property
    def is_unloaded(self) -> bool:
        """Whether none of its models could be loaded: there is nothing to report."""
        return bool(self.models) and all(model.unloaded for model in self.models)

    @property
    def asked_once(self) -> list[str]:
        """Models of servers, whose numbers may move from run to run, of which there is one run alone."""
        return [] if self.runs > 1 else [check.model for check in self.self_checks]

    @property
    def contradicted(self) -> list[str]:
        """Models whose answers are quarantined, since another model answers or their servers contradict themselves."""
        return [check.model for check in self.self_checks if check.contradicted]

    def __repr__(self) -> str:
        """Kept short: writing out thousands of figures takes a second, and asyncio formats every task's result."""
        models, suites = ", ".join(model.name for model in self.models), ", ".join(info.name for info in self.suites)
        state = "interrupted" if self.interrupted else "complete" if self.complete else "incomplete"
        found = f"{len(self.measures)} figures" if self.shard is None else "part {} of {}".format(*self.shard)
        return f"<{type(self).__name__} {self.run_id}: {models} on {suites}; {found}, {state}>"

    __str__ = __repr__
