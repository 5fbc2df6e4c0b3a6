"""The scheduler's input and output: what is to be asked of a model, how far that is, and what became of it."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from audit.store import COMPARED_WITHIN, Keyed, Partly
from backends.base import Backend, Request, Response, ScoreRequest, ScoreResponse, SupportsSecondAnswers
from backends.checking import number_to_repeat


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

    @property
    def key(self) -> bytes:
        """The key that the whole question's answer will have."""
        return self.keyed.prompt + self.keyed.part

    def whole(self, answer: Response) -> Response:
        """The answer to the whole question, given that to ``request``."""
        if self.partly is None:
            return answer
        assert isinstance(self.keyed.request, ScoreRequest)
        assert isinstance(answer, ScoreResponse)
        return self.partly.joined(self.keyed.request, answer)


def part_to_repeat(backend: SupportsSecondAnswers, request: Request) -> Request:
    """What of a question is asked again: all, or one continuation, here the first, if each takes its own requests."""
    if isinstance(request, ScoreRequest) and backend.scores_separately(request):
        return dataclasses.replace(request, continuations=request.continuations[:1])
    return request


class RepeatedQuestions:
    """The questions among a job's ``asks`` that are asked twice: a random sample, each at a random later time.

    A server may answer some requests with another model, for a while or at random. A config that is run from the
    beginning always selects the same questions, by the run's ``seed``.
    """

    def __init__(self, backend: SupportsSecondAnswers, seed: int, asks: Iterable[Ask]) -> None:
        self._backend, self._draw = backend, random.Random(seed)
        able = [ask.key for ask in asks if backend.repeats_itself(ask.request)]
        self._chosen = set(self._draw.sample(able, number_to_repeat(len(able))))

    def place(self, left: int) -> int:
        """Before which of ``left`` questions the next repeat is asked: a random one, or after all of them."""
        return self._draw.randint(0, left)

    def again(self, ask: Ask, first: Response) -> Ask | None:
        """What is asked again of an answered question, with its first answer; None if it is not chosen."""
        if ask.key not in self._chosen:
            return None
        request = ask.request
        if isinstance(request, ScoreRequest) and part_to_repeat(self._backend, request) != request:
            assert isinstance(first, ScoreResponse)
            least = max(score.high for score in first.scores) - COMPARED_WITHIN  # one whose answer matters
            place = self._draw.choice([place for place, score in enumerate(first.scores) if score.high >= least])
            request = dataclasses.replace(request, continuations=(request.continuations[place],))
            first = ScoreResponse((first.scores[place],), first.prompt_tokens)
        return dataclasses.replace(ask, request=request, first=first)


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
