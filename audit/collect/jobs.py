"""What the scheduler is given, and what it reports: jobs, their progress and their outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from audit.collect.plan import Plan
from audit.collect.second_asking import SecondAsking
from backends.base import Backend


def _ignore_retraction(keys: Collection[str]) -> None:
    """Nothing was kept of the answers."""


@dataclass(frozen=True, slots=True)
class Job:
    """One model and what is to be asked of it.

    ``on_retract`` is called with the keys of answers that were handed on and turned out not to count. ``second`` says
    what is asked twice, None for a model that nothing is asked twice.
    """

    name: str
    backend: Backend
    plan: Plan
    on_retract: Callable[[Collection[str]], None] = _ignore_retraction
    second: SecondAsking | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is asked again. Times are in seconds.

    ``attempts`` counts the first one. 429 is not counted: the limiter paces it, and it is given up
    only when the endpoint has returned nothing else for ``max_wait``. A wait that the server asks for
    replaces ours.
    """

    attempts: int = 6
    first_wait: float = 0.5
    longest_wait: float = 30.0
    max_wait: float = 300.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is.

    ``total`` is None where it is not known; ``note`` says what it waits for. ``work_asked`` of
    this run, and ``work_left``, are both 0 where all items are alike.
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


@dataclass(slots=True)
class Outcome:
    """What came of a job, in items; ``retried`` counts attempts after the first.

    ``asked_again`` counts questions that got a second answer, ``unanswered_again`` those that got none.
    ``reasons`` has the first failure of each kind in words, ``for_good`` counts those that asking again would not
    help. ``stopped`` says why not all was asked, None if all was.
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


OnEvent = Callable[[Progress], None]
