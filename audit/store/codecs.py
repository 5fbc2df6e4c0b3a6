"""An answer as one value of bytes, exact to the last bit.

    version, run, prompt tokens, length    a byte, 2 bytes, 8 and 4, little-endian
    layout      JSON: what was asked besides the prompt, and all of the answer but the numbers of scores; compressed
                where it is of scores, since it is mostly one and the same for a suite's prompts
    numbers     log-probabilities of 8 bytes each, in the order in which the layout counts them

A number that repeats another, as the bounds of an exact score do, is written once.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from audit.store.keys import details, from_bytes, to_bytes
from backends.base import (
    Answer,
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)
from backends.errors import BackendError

_HEAD = struct.Struct("<BHqI")
_ORJSON, _JSON, _PLAIN = 1, 2, 3  # versions: scores with a layout by either writer, and all other answers
_LAYOUTS = 64  # kept at once

#: How a score's numbers are written. Exact, of one token: the token's alone. Exact: its own, and its tokens'. Any
#: other: ``high``, then its own and ``low`` where it has them, then its tokens'.
_ONE_TOKEN, _EXACT, _OTHER, _HAS_LOGPROB, _HAS_LOW = 0, 1, 2, 1, 2


class Decoded(NamedTuple):
    """A stored value: what was asked besides the prompt (`audit.store.keys.details`), in which run, and the answer."""

    details: list[Any]
    run: int
    answer: Response


def matches_request(request: Request, answer: Answer) -> bool:
    """Whether an answer has the type, length and range its request asks for. A `BackendError` always does."""
    match request, answer:
        case _, BackendError():
            return True
        case ScoreRequest(), ScoreResponse():
            return len(answer.scores) == len(request.continuations)
        case GenerateRequest(), GenerateResponse():
            return isinstance(answer.text, str)
        case ClassifyRequest(), ClassifyResponse():
            return all(0.0 <= p <= 1.0 for p in answer.labels.values())  # False for NaN too
    return False


def encode(request: Request, run: int, answer: Response) -> bytes:
    """An answer with what it answers. Raises ValueError if a number is not finite, or the two do not match."""
    if isinstance(answer, ScoreResponse):
        if not isinstance(request, ScoreRequest) or len(answer.scores) != len(request.continuations):
            raise ValueError(f"{len(answer.scores)} scores do not answer {type(request).__name__}")
        return _encode_scores(request, run, answer)
    said: list[Any]
    if isinstance(answer, GenerateResponse):
        thoughts = [answer.thought, answer.thought_tokens]
        said = [answer.text, answer.finish_reason, answer.prompt_tokens, answer.completion_tokens, *thoughts]
    else:
        said = [dict(answer.labels)]
    layout = to_bytes(json.dumps([details(request), said], ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    return _HEAD.pack(_PLAIN, run, 0, len(layout)) + layout


def decode(value: bytes) -> Decoded:
    """Read back what `encode` wrote. Raises ValueError, TypeError, KeyError or struct.error for anything else."""
    version, run, prompt_tokens, length = _HEAD.unpack_from(value)
    start = _HEAD.size + length
    if version != _PLAIN:
        layout = _read_layout(version, value[_HEAD.size : start])
        numbers = struct.unpack(f"<{layout.n_numbers}d", value[start:])
        return Decoded(layout.details, run, ScoreResponse(_scores(layout, numbers), prompt_tokens))
    if len(value) != start:
        raise ValueError("bytes follow the layout")
    asked, said = json.loads(from_bytes(value[_HEAD.size :]))
    answer = GenerateResponse(*said) if asked[0] == "generate" else ClassifyResponse(said[0])
    return Decoded(asked, run, answer)


# -- scores ------------------------------------------------------------------------------------


def _encode_scores(request: ScoreRequest, run: int, answer: ScoreResponse) -> bytes:
    scores = answer.scores
    forms: list[int] = []
    numbers: list[float] = []
    tokens: list[TokenLogprob] = []
    for score in scores:
        value, low, high, own = score.logprob, score.low, score.high, score.tokens
        tokens += own
        if value and value == low == high:  # not for 0, which may have either sign
            is_single = len(own) == 1 and own[0].logprob == value
            forms.append(_ONE_TOKEN if is_single else _EXACT)
            numbers.append(value)
            if is_single:
                continue
        else:
            forms.append(_OTHER + _HAS_LOGPROB * (value is not None) + _HAS_LOW * (low is not None))
            numbers += [number for number in (high, value, low) if number is not None]
        numbers += [token.logprob for token in own]
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a log-probability is not a finite number")
    layout = [
        details(request),
        forms,
        [score.exactness for score in scores],
        [score.boundary for score in scores],
        [score.route for score in scores],
        [score.samples for score in scores],
        [len(score.tokens) for score in scores],
        [token.text for token in tokens],
        [token.start for token in tokens],
        [token.end for token in tokens],
        [token.token_id for token in tokens],
        [token.exact for token in tokens],
    ]
    try:
        version, text = _ORJSON, orjson.dumps(layout)
    except orjson.JSONEncodeError:  # lone surrogates, and whole numbers of more than 64 bits
        version, text = _JSON, to_bytes(json.dumps(layout, ensure_ascii=False, separators=(",", ":")))
    compressed = _compress(text)
    head = _HEAD.pack(version, run, answer.prompt_tokens, len(compressed))
    return head + compressed + struct.pack(f"<{len(numbers)}d", *numbers)


@functools.lru_cache(_LAYOUTS)
def _compress(layout: bytes) -> bytes:
    return zlib.compress(layout, 6)


@dataclass(frozen=True, slots=True)
class _Layout:
    """``scores``: of each its form, exactness, boundary, route, samples, and all of its tokens but the numbers."""

    details: list[Any]
    scores: tuple[tuple[Any, ...], ...]
    n_numbers: int


@functools.lru_cache(_LAYOUTS)
def _read_layout(version: int, compressed: bytes) -> _Layout:
    try:
        text = zlib.decompress(compressed)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    layout = orjson.loads(text) if version == _ORJSON else json.loads(from_bytes(text))
    asked, forms, exactness, boundaries, routes, samples, lengths, *columns = layout
    tokens = iter(zip(*columns, strict=True))
    of_scores = [tuple(next(tokens) for _ in range(length)) for length in lengths]
    scores = tuple(zip(forms, exactness, boundaries, routes, samples, of_scores, strict=True))
    if len(asked[1]) != len(scores):
        raise ValueError("continuations and scores differ in number")
    n_numbers = sum(
        1 if form == _ONE_TOKEN else length + 1 + (0 if form == _EXACT else (form - _OTHER).bit_count())
        for form, length in zip(forms, lengths, strict=True)
    )
    return _Layout(asked, scores, n_numbers)


def _scores(layout: _Layout, numbers: tuple[float, ...]) -> tuple[ContinuationScore, ...]:
    scores, place = [], 0
    for form, exactness, boundary, route, samples, tokens in layout.scores:
        value = numbers[place]
        place += 1
        if form == _ONE_TOKEN:
            text, first, end, token_id, exact = tokens[0]
            token = TokenLogprob(text, first, end, value, token_id, exact)
            scores.append(ContinuationScore(value, value, value, exactness, boundary, (token,), route, samples))
            continue
        logprob: float | None = value
        low: float | None = value
        if form != _EXACT:
            logprob, place = (numbers[place], place + 1) if (form - _OTHER) & _HAS_LOGPROB else (None, place)
            low, place = (numbers[place], place + 1) if (form - _OTHER) & _HAS_LOW else (None, place)
        scored = [
            TokenLogprob(text, first, end, numbers[place + i], token_id, exact)
            for i, (text, first, end, token_id, exact) in enumerate(tokens)
        ]
        place += len(scored)
        scores.append(ContinuationScore(logprob, low, value, exactness, boundary, tuple(scored), route, samples))
    return tuple(scores)
