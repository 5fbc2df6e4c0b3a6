"""JSON forms of answers and rows, exact to the last bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from audit.store.keys import from_bytes, to_bytes
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
from suites.base import IdentifiedInterval, Row

ROWS_A_CHUNK = 2000  # few enough for memory, enough to compress well


# -- answers -----------------------------------------------------------------------------------


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


def split_response(response: Response) -> list[Response]:
    """Split a response into one piece for each key of its request."""
    if isinstance(response, ScoreResponse):
        return [ScoreResponse((score,), response.prompt_tokens) for score in response.scores]
    return [response]


def join_answers(request: Request, keys: Sequence[str], stored: Mapping[str, Answer]) -> Answer | None:
    """Assemble the answer to ``request`` from what is stored under its ``keys``.

    Returns
    -------
    Answer or None
        None if a key is not stored. The failure of any continuation is the answer to the whole
        request: a sum over expressions that omits one of them would be wrong.
    """
    pieces = [stored.get(key) for key in keys]
    for piece in pieces:
        if isinstance(piece, BackendError):
            return piece
    if None in pieces:
        return None
    if not isinstance(request, ScoreRequest):
        return pieces[0]
    scored = [piece for piece in pieces if isinstance(piece, ScoreResponse)]
    return ScoreResponse(
        tuple(score for piece in scored for score in piece.scores), max(piece.prompt_tokens for piece in scored)
    )


def answer_to_json(answer: Answer) -> Any:
    """Compact JSON form of an answer; `answer_from_json` restores it to the last bit."""
    match answer:
        case ScoreResponse(scores, prompt_tokens):
            return ["score", [_score_to_json(s) for s in scores], prompt_tokens]
        case GenerateResponse(text, finish_reason, prompt_tokens, completion_tokens, thought, thought_tokens):
            thoughts = [thought, thought_tokens] if thought or thought_tokens else []
            return ["generate", text, finish_reason, prompt_tokens, completion_tokens, *thoughts]
        case ClassifyResponse(labels):
            return ["classify", dict(labels)]
        case BackendError():
            return ["error", answer.to_json()]


def answer_from_json(data: Any) -> Answer:
    """Read back what `answer_to_json` wrote. Raises ValueError for anything else."""
    kind, *rest = data
    match kind:
        case "score":
            scores, prompt_tokens = rest
            return ScoreResponse(tuple([_score_from_json(s) for s in scores]), prompt_tokens)
        case "generate":
            return GenerateResponse(*rest)
        case "classify":
            return ClassifyResponse(rest[0])
        case "error":
            return BackendError.from_json(rest[0])
    raise ValueError(f"unknown kind of answer {kind!r}")


def _score_to_json(score: ContinuationScore) -> list[Any]:
    tokens = [[t.text, t.start, t.end, t.logprob, t.token_id, t.exact] for t in score.tokens]
    return [
        score.logprob,
        score.low,
        score.high,
        score.exactness,
        score.boundary,
        tokens,
        score.route,
        score.samples,
    ]


def _score_from_json(data: list[Any]) -> ContinuationScore:
    logprob, low, high, exactness, boundary, tokens, route, samples = data
    return ContinuationScore(
        logprob, low, high, exactness, boundary, tuple([TokenLogprob(*t) for t in tokens]), route, samples
    )


# -- rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A suite's row, with the keys of the answers it was read from.

    ``derived``: whether it is computed from items that have rows of their own; None in runs of versions that did not
    store it.
    """

    row: Row
    keys: tuple[str, ...]
    derived: bool | None = None


#: Between a row's item and factors where the json module wrote it: lone surrogates, and numbers that orjson would read
#: as floats.
_BY_JSON = b", {"


def write_chunk(rows: Sequence[StoredRow]) -> bytes:
    """Rows as JSON: ``[item, factors, quantities, missing, keys, memberships, derived]`` each.

    A quantity is a single number if it equals its bounds, else ``[value or null, low, high]``, with the variance of its
    draws as a fourth if it was counted from drawn answers; it is never NaN
    (`IdentifiedInterval` ensures that). A factor that is NaN becomes null, since JSON has no NaN.
    """
    written = [
        [
            stored.row.item_id,
            dict(stored.row.factors),
            {
                name: _numbers(n) if n.draw_variance == 0 else [n.value, n.low, n.high, n.draw_variance]
                for name, n in stored.row.values.items()
            },
            stored.row.missing,
            stored.keys,
            dict(stored.row.memberships),
            stored.derived,
        ]
        for stored in rows
    ]
    try:
        return orjson.dumps(written)
    except orjson.JSONEncodeError:  # lone surrogates, and whole numbers of more than 64 bits
        return to_bytes(json.dumps(written, ensure_ascii=False, allow_nan=False))


def _numbers(n: IdentifiedInterval) -> float | list[float | None] | None:
    return n.value if n.value == n.low == n.high else [n.value, n.low, n.high]


def read_chunk(text: bytes, *, derived: bool = True) -> list[StoredRow]:
    """Read back what `write_chunk` wrote; without ``derived``, not the rows known to be."""
    return [
        StoredRow(
            Row(
                item,
                factors,
                {
                    name: IdentifiedInterval(*number) if isinstance(number, list) else IdentifiedInterval.exact(number)
                    for name, number in quantities.items()
                },
                missing,
                memberships={factor: tuple(levels) for factor, levels in more[0].items()} if more else {},
            ),
            tuple(keys),
            more[1] if len(more) > 1 else None,
        )
        for item, factors, quantities, missing, keys, *more in _load_rows(text)
        if derived or len(more) < 2 or not more[1]
    ]


def _load_rows(text: bytes) -> list[list[Any]]:
    return list(json.loads(from_bytes(text)) if _BY_JSON in text else orjson.loads(text))
