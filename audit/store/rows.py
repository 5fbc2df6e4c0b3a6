"""The table of answers: a row for each answered request, its answer as one value, with a checksum of all of it.

A value is exact to the last bit:

    version, run, prompt tokens, length    a byte, 2 bytes, 8 and 4, little-endian
    layout      JSON: what was asked besides the prompt, and all of the answer but the numbers of scores; compressed
                where it is of scores, since it is mostly one and the same for a suite's prompts
    numbers     log-probabilities of 8 bytes each, score by score

A number that repeats another of its score, as the bounds of an exact one do, is written once: the layout has for each
score's value, bounds and tokens the place among its different numbers, so that the layout is the same for most prompts.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import operator
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from audit.store.database import chunked, placeholders
from audit.store.keys import (
    Keyed,
    details,
    from_bytes,
    from_json_bytes,
    key_text,
    keyed,
    prompt_json,
    request_of,
    text_id,
    to_bytes,
)
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
_NO_NUMBER = -1
_LOGPROB, _TOKENS = operator.attrgetter("logprob"), operator.attrgetter("tokens")
_OF_SCORE = operator.attrgetter("exactness", "boundary", "route", "samples")
_OF_TOKEN = operator.attrgetter("text", "start", "end", "token_id", "exact")


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
        return Decoded(layout.details, run, ScoreResponse(_scores(layout, (*numbers, None)), prompt_tokens))
    if len(value) != start:
        raise ValueError("bytes follow the layout")
    asked, said = json.loads(from_bytes(value[_HEAD.size :]))
    answer = GenerateResponse(*said) if asked[0] == "generate" else ClassifyResponse(said[0])
    return Decoded(asked, run, answer)


# -- scores ------------------------------------------------------------------------------------


def _encode_scores(request: ScoreRequest, run: int, answer: ScoreResponse) -> bytes:
    scores, of_tokens = answer.scores, [*map(_TOKENS, answer.scores)]
    numbers: list[float] = []
    places: list[int] = []
    for score in scores:
        own: dict[float | str, int] = {}
        for number in (score.logprob, score.low, score.high, *map(_LOGPROB, score.tokens)):
            if number is None:
                places.append(_NO_NUMBER)
                continue
            known = len(own)
            places.append(own.setdefault(number or str(number), known))  # as a text, 0.0 and -0.0 differ
            if len(own) > known:
                numbers.append(number)
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a log-probability is not a finite number")
    layout = [
        details(request),
        places,
        *(zip(*map(_OF_SCORE, scores), strict=True) if scores else [()] * 4),
        [*map(len, of_tokens)],
        *(zip(*map(_OF_TOKEN, itertools.chain(*of_tokens)), strict=True) if any(of_tokens) else [()] * 5),
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


class _Layout(NamedTuple):
    """All of an answer but its numbers, with their places: of each token, and of each score's value and two bounds."""

    details: list[Any]
    tokens: list[tuple[Any, ...]]
    scores: list[tuple[Any, ...]]
    n_numbers: int


@functools.lru_cache(_LAYOUTS)
def _read_layout(version: int, compressed: bytes) -> _Layout:
    try:
        text = zlib.decompress(compressed)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    layout = orjson.loads(text) if version == _ORJSON else json.loads(from_bytes(text))
    asked, places, exactness, boundaries, routes, samples, lengths, *columns = layout
    if len(asked[1]) != len(lengths):
        raise ValueError("continuations and scores differ in number")
    left, at = iter(places), 0
    of_tokens: list[int] = []
    scores = []
    for facts in zip(exactness, boundaries, routes, samples, lengths, strict=True):
        own = list(itertools.islice(left, 3 + facts[-1]))
        value, low, high, *rest = [_NO_NUMBER if place == _NO_NUMBER else at + place for place in own]
        at += max(own) + 1
        scores.append((value, low, high, *facts[:-1], len(of_tokens), len(of_tokens) + len(rest)))
        of_tokens += rest
    return _Layout(asked, list(zip(*columns, of_tokens, strict=True)), scores, at)


def _scores(layout: _Layout, numbers: tuple[Any, ...]) -> tuple[ContinuationScore, ...]:
    """The scores, given their numbers and behind these None, which is at the place `_NO_NUMBER`."""
    tokens = [
        TokenLogprob(text, start, end, numbers[place], token_id, exact)
        for text, start, end, token_id, exact, place in layout.tokens
    ]
    return tuple([
        ContinuationScore(
            numbers[value], numbers[low], numbers[high], exactness, boundary, tuple(tokens[first:last]), route, samples
        )
        for value, low, high, exactness, boundary, route, samples, first, last in layout.scores
    ])  # fmt: skip


COLUMNS = "prompt, part, fingerprint, text, value, checksum, at, run"


class DamagedError(Exception):
    """A stored row is damaged."""


