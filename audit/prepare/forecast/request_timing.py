"""How long a model takes per token for each kind of request, measured from the times its answers were stored."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from audit.collect.items import CHARACTERS_PER_TOKEN, prompt_text, shared_length
from audit.store import Answered, Store
from backends.base import GenerateRequest, GenerateResponse, Request, ScoreRequest

MOST_ANSWERS = 4000  # only the latest answers are used
_KINDS = {ScoreRequest: "score", GenerateRequest: "generate"}
FEWEST_BATCHES = 3  # with fewer, loading the model may dominate
_IDLE = 20  # a gap longer than this many median gaps is idle time: between two runs, or a pause
_TOGETHER = 0.01  # seconds: answers of one batch are stored one after another, each with a time of its own


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """Seconds per token read (kind ``score``) or generated (kind ``generate``).

    ``length`` is the mean length of the generated texts as a share of their token limit; 1 for scores.
    ``source`` says what it was measured from.
    """

    seconds_per_token: float
    length: float
    source: str


def timed_tokens(request: Request, shared_characters: int = 0) -> float:
    """Tokens that determine a request's duration: its token limit if it generates, else those of its unshared text."""
    match request:
        case GenerateRequest():
            return float(request.sampling.max_tokens)
        case ScoreRequest():
            characters = max(1, len(prompt_text(request)) - shared_characters) + sum(map(len, request.continuations))
        case _:
            characters = len(request.text)
    return characters / CHARACTERS_PER_TOKEN


def measure_timings(store: Store, fingerprint: str) -> dict[str, RequestTiming]:
    """The timing of each kind of request that a model has answered often enough."""
    answers = store.answers.latest(fingerprint, MOST_ANSWERS)
    together = list(_batches(answers, _TOGETHER))
    batches: dict[str, list[tuple[float, list[Answered]]]] = defaultdict(list)
    # A fast model's batches may all lie that close: then only those of the very same time belong together.
    for seconds, batch in together if len(together) >= FEWEST_BATCHES else _batches(answers, 0.0):
        kinds = {_KINDS.get(type(answer.request), "classify") for answer in batch}
        if len(kinds) == 1:
            batches[kinds.pop()].append((seconds, batch))
    return {kind: timing for kind, of_kind in batches.items() if (timing := _timing(of_kind)) is not None}


def _batches(answers: Sequence[Answered], together: float) -> Iterator[tuple[float, list[Answered]]]:
    """Answers stored at most ``together`` seconds after one another, and the seconds since the batch before."""
    batch: list[Answered] = []
    before: float | None = None
    for answer in answers:
        if batch and answer.at - batch[-1].at > together:
            if before is not None:
                yield batch[-1].at - before, batch
            before, batch = batch[-1].at, []
        batch.append(answer)
    if batch and before is not None:
        yield batch[-1].at - before, batch


def _timing(batches: Sequence[tuple[float, list[Answered]]]) -> RequestTiming | None:
    if len(batches) < FEWEST_BATCHES:
        return None
    longest = _IDLE * statistics.median(gap for gap, _ in batches)
    worked = [(gap, batch) for gap, batch in batches if gap <= longest]
    answers = [answer for _, batch in worked for answer in batch]
    seconds, (done, allowed, questions) = sum(gap for gap, _ in worked), _tokens(answers)
    if not done or not seconds:
        return None
    return RequestTiming(seconds / done, done / allowed, f"from its answers to {questions:,} questions")


def _tokens(answers: Sequence[Answered]) -> tuple[float, float, int]:
    """Tokens that were read or generated, the most there could have been, and the questions that they answer."""
    done = allowed = 0.0
    questions = 0
    previous = ""
    for answer in answers:
        request = answer.request
        if isinstance(request, GenerateRequest) and isinstance(answer.answer, GenerateResponse):
            questions += 1
            done += answer.answer.completion_tokens
            allowed += request.sampling.max_tokens
        elif isinstance(request, ScoreRequest):
            text = prompt_text(request)
            questions += 1
            tokens = timed_tokens(request, shared_length(previous, text))
            previous = text
            done, allowed = done + tokens, allowed + tokens
    return done, allowed, questions


def estimate_seconds(tokens: Mapping[str, float], timings: Mapping[str, RequestTiming]) -> float | None:
    """Seconds that ``tokens`` (by kind) take; None if a kind has no timing."""
    if any(count and kind not in timings for kind, count in tokens.items()):
        return None
    return sum(
        count * timings[kind].seconds_per_token * timings[kind].length for kind, count in tokens.items() if count
    )
