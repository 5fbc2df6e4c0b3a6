"""The scheduler's input and output: jobs, their progress and their outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from audit.collect.plan import Plan
from audit.collect.repeated_questions import RepeatedQuestions
from audit.collect.worker_times import Stage
from backends.base import Backend


def _ignore_retraction(keys: Collection[str]) -> None:
    """Default `Job.on_retract`: no answers were kept."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model and the questions to ask it.

    ``on_retract`` is called with the keys of answers that were delivered but turned out not to count. ``second``
    selects the questions that are asked twice; None if none are.
    """

    name: str
    backend: Backend
    plan: Plan
    on_retract: Callable[[Collection[str]], None] = _ignore_retraction
    second: RepeatedQuestions | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is retried. Times are in seconds.

    ``attempts`` includes the first one. 429 is not counted: the limiter slows down instead, and a request is given up
    only when the endpoint has returned nothing else for ``max_wait``. A wait that the server asks for replaces the
    backoff.
    """

    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0
    max_wait: float = 300.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has got.

    ``total`` is None if unknown; ``note`` says what the job is waiting for. ``work_asked`` (in this run) and
    ``work_left`` are both 0 if all items take the same time. ``cost`` so far, in the currency of the backend's prices;
    None where it has none. ``actors``: how many of the model's actors live, of those that it should have; None where it
    computes in this process. ``limit``: what the job waits for most; None at first.
    """

    job: str
    done: int
    total: int | None
    cached: int
    retried: int
    failed: int
    note: str = ""
    work_asked: int = 0
    work_left: int = 0
    cost: float | None = None
    actors: tuple[int, int] | None = None
    limit: Stage | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of a job, counted in items; ``retried`` counts attempts after the first.

    ``asked_again`` counts repeated questions that got a second answer, ``unanswered_again`` those that did not.
    ``reasons`` has the message of the first failure of each kind, ``for_good`` counts failures that a retry would not
    fix. ``stopped`` says why not everything was asked; None if everything was. ``notes`` is what the model's pool knew
    at the end, as `backends.base.SupportsRunNotes` says. ``unloaded`` says why the model could not be loaded, and what
    helps; None if it was, or nothing was asked of it.
    """

    name: str
    items: int = 0
    cached: int = 0
    answered: int = 0
    failed: int = 0
    retried: int = 0
    asked_again: int = 0
    unanswered_again: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    for_good: int = 0
    stopped: str | None = None
    unloaded: str | None = None
    notes: dict[str, str] = field(default_factory=dict)


OnEvent = Callable[[Progress], None]