class AnswerRow(NamedTuple):
    """A row as its table has it. ``checksum`` covers all other columns. ``at``: seconds since the epoch."""

    prompt: bytes
    part: bytes
    fingerprint: str
    text: bytes
    value: bytes
    checksum: bytes
    at: float
    run: str

    @property
    def key(self) -> str:
        """The key as a text, also of a damaged row."""
        try:
            return key_text(self.prompt + self.part)
        except (TypeError, AttributeError):
            return repr((self.prompt, self.part))

    @property
    def is_sound(self) -> bool:
        """Whether the row is undamaged."""
        try:
            return _checksum(*self[:5], *self[6:]) == self.checksum
        except (TypeError, AttributeError, ValueError, struct.error):  # a column of another type than was written
            return False

    def content(self) -> Decoded:
        """The content of a sound row. Raises `DamagedError` if it cannot be read for all that."""
        try:
            return decode(self.value)
        except (TypeError, AttributeError, ValueError, KeyError, IndexError, struct.error):
            raise DamagedError from None

    def decoded(self) -> Decoded:
        """The content. Raises `DamagedError` if the row is damaged."""
        if not self.is_sound:
            raise DamagedError
        return self.content()

    def question(self, prompt: bytes | None) -> Keyed:
        """The request that it answers, given its prompt's text. Raises `DamagedError` if that is not its prompt."""
        try:
            if prompt is not None and text_id(prompt) == self.text:
                asked = self.decoded()
                found = keyed(request_of(from_json_bytes(prompt), asked.details), self.fingerprint, asked.run)
                if (found.prompt, found.part) == self[:2]:
                    return found
        except (TypeError, ValueError):
            pass
        raise DamagedError


class Written(NamedTuple):
    """A row to be stored, and its prompt's text."""

    row: AnswerRow
    prompt: bytes


def written(question: Keyed, answer: Response, at: float, run: str) -> Written:
    """An answer as its row. Raises ValueError if a number is not finite."""
    prompt = prompt_json(question.request)
    value = encode(question.request, question.run, answer)
    first = question.prompt, question.part, question.fingerprint, text_id(prompt), value
    return Written(AnswerRow(*first, _checksum(*first, at, run), at, run), prompt)


def _checksum(prompt: bytes, part: bytes, fingerprint: str, text: bytes, value: bytes, at: float, run: str) -> bytes:
    digest = hashlib.sha256(b"%d %d\n" % (len(value), len(run)))
    texts = f"{fingerprint}\n".encode("utf-8", "surrogatepass"), run.encode("utf-8", "surrogatepass")
    digest.update(b"".join((prompt, part, texts[0], text, value, struct.pack("<d", at), texts[1])))
    return digest.digest()[:16]


def insert(db: sqlite3.Connection, rows: Sequence[Written]) -> list[bool]:
    """Store answers, and end their leases; the first one under a key stays. Says of each whether it was stored."""
    store_prompts(db, {one.row.text: one.prompt for one in rows})
    keys = [one.row[:2] for one in rows]
    marks = placeholders(AnswerRow._fields)
    sql = f"INSERT OR IGNORE INTO answers ({COLUMNS}) VALUES ({marks})"
    new = db.executemany(sql, [one.row for one in rows]).rowcount
    db.executemany("DELETE FROM leases WHERE prompt = ? AND part = ?", keys)
    if new == len(rows):
        return [True] * len(rows)
    kept = {row[:2]: row.checksum for row in of_prompts(db, {prompt for prompt, _ in keys})}
    return [kept.get(one.row[:2]) == one.row.checksum for one in rows]


def store_prompts(db: sqlite3.Connection, bodies: dict[bytes, bytes]) -> None:
    """Store prompts by their ids. A damaged text is replaced, or else `verify` would doubt the new answers too."""
    db.executemany(
        "INSERT INTO prompts (id, body) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body",
        bodies.items(),
    )


def of_prompts(db: sqlite3.Connection, prompts: Iterable[bytes]) -> Iterator[AnswerRow]:
    """The rows under the first parts of keys, in the order in which they were stored within each statement."""
    for chunk in chunked(prompts):
        sql = f"SELECT {COLUMNS} FROM answers WHERE prompt IN ({placeholders(chunk)}) ORDER BY id"
        yield from map(AnswerRow._make, db.execute(sql, chunk))


def select(db: sqlite3.Connection, where: str = "", values: Sequence[Any] = ()) -> Iterator[AnswerRow]:
    """The rows that fulfil a condition."""
    yield from map(AnswerRow._make, db.execute(f"SELECT {COLUMNS} FROM answers {where}", values))


def prompt_of(db: sqlite3.Connection, row: AnswerRow) -> bytes | None:
    """The text of a row's prompt; None if there is none."""
    found = db.execute("SELECT body FROM prompts WHERE id = ?", (row.text,)).fetchone()
    return None if found is None else found[0]


def quarantine(db: sqlite3.Connection, rows: Iterable[AnswerRow], problem: str) -> None:
    """Move rows to the quarantine, so that they are asked again, unless another process has moved or replaced them."""
    for row in rows:
        now = db.execute(f"SELECT {COLUMNS} FROM answers WHERE prompt = ? AND part = ?", row[:2]).fetchone()
        if now == row:
            values = (row.key, to_bytes(repr(tuple(row))), problem, time.time())
            db.execute("INSERT INTO quarantine (key, row, problem, at) VALUES (?, ?, ?, ?)", values)
            db.execute("DELETE FROM answers WHERE prompt = ? AND part = ?", row[:2])
