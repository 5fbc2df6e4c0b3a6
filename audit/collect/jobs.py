"""The scheduler's input and output: what is to be asked of a model, how far that is, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from audit.collect.repeated_questions import RepeatedQuestions
from audit.store import Keyed, Partly
from backends.base import Backend, Request, Response, ScoreRequest, ScoreResponse


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that is to be asked.

    Attributes
    ----------
    keyed : Keyed
        The whole question, with the key that its answer will have.
    request : Request
        What of it is sent: the continuations whose scores are not stored.
    partly : Partly, optional
        The scores that are.
    items : int
        The items that ask it.
    first : Response, optional
        The first answer, where the question is asked a second time to compare the two.
    """

    keyed: Keyed
    request: Request
    partly: Partly | None = None
    items: int = 1
    first: Response | None = None

    def whole(self, answer: Response) -> Response:
        """The answer to the whole question, given that to ``request``."""
        if self.partly is None:
            return answer
        assert isinstance(self.keyed.request, ScoreRequest)
        assert isinstance(answer, ScoreResponse)
        return self.partly.joined(self.keyed.request, answer)


@dataclass(frozen=True, slots=True)
class Job:
    """One model and what to ask it.

    ``cached`` and ``done``: items whose answers are stored, by earlier runs and by this one. ``second``: what is asked
    twice.
    """

    name: str
    backend: Backend
    asks: list[Ask]
    cached: int = 0
    done: int = 0
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
    """How far a job has got, in items; ``note`` says what it waits for.

    ``total`` is None if unknown. ``cost`` so far, in the currency of the backend's prices; None where it has none.
    ``waited``: seconds since the last answer.
    """

    job: str
    done: int
    total: int | None
    cached: int
    retried: int
    failed: int
    note: str = ""
    cost: float | None = None
    waited: float = 0.0


@dataclass(slots=True)
class Outcome:
    """The outcome of a job, counted in items; ``retried`` counts attempts after the first.

    ``asked_again`` counts repeated questions that got a second answer, ``unanswered_again`` those that did not.
    ``failed_by_key`` has the last error of each question that failed; ``reasons`` the message of the first failure of
    each kind, ``for_good`` counts failures that a retry would not fix. ``stopped`` says why not everything was asked;
    None if everything was. ``notes`` is what the backend knew at the end, as `backends.base.SupportsRunNotes` says.
    ``unloaded`` says why the model could not be loaded, and what helps; None if it was, or nothing was asked of it.
    ``set_aside``: keys of answers that may belong to another request, and are quarantined.
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
    failed_by_key: dict[bytes, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    for_good: int = 0
    stopped: str | None = None
    unloaded: str | None = None
    notes: dict[str, str] = field(default_factory=dict)
    set_aside: list[str] = field(default_factory=list)


OnEvent = Callable[[Progress], None]
