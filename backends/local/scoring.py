"""Score requests on a model in this process: text to token paths, and their log-probabilities back to scores.

The engine supplies its tokenizer and a function that scores paths; everything in between is the same
for transformers and llama.cpp.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from backends.base import (
    Answer,
    Boundary,
    ContinuationScore,
    OnResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError
from backends.local.backend import discard_response
from backends.local.boundary import SplitTokens, locate_continuation
from backends.local.encoder import TextEncoder
from backends.local.generation import check_known
from backends.local.trie import Path, common_start

Values = Sequence[npt.NDArray[np.float64] | BackendError]
"""Per path the log-probabilities (nats) of its scored tokens, then of its token set if it has one; or the error."""


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


#: Roughly the tokens that a request adds to a forward pass (an explicit prompt of OccuGender: 60).
_TOKENS_PER_REQUEST = 64


@dataclass(slots=True)
class _PlannedScore:
    """One continuation: its tokens, and the indices of its paths among those of its request.

    ``path`` is None if there is no token to score. ``prompt_paths`` are those of a straddling token's prompt part.
    """

    split: SplitTokens
    path: int | None
    prompt_paths: range


@dataclass(slots=True)
class _Plan:
    """A request's paths and how to read their log-probabilities, or why it has none."""

    paths: list[Path] = field(default_factory=list)
    scores: list[_PlannedScore] = field(default_factory=list)
    prompt_tokens: int = 0
    error: BackendError | None = None


