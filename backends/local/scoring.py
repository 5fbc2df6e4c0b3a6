"""Score requests on a model in this process: text to token paths, and their log-probabilities back to scores.

The engine supplies its tokenizer and a function that scores paths; everything in between is the same
for transformers and llama.cpp.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from backends.base import Answer, Boundary, OnResponse, ScoreRequest
from backends.errors import BackendError, StoppedError
from backends.local.backend import discard_response
from backends.local.encoder import TextEncoder
from backends.local.plans import Plan, encode, locate_all, make_plans
from backends.local.scores import Values, answer_of
from backends.local.trie import Path, Paths, common_start


class Scorer(Protocol):
    """Scores token paths on one loaded model."""

    @property
    def route(self) -> str:
        """How it computes; stored with each score."""

    @property
    def context(self) -> int | None:
        """Maximum tokens that the model may read for one path; None: no limit."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens that the model has a logit for."""

    @property
    def pack_tokens(self) -> int:
        """Maximum tokens of one forward pass."""

    def logprobs(self, paths: Sequence[Path]) -> Values:
        """Log-probabilities (nats) of each path's scored tokens, then of its token set."""


#: Told the places of a group's paths, and their values.
OnKnown = Callable[[range, Values], None]


@runtime_checkable
class SupportsEarlyValues(Scorer, Protocol):
    """A scorer that can say what it knows before it has scored all paths."""

    def logprobs_as_known(self, paths: Sequence[Path], on_known: OnKnown | None) -> Values:
        """As `logprobs`; ``on_known`` is called for groups of `Paths` as soon as all of a group's values are known.

        A group may be told again where a pass is repeated.
        """


@runtime_checkable
class SupportsLanes(Scorer, Protocol):
    """A scorer that can compute several chunks at the same time."""

    @property
    def lanes(self) -> Sequence[Scorer]:
        """Scorers of this model that may compute at the same time, each in a thread: itself, and perhaps another."""

    def side_by_side(self, work: Callable[[Scorer], None], start: tuple[int, ...]) -> None:
        """Run ``work`` with each of several lanes at the same time, and return when all have ended.

        Parameters
        ----------
        work : callable
            May be called in any thread.
        start : tuple of int
            Tokens that all texts begin with; they need not be read once a lane.
        """


def in_threads(lanes: Sequence[Scorer], work: Callable[[Scorer], None]) -> None:
    """Run ``work`` with each lane at the same time, with the first in this thread, and return when all have ended."""
    first, *rest = lanes
    with ThreadPoolExecutor(max(1, len(rest)), thread_name_prefix="lane") as pool:
        others = [pool.submit(work, lane) for lane in rest]
        work(first)
    for other in others:
        other.result()


#: Roughly the tokens that a request adds to a forward pass (an explicit prompt of OccuGender: 60).
_TOKENS_PER_REQUEST = 64


