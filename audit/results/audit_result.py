"""The result of a run: its models and suites, the quality of the answers, its figures and comparisons."""

from __future__ import annotations

import json
from typing import Any, Literal

from audit.results.comparisons import AttributionStep, Comparison, Ranking
from audit.results.figures import Measure, Reported, Reproduction, VarianceComponents
from audit.results.gates import LimitCheck
from backends.base import Scalar


class ModelInfo(Reported):
    """An audited model, and the effort of asking it.

    ``failed_for_good``: of the failed, those that would fail again in the same way. ``failures`` counts the failed by
    kind of error, and ``reasons`` has the message of the first of each. ``stopped``: why not everything was asked.
    ``unloaded``: why the model could not be loaded, where it therefore has no answer; empty otherwise.
    ``statements``: the backend's main statements about its numbers; ``limits``: what cannot be known about them.
    """

    name: str
    backend: str
    fingerprint: dict[str, Scalar]
    fingerprint_id: str
    notes: dict[str, str]
    asked: int
    cached: int
    failed: int
    failed_for_good: int = 0
    retried: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    failures: dict[str, int] = {}
    reasons: dict[str, str] = {}
    stopped: str = ""
    unloaded: str = ""
    statements: list[str] = []
    limits: list[str] = []


class IdentityProblem(Reported):
    """A model whose answers may be another model's.

    ``reason``: what was noticed, so that ``quarantined`` answers were set aside; or ``unchecked``: why nothing could be
    checked, which ``is_whole`` if it says all that there is to say.
    """

    model: str
    reason: str = ""
    quarantined: int = 0
    unchecked: str = ""
    is_whole: bool = False


#: Why an item has no answer that was not asked for one; other reasons are kinds of errors, or the suites' own.
NOT_ASKED = "not asked"


class SuiteInfo(Reported):
    """A suite as it was run: the number of items, its signature, its layouts and published figures.

    ``n_items`` were asked, of the ``of_items`` that the suite has; None in results of older versions.
    ``text_tokens``: length in tokens of the suite's named texts, ``{text name: {model: tokens}}``.
    ``draws``: whether some of its texts are sampled, so that they may be others when asked again.
    ``cautions``: how its options affect the figures. ``meanings``: a `suites.presentation.Meaning` by measure.
    ``level_labels``: what reports call the levels of its factors.
    """

    name: str
    title: str
    n_items: int
    of_items: int | None = None
    draws: bool = False
    signature: dict[str, Any]
    tables: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    published: list[dict[str, Any]] = []
    text_tokens: dict[str, dict[str, int]] = {}
    cautions: list[str] = []
    meanings: dict[str, dict[str, Any]] = {}
    level_labels: dict[str, dict[str, str]] = {}


#: Below it a prompt's coverage is little: its shares only say how a small mass is distributed.
LITTLE_COVERAGE = 0.1
_MANY_WEAK = 0.1


class PromptCoverage(Reported):
    """How many of the prompts of one condition have a coverage below `LITTLE_COVERAGE`.

    Attributes
    ----------
    where : dict
        The condition; empty for all of the suite's prompts.
    n_prompts : int
        The answered prompts of which a coverage is known, if only by bounds.
    below, may_be_below : int
        Those whose coverage is below `LITTLE_COVERAGE`, and those of which nothing shows that it is not: the same
        unless the server leaves probabilities between bounds.
    median, lowest : float
        Over the prompts, in [0, 1]; of the lower bound where only bounds are known.
    """

    where: dict[str, Scalar]
    n_prompts: int
    below: int
    may_be_below: int
    median: float
    lowest: float

    @property
    def share_below(self) -> float:
        """The share of the prompts that may be below."""
        return self.may_be_below / self.n_prompts


class DataQuality(Reported):
    """The quality of one model's answers to one suite.

    ``failures`` counts items without an answer by reason, ``failures_by`` by the level of the suite's
    ``failures_factor`` (or its first stratum), to show whether the gaps themselves are biased. ``merged`` and
    ``straddled``: items with such a boundary; ``straddled_in_part``: those with other continuations that are not
    straddled. The former are given the prompt's text and the latter its tokens, so that they compare only roughly.
    ``altered``: items whose prompt lost case, accents or spaces in the tokenizer.
    ``probability_mass``: the lowest mean coverage of a figure that is not of a single level. ``prompt_coverage`` counts
    prompts: those of the whole suite, then, where it is another, the condition of a figure with the largest share
    below `LITTLE_COVERAGE`. Empty without coverage, and in results of older versions.
    """

    model: str
    suite: str
    n_items: int
    answered: int
    failures: dict[str, int]
    failures_by: dict[str, int]
    censored: int
    merged: int
    straddled: int
    probability_mass: float | None
    straddled_in_part: int = 0
    altered: int = 0
    prompt_coverage: list[PromptCoverage] = []

    @property
    def weakness(self) -> float:
        """The largest share of a condition's prompts with little coverage; of older results only means are known."""
        if self.prompt_coverage:
            return self.prompt_coverage[-1].share_below
        return float(self.probability_mass is not None and self.probability_mass < LITTLE_COVERAGE)

    @property
    def is_weak(self) -> bool:
        """Whether in more than one prompt of ten, of some condition, the expressions have little probability mass."""
        return self.weakness > _MANY_WEAK


class SelfCheck(Reported):
    """What was checked of one hosted model's answers.

    Attributes
    ----------
    asked_again, unanswered, disagreed : int
        Questions with two answers; repeats without an answer; and pairs that no server's noise explains.
    noise : float
        Nats by which each score is widened: how far one is from the server's usual one, on average.
    largest_move : float
        The largest difference of two answers to one question, in nats.
    prompts : int
        Different prompts that got different answers before the first question.
    drawn_questions, draws : int
        Questions after which words were drawn, and how many words: they fit the scores. 0 where the server draws none,
        or where the run asked nothing new.
    contradicted : bool
        Whether a check failed, so that the answers of this run are quarantined.
    """

    model: str
    asked_again: int
    unanswered: int
    disagreed: int
    noise: float
    largest_move: float
    prompts: int = 0
    drawn_questions: int = 0
    draws: int = 0
    contradicted: bool = False


class Example(Reported):
    """An example item behind figures, with its prompt and raw answer.

    ``figures`` are the ids of the measures that use it.
    """

    model: str
    suite: str
    item_id: str
    factors: dict[str, Scalar]
    prompt: Any
    answer: Any
    figures: list[str] = []


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