def score_requests(
    requests: Sequence[ScoreRequest],
    encoder: TextEncoder,
    scorer: Scorer,
    on_response: OnResponse = discard_response,
) -> list[Answer]:
    """One answer per request, in order; ``on_response`` is called with each as soon as it is known.

    About one forward pass of requests is scored at a time in each of the scorer's lanes, sorted by tokens so that
    neighbours share prefixes. A request that fails does not fail the others.
    """
    plans = [_plan(request, encoded, encoder, scorer) for request, encoded in _encode(requests, encoder)]
    answers: list[Answer] = [plan.error or _UNSCORED for plan in plans]
    sound = [i for i, plan in enumerate(plans) if plan.error is None]
    sound.sort(key=lambda i: plans[i].paths[0].tokens if plans[i].paths else ())
    lanes = len(scorer.lanes) if len(sound) > 1 and isinstance(scorer, SupportsLanes) else 1
    chunks = deque(_chunks(sound, max(1, scorer.pack_tokens // _TOKENS_PER_REQUEST), lanes))
    is_shared = lanes > 1
    without_room: list[int] = []
    telling = threading.Lock()

    def answer(places: Sequence[int], lane: Scorer) -> None:
        for i, found in zip(places, _answers([plans[i] for i in places], lane), strict=True):
            with telling:
                if is_shared and isinstance(found, BackendError) and found.kind == "out_of_memory":
                    without_room.append(i)
                else:
                    answers[i] = found
                    on_response(i, found)

    def work(lane: Scorer) -> None:
        """Neighbouring chunks, from either end."""
        take = chunks.popleft if lane is scorer else chunks.pop
        try:
            while (places := _taken(take)) is not None:
                answer(places, lane)
        except BaseException:
            chunks.clear()  # ends the other lanes too
            raise

    if is_shared and isinstance(scorer, SupportsLanes):
        first, last = (plans[i].paths[0].tokens if plans[i].paths else () for i in (sound[0], sound[-1]))
        scorer.side_by_side(work, first[: common_start(first, last)])
        is_shared = False
        chunks.extend([i] for i in without_room)  # with all of the memory
    work(scorer)
    return answers


def _taken(take: Callable[[], Sequence[int]]) -> Sequence[int] | None:
    """The next chunk; None where another lane has taken the last."""
    try:
        return take()
    except IndexError:
        return None


def _chunks(places: Sequence[int], most: int, lanes: int) -> Iterator[Sequence[int]]:
    """Runs of at most so many, of equal length, and as many for each lane."""
    count = -(-len(places) // (most * lanes)) * lanes
    size = -(-len(places) // count) if count else 1
    return (places[start : start + size] for start in range(0, len(places), size))


_UNSCORED = BackendError("internal", "its paths were not scored")


def boundaries(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> list[tuple[Boundary, ...] | BackendError]:
    """How prompt and continuations of each request meet, or why it cannot be scored; the model is not needed."""
    found: list[tuple[Boundary, ...] | BackendError] = []
    for request, encoded in _encode(requests, encoder):
        try:
            splits = [split for split, _ in _splits(request, encoded, encoder)]
            for remainder in {split.remainder for split in splits if split.remainder}:
                encoder.vocabulary.tokenizations(remainder)  # refuses what has too many
        except Exception as error:
            found.append(BackendError.of(error))
        else:
            found.append(tuple(split.boundary for split in splits))
    return found


def _splits(
    request: ScoreRequest, encoded: tuple[str, list[list[int]]] | BackendError, encoder: TextEncoder
) -> Iterator[tuple[SplitTokens, int]]:
    """Each continuation's tokens, split at the boundary, and the number of the prompt's."""
    if isinstance(encoded, BackendError):
        raise encoded
    prompt, (prompt_tokens, *joint) = encoded
    prompt_pieces = [encoder.piece(token) for token in prompt_tokens]
    for continuation, tokens in zip(request.continuations, joint, strict=True):
        added = encoder.added(tokens, prompt + continuation)
        same = common_start(tokens, prompt_tokens)
        pieces = prompt_pieces[:same] + [encoder.piece(token) for token in tokens[same:]]
        given = request.first_given
        split = locate_continuation(prompt, continuation, prompt_tokens, tokens, pieces, added, first_given=given)
        yield split, len(prompt_tokens)


def _answers(plans: Sequence[_Plan], scorer: Scorer) -> list[Answer]:
    """The plans' answers. If several fail together, they are tried again in halves until the odd ones are alone."""
    answers = _answers_together(plans, scorer)
    # One that fails alone among sound ones is odd itself. Several may have been spoilt by one: a NaN reaches its
    # neighbours in the same forward pass even through masked attention, since 0 times NaN is NaN.
    failed = [i for i, answer in enumerate(answers) if isinstance(answer, BackendError) and answer.kind == "internal"]
    if len(failed) > 1:
        middle = len(failed) // 2
        for half in (failed[:middle], failed[middle:]):
            for i, answer in zip(half, _answers([plans[i] for i in half], scorer), strict=True):
                answers[i] = answer
    return answers


def _answers_together(plans: Sequence[_Plan], scorer: Scorer) -> list[Answer]:
    try:
        paths = [path for plan in plans for path in plan.paths]
        values = scorer.logprobs(paths) if paths else []
    except Exception as error:  # foreign code: it may fail in any way
        return [BackendError.of(error)] * len(plans)
    ends = np.cumsum([len(plan.paths) for plan in plans]).tolist()
    return [
        _answer(plan, values[end - len(plan.paths) : end], scorer.route) for plan, end in zip(plans, ends, strict=True)
    ]


def _encode(
    requests: Sequence[ScoreRequest], encoder: TextEncoder
) -> Iterator[tuple[ScoreRequest, tuple[str, list[list[int]]] | BackendError]]:
    """Each request with its prompt's text, and the tokens of the prompt alone and with each continuation."""
    encoded: dict[int, tuple[str, list[list[int]]] | BackendError] = {}
    for chat in (False, True):
        texts: dict[int, list[str]] = {}
        for i, request in enumerate(requests):
            if isinstance(request.prompt, str) == chat:
                continue
            try:
                prompt = encoder.text(request.prompt)
            except BackendError as error:
                encoded[i] = error
            else:
                texts[i] = [prompt + continuation for continuation in ("", *request.continuations)]
        for i, tokens in _tokens(texts, encoder, chat).items():
            encoded[i] = tokens if isinstance(tokens, BackendError) else (texts[i][0], tokens)
    for i, request in enumerate(requests):
        yield request, encoded[i]


def _tokens(texts: dict[int, list[str]], encoder: TextEncoder, chat: bool) -> dict[int, list[list[int]] | BackendError]:
    """Tokens of each request's texts: encoded in one call, or one call per request if that fails."""
    try:
        tokens = iter(encoder.encode([text for some in texts.values() for text in some], chat=chat) if texts else ())
        return {i: [next(tokens) for _ in some] for i, some in texts.items()}
    except Exception:
        if len(texts) > 1:
            return {i: _tokens({i: some}, encoder, chat)[i] for i, some in texts.items()}
        if any("\ud800" <= character <= "\udfff" for some in texts.values() for text in some for character in text):
            error = BackendError("bad_request", "the text holds half a character (a lone surrogate)", hint="remove it")
        return dict.fromkeys(texts, BackendError.of(error))


def _plan(
    request: ScoreRequest,
    encoded: tuple[str, list[list[int]]] | BackendError,
    encoder: TextEncoder,
    scorer: Scorer,
) -> _Plan:
    plan = _Plan()
    try:
        if not isinstance(encoded, BackendError):
            check_known(list(set().union(*encoded[1][1:])), scorer.vocabulary, encoder.piece)
        for split, prompt_tokens in _splits(request, encoded, encoder):
            plan.prompt_tokens = prompt_tokens
            _add_paths(plan, split, encoder, scorer)
    except Exception as error:
        return _Plan(error=BackendError.of(error))
    return plan


def _add_paths(plan: _Plan, split: SplitTokens, encoder: TextEncoder, scorer: Scorer) -> None:
    """Append a continuation and its paths to the plan."""
    context = scorer.context
    # The model predicts the last token but does not read it.
    if context is not None and len(split.tokens) - 1 > context:
        raise _too_long(f"{len(split.tokens)} tokens of prompt and continuation", context)
    if split.first == len(split.tokens):  # a single token, which is given
        plan.scores.append(_PlannedScore(split, None, range(0)))
        return
    planned = _PlannedScore(split, len(plan.paths), range(0))
    plan.paths.append(Path(split.tokens, split.first))
    if split.remainder:
        head = split.tokens[: split.first]
        start = len(plan.paths)
        for tokenization in encoder.vocabulary.tokenizations(split.remainder):
            if max(tokenization.tokens, default=0) >= scorer.vocabulary:  # the model never predicts it
                continue
            read = len(head) + len(tokenization.tokens)
            if context is not None and read > context:  # short tokens spell it in more tokens than the prompt has
                raise _too_long(f"{read} tokens of prompt, counting those needed at the boundary", context)
            plan.paths.append(Path(head + tokenization.tokens, len(head), tokenization.rest))
        planned.prompt_paths = range(start, len(plan.paths))
    plan.scores.append(planned)


def _too_long(what: str, context: int) -> BackendError:
    return BackendError("context_length", f"{what}, and the model reads {context}", hint="shorten the prompt")


def _answer(plan: _Plan, values: Values, route: str) -> Answer:
    try:
        return ScoreResponse(tuple(_score(planned, values, route) for planned in plan.scores), plan.prompt_tokens)
    except BackendError as error:
        return error


def _value(values: Values, path: int) -> npt.NDArray[np.float64]:
    value = values[path]
    if isinstance(value, BackendError):
        raise value
    return value


def _score(planned: _PlannedScore, values: Values, route: str) -> ContinuationScore:
    split = planned.split
    if planned.path is None:
        return ContinuationScore.exact((), boundary=split.boundary, route=route)
    logprobs: list[float] = _value(values, planned.path).tolist()  # a few numbers: lists are faster than arrays
    if planned.prompt_paths:
        # The sum includes the straddling token itself, so the difference is at most 0.
        prompt_part = float(np.logaddexp.reduce([_value(values, i).sum() for i in planned.prompt_paths]))
        logprobs[0] -= prompt_part
    if not all(-math.inf < value <= 1e-3 for value in logprobs):  # NaN is neither
        raise BackendError(
            "internal",
            f"log-probabilities {logprobs}: the model's output is not a distribution over these tokens",
            hint="try float32, or a GGUF file of another quantisation",
        )
    tokens = [
        TokenLogprob(span.text, span.start, span.end, min(value, 0.0), token)
        for span, value, token in zip(split.spans, logprobs, split.tokens[split.first :], strict=True)
    ]
    return ContinuationScore.exact(tokens, boundary=split.boundary, route=route)
