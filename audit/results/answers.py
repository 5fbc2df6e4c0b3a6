"""Who was asked what, and how sound the answers are."""

from __future__ import annotations

from typing import Any

from audit.results.figures import Reported, Scalar


class ModelInfo(Reported):
    """A model as it was audited, and what asking it took.

    ``statements``: what its backend says first of its numbers; ``limits``: what cannot be known of them.
    """

    name: str
    backend: str
    fingerprint: dict[str, Scalar]
    fingerprint_id: str
    notes: dict[str, str]
    asked: int
    cached: int
    failed: int
    retried: int
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cost: float | None = None
    statements: list[str] = []
    limits: list[str] = []


class SuiteInfo(Reported):
    """A suite as it was run: how many items, its signature, its layouts and published figures.

    ``text_tokens``: length in tokens of the suite's named texts, ``{text name: {model: tokens}}``.
    ``cautions``: what its options do to the figures. ``meanings``: by measure, a `suites.presentation.Meaning`.
    """

    name: str
    title: str
    n_items: int
    signature: dict[str, Any]
    tables: list[dict[str, Any]] = []
    charts: list[dict[str, Any]] = []
    published: list[dict[str, Any]] = []
    text_tokens: dict[str, dict[str, int]] = {}
    cautions: list[str] = []
    meanings: dict[str, dict[str, str]] = {}


class DataQuality(Reported):
    """How sound the answers of one model to one suite are.

    ``failures`` counts items without answer by reason; ``failures_by`` the same by the level of the
    suite's ``failures_factor`` (or its first stratum), to show whether the gaps themselves are biased.
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


class SelfCheck(Reported):
    """What a run's own questions, asked a second time, say about one model's answers.

    Attributes
    ----------
    asked_again, unanswered, disagreed : int
        Questions with two answers; second questions without one; and pairs that the model's noise does not explain.
    rate_low, rate_high : float
        Interval of the rate of disagreeing pairs (Clopper and Pearson), at the run's confidence.
    foreign_at_most : float
        The largest share of all answers that may be another model's, given ``rate_high``.
    noise : float
        Nats by which scores of one model move: the largest move of an agreeing pair, or what the probe found.
    largest_move : float
        Nats by which any two answers to one question are apart.
    """

    model: str
    asked_again: int
    unanswered: int
    disagreed: int
    rate_low: float
    rate_high: float
    foreign_at_most: float
    noise: float
    largest_move: float


class Example(Reported):
    """An item shown behind figures: its prompt and raw answer.

    ``figures`` are the ids of the measures that rest on it.
    """

    model: str
    suite: str
    item_id: str
    factors: dict[str, Scalar]
    prompt: Any
    answer: Any
    figures: list[str] = []
