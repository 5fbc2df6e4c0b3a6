"""The models and suites of a run, and the quality of the answers."""

from __future__ import annotations

from typing import Any

from audit.results.figures import Reported
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
