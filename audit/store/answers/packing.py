"""The scores of one prompt's continuations in one value, exact to the last bit.

    version, prompt tokens, length    of the layout: a byte, 8 bytes and 4, little-endian
    layout                            compressed JSON: the continuations and all about their tokens but the numbers
    log-probabilities                 8 bytes each, in the order in which the layout counts them

The layout of a suite's prompts is mostly one and the same, so that it is packed and read once. A number that
repeats another, as the bounds of an exact score do, is written once.
"""

from __future__ import annotations

import functools
import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from audit.store.keys import from_bytes, to_bytes
from backends.base import ContinuationScore, ScoreResponse, TokenLogprob

_HEAD = struct.Struct("<BqI")
_ORJSON, _JSON = 1, 2  # versions: the layout is of one of these writers
_LAYOUTS = 64  # kept at once

#: How a score's numbers are written. Exact, of one token: the token's alone. Exact: its own, and its tokens'. Any
#: other: ``high``, then its own and ``low`` where it has them, then its tokens'.
_ONE_TOKEN, _EXACT, _OTHER, _HAS_LOGPROB, _HAS_LOW = 0, 1, 2, 1, 2


@dataclass(frozen=True, slots=True)
class PackedScores:
    """The arguments of `pack`."""

    continuations: tuple[str, ...]
    first_given: bool
    response: ScoreResponse


def pack(continuations: Sequence[str], first_given: bool, response: ScoreResponse) -> bytes:
    """The scores of a prompt's continuations as one value.

    Raises
    ------
    ValueError
        A log-probability is not a finite number, or there are not as many scores as continuations.
    """
    scores = response.scores
    if len(scores) != len(continuations):
        raise ValueError(f"{len(scores)} scores of {len(continuations)} continuations")
    tokens = [token for score in scores for token in score.tokens]
    forms: list[int] = []
    numbers: list[float] = []
    for score in scores:
        value, low, high = score.logprob, score.low, score.high
        if value and value == low == high:  # not for 0, which may have either sign
            is_single = len(score.tokens) == 1 and score.tokens[0].logprob == value
            forms.append(_ONE_TOKEN if is_single else _EXACT)
            numbers.append(value)
            if is_single:
                continue
        else:
            forms.append(_OTHER + _HAS_LOGPROB * (value is not None) + _HAS_LOW * (low is not None))
            numbers += [number for number in (high, value, low) if number is not None]
        numbers += [token.logprob for token in score.tokens]
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a log-probability is not a finite number")
    layout = [
        first_given,
        continuations,
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
    head = _HEAD.pack(version, response.prompt_tokens, len(compressed))
    return head + compressed + struct.pack(f"<{len(numbers)}d", *numbers)


def unpack(body: bytes) -> PackedScores:
    """Read back what `pack` wrote. Raises ValueError, TypeError or struct.error for anything else."""
    version, prompt_tokens, length = _HEAD.unpack_from(body)
    start = _HEAD.size + length
    layout = _read_layout(version, body[_HEAD.size : start])
    numbers = struct.unpack(f"<{layout.n_numbers}d", body[start:])
    scores, place = [], 0
    for form, exactness, boundary, route, samples, tokens in layout.scores:
        value = numbers[place]
        place += 1
        if form == _ONE_TOKEN:
            text, first, end, token_id, exact = tokens[0]
            token = TokenLogprob(text, first, end, value, token_id, exact)
            scores.append(ContinuationScore(value, value, value, exactness, boundary, (token,), route, samples))
            continue
        logprob = low = high = value
        if form != _EXACT:
            logprob, place = (numbers[place], place + 1) if (form - _OTHER) & _HAS_LOGPROB else (None, place)
            low, place = (numbers[place], place + 1) if (form - _OTHER) & _HAS_LOW else (None, place)
        scored = [
            TokenLogprob(text, first, end, numbers[place + i], token_id, exact)
            for i, (text, first, end, token_id, exact) in enumerate(tokens)
        ]
        place += len(scored)
        scores.append(ContinuationScore(logprob, low, high, exactness, boundary, tuple(scored), route, samples))
    return PackedScores(layout.continuations, layout.first_given, ScoreResponse(tuple(scores), prompt_tokens))


@functools.lru_cache(_LAYOUTS)
def _compress(layout: bytes) -> bytes:
    return zlib.compress(layout, 6)


@dataclass(frozen=True, slots=True)
class _Layout:
    """``scores``: of each its form, exactness, boundary, route, samples, and all of its tokens but the numbers."""

    continuations: tuple[str, ...]
    first_given: bool
    scores: tuple[tuple[Any, ...], ...]
    n_numbers: int


@functools.lru_cache(_LAYOUTS)
def _read_layout(version: int, compressed: bytes) -> _Layout:
    try:
        text = zlib.decompress(compressed)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    layout = orjson.loads(text) if version == _ORJSON else json.loads(from_bytes(text))
    first_given, continuations, forms, exactness, boundaries, routes, samples, lengths, *columns = layout
    tokens = iter(zip(*columns, strict=True))
    of_scores = [tuple(next(tokens) for _ in range(length)) for length in lengths]
    scores = tuple(zip(forms, exactness, boundaries, routes, samples, of_scores, strict=True))
    if len(continuations) != len(scores):
        raise ValueError("continuations and scores differ in number")
    n_numbers = sum(
        1 if form == _ONE_TOKEN else length + 1 + (0 if form == _EXACT else (form - _OTHER).bit_count())
        for form, length in zip(forms, lengths, strict=True)
    )
    return _Layout(tuple(continuations), first_given, scores, n_numbers)