def score_requests(
    requests: Sequence[ScoreRequest],
    encoder: TextEncoder,
    scorer: Scorer,
    on_response: OnResponse = discard_response,
    plans: list[Plan] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Answer]:
    """One answer per request, in order; ``on_response`` is called with each as soon as it is known.

    ``plans``: the requests', if they are made already. ``is_stopped`` is asked before each pass; once it says so, none
    is begun, and the requests left are answered with `StoppedError`.

    About one forward pass of requests is scored at a time in each of the scorer's lanes, sorted by tokens so that
    neighbours share prefixes. A request that fails does not fail the others.
    """
    if plans is None:
        plans = make_plans(requests, encoder, scorer)
    answers: list[Answer] = [plan.error or _UNSCORED for plan in plans]
    sound = [i for i, plan in enumerate(plans) if plan.error is None]
    sound.sort(key=lambda i: plans[i].first)
    lanes = len(scorer.lanes) if len(sound) > 1 and isinstance(scorer, SupportsLanes) else 1
    chunks = deque(_chunks(sound, max(1, scorer.pack_tokens // _TOKENS_PER_REQUEST), lanes))
    is_shared = lanes > 1
    without_room: list[int] = []
    one_by_one = threading.Lock()

    def keep(i: int, found: Answer) -> None:
        with one_by_one:
            if is_shared and isinstance(found, BackendError) and found.kind == "out_of_memory":
                without_room.append(i)
            else:
                answers[i] = found
                on_response(i, found)

    def answer(places: Sequence[int], lane: Scorer) -> None:
        early = dict.fromkeys(places, False)

        def tell(at: int, found: Answer) -> None:
            early[places[at]] = True
            keep(places[at], found)

        for i, found in zip(places, _answers([plans[i] for i in places], lane, tell), strict=True):
            if not early[i]:
                keep(i, found)

    def work(lane: Scorer) -> None:
        """Neighbouring chunks, from either end."""
        take = chunks.popleft if lane is scorer else chunks.pop
        try:
            while not is_stopped() and (places := _taken(take)) is not None:
                answer(places, lane)
        except BaseException:
            chunks.clear()  # ends the other lanes too
            raise

    if is_shared and isinstance(scorer, SupportsLanes):
        first, last = (plans[i].first for i in (sound[0], sound[-1]))
        scorer.side_by_side(work, first[: common_start(first, last)])
        is_shared = False
        chunks.extend([i] for i in without_room)  # with all of the memory
    work(scorer)
    if _UNSCORED in answers and is_stopped():
        return [StoppedError() if answer is _UNSCORED else answer for answer in answers]
    return answers


def _taken(take: Callable[[], Sequence[int]]) -> Sequence[int] | None:
    """The next chunk; None where another lane has taken the last."""
    try:
        return take()
    except IndexError:
        return None


def _chunks(places: Sequence[int], most: int, lanes: int) -> Iterator[Sequence[int]]:
    """Runs of at most so many and of about equal length, as many for each lane.

    With several lanes, the last run is half of one, and so is one in the middle: else all lanes would end a pass at
    the same time, and a kill then would lose the answers of them all.
    """
    count = max(1, -(-len(places) // (most * lanes)) * lanes)
    sizes = [(len(places) + count - 1 - i) // count for i in range(count)]
    if lanes > 1:
        whole = sizes.pop()
        sizes.insert(len(sizes) // 2, whole - whole // 2)
        sizes.append(whole // 2)
    stops = itertools.accumulate(sizes)
    return (places[stop - size : stop] for size, stop in zip(sizes, stops, strict=True) if size)


_UNSCORED = BackendError("internal", "its paths were not scored")


def boundaries(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> list[tuple[Boundary, ...] | BackendError]:
    """How prompt and continuations of each request meet, or why it cannot be scored; the model is not needed."""
    found: list[tuple[Boundary, ...] | BackendError] = []
    for request, encoded in encode(requests, encoder):
        try:
            splits = list(locate_all(request, encoded, encoder))
            for remainder in {split.remainder for split in splits if split.remainder}:
                encoder.vocabulary.tokenizations(remainder)  # refuses what has too many
        except Exception as error:
            found.append(BackendError.of(error))
        else:
            found.append(tuple(split.boundary for split in splits))
    return found


def _answers(plans: Sequence[Plan], scorer: Scorer, tell: OnResponse = discard_response) -> list[Answer]:
    """The plans' answers. If several fail together, they are tried again in halves until the odd ones are alone.

    ``tell`` is called with sound ones that are known before others.
    """
    answers = _answers_together(plans, scorer, tell)
    # One that fails alone among sound ones is odd itself. Several may have been spoilt by one: a NaN reaches its
    # neighbours in the same forward pass even through masked attention, since 0 times NaN is NaN.
    failed = [i for i, answer in enumerate(answers) if isinstance(answer, BackendError) and answer.kind == "internal"]
    if len(failed) > 1:
        middle = len(failed) // 2
        for half in (failed[:middle], failed[middle:]):
            for i, answer in zip(half, _answers([plans[i] for i in half], scorer), strict=True):
                answers[i] = answer
    return answers


def _answers_together(plans: Sequence[Plan], scorer: Scorer, tell: OnResponse) -> list[Answer]:
    endings = [plan.ending for plan in plans if plan.ending is not None]
    stops = [*itertools.accumulate(len(ending.branches) for ending in endings)]
    answers: list[Answer | None] = [None] * len(plans)

    def on_known(places: range, values: Values) -> None:
        at = bisect.bisect_left(stops, places.stop)
        if answers[at] is None and places:
            found = answer_of(endings[at], plans[at].prompt_tokens, values, scorer.route)
            if not isinstance(found, BackendError):
                answers[at] = found
                tell(at, found)

    try:
        paths = Paths([(plan.head, ending.branches) for plan, ending in zip(plans, endings, strict=True)])
        if not paths:
            values: Values = []
        elif isinstance(scorer, SupportsEarlyValues):
            values = scorer.logprobs_as_known(paths, on_known)
        else:
            values = scorer.logprobs(paths)
    except Exception as error:  # foreign code: it may fail in any way
        return [BackendError.of(error) if answer is None else answer for answer in answers]
    for at, stop in enumerate(stops):
        if answers[at] is None:
            mine = values[stop - len(endings[at].branches) : stop]
            answers[at] = answer_of(endings[at], plans[at].prompt_tokens, mine, scorer.route)
    return [answer for answer in answers if answer is not None]
