"""Identity: when are two questions the same question?

An answer that was paid for must be found again, and an answer to another question must never be
taken for it. Both depend on one string, the key. A key is a hash of

    what was asked      the prompt to the last character, and one continuation, or how to generate
    of whom             the fingerprint: everything about the model that may change a number
    which draw          ``seed`` and ``repeat`` of a generation

and of nothing else. Not of the model's display name, the suite, the item, the run or the time: a
model renamed in a config keeps its answers, and two suites that ask the same share them.

One key for one continuation. A `ScoreRequest` carries all continuations of a prompt because a
backend computes them together, but each log P(continuation | prompt) is a fact of its own. So each
has a key of its own, and one more expression in a list asks for that expression only.

Text is compared as it is. No Unicode normalisation, no trimming, no folding of line ends: to a
tokenizer these are different prompts. Two traps lie here. JSON with ASCII escapes writes the one
character U+1F600 and the two lone surrogates D83D DE00 alike, so it would give two prompts one
key, and would read the second back as the first. Plain UTF-8 refuses lone surrogates altogether.
Keys are therefore hashed, and answers stored, as JSON without ASCII escapes, encoded as UTF-8 in
which a lone surrogate keeps its own three bytes ("surrogatepass").

Numbers have one spelling: a sampling temperature of 0 and of 0.0 is the same temperature. Floats
are written with the fewest digits that read back to the same 64 bits, so a stored log-probability
is the one that was received.

Keys, fingerprints and prompts carry a tag with a version (``a1-``, ``fp1-``, ``p1-``): if this
definition ever changes, old and new identities cannot be mistaken for each other.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import (
    Answer,
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Request,
    Response,
    Sampling,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
    prompt_from_json,
    prompt_to_json,
)
from backends.errors import BackendError

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def canonical_json(obj: Any) -> str:
    """The one JSON spelling of ``obj``: sorted keys, no spaces, no ASCII escapes.

    Raises ValueError for NaN and infinities. The string may hold lone surrogates: encode it
    with `to_bytes`.
    """
    if obj is None:
        return "null"  # of most keys a part; the encoder takes ten times as long to begin
    return _encode(obj)


def to_bytes(text: str) -> bytes:
    """UTF-8 in which lone surrogates survive; `from_bytes` reads it back."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(data: bytes) -> str:
    """Read back what `to_bytes` wrote."""
    return data.decode("utf-8", "surrogatepass")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:40]


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """Short identity of a backend's fingerprint, e.g. ``fp1-0f3a…``."""
    return "fp1-" + _digest(to_bytes(canonical_json(dict(fingerprint))))


def prompt_id(prompt: Any) -> str:
    """Identity of a prompt in its JSON form, under which the store keeps its text once."""
    return "p1-" + _digest(to_bytes(canonical_json(prompt)))


def answer_keys(request: Request, fingerprint: str) -> tuple[str, ...]:
    """The keys under which the answers to ``request`` are stored.

    Parameters
    ----------
    request : Request
        What is asked.
    fingerprint : str
        `fingerprint_id` of the model asked.

    Returns
    -------
    tuple of str
        One key a continuation, in order, for a `ScoreRequest`; else a single key.
    """
    kind, prompt, details = split_request(request)
    # A newline is never part of JSON as written here, so the parts cannot run into each other.
    asked = _hash_prefix(kind, fingerprint).copy()
    asked.update(to_bytes(f"{canonical_json(prompt)}\n"))
    keys = []
    for detail in details:
        one = asked.copy()
        one.update(to_bytes(canonical_json(detail)))
        keys.append("a1-" + one.hexdigest()[:40])
    return tuple(keys)


@functools.lru_cache(maxsize=64)
def _hash_prefix(kind: str, fingerprint: str) -> hashlib._Hash:
    """The hash of what the keys of a kind and a model have in common."""
    return hashlib.sha256(to_bytes(f"{kind}\n{canonical_json(fingerprint)}\n"))


def split_request(request: Request) -> tuple[str, Any, list[Any]]:
    """A request as (kind, prompt, details), JSON-ready: one detail for each key.

    The detail of a score is its continuation; of a generation how it is drawn; a
    classification has none (None).
    """
    match request:
        case ScoreRequest(prompt, continuations):
            return "score", prompt_to_json(prompt), list(continuations)
        case GenerateRequest(prompt, sampling, seed, repeat):
            drawn = [
                float(sampling.temperature),
                float(sampling.top_p),
                int(sampling.top_k),
                float(sampling.repetition_penalty),
                int(sampling.max_tokens),
                list(sampling.stop),
                int(seed),
                int(repeat),
            ]
            return "generate", prompt_to_json(prompt), [drawn]
        case ClassifyRequest(text):
            return "classify", text, [None]


def join_request(kind: str, prompt: Any, detail: Any) -> Request:
    """The request behind one key: the reverse of `split_request` for one detail."""
    if kind == "score":
        return ScoreRequest(prompt_from_json(prompt), (detail,))
    if kind == "generate":
        temperature, top_p, top_k, penalty, max_tokens, stop, seed, repeat = detail
        sampling = Sampling(temperature, top_p, top_k, penalty, max_tokens, tuple(stop))
        return GenerateRequest(prompt_from_json(prompt), sampling, seed, repeat)
    if kind == "classify":
        return ClassifyRequest(prompt)
    raise ValueError(f"unknown kind of request {kind!r}")


def request_to_json(request: Request) -> Any:
    """JSON form of a request; `request_from_json` reads it back."""
    kind, prompt, details = split_request(request)
    return [kind, prompt, details]


def request_from_json(data: Any) -> Request:
    """Read back what `request_to_json` wrote."""
    kind, prompt, details = data
    if kind == "score":
        return ScoreRequest(prompt_from_json(prompt), tuple(details))
    return join_request(kind, prompt, details[0])


def split_response(request: Request, response: Response) -> list[Response]:
    """A fitting response in as many pieces as the request has keys."""
    if isinstance(response, ScoreResponse):
        return [ScoreResponse((score,), response.prompt_tokens) for score in response.scores]
    return [response]


def join_answers(request: Request, keys: Sequence[str], stored: Mapping[str, Answer]) -> Answer | None:
    """The answer to ``request`` from what is stored under its ``keys``.

    Returns
    -------
    Answer or None
        None when a key is not stored. A failure of any continuation is the answer of the whole
        request: a sum over expressions with one of them left out would be a wrong number.
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


def fits(request: Request, answer: Answer) -> bool:
    """Whether an answer has the type, length and range its request asks for. A `BackendError` fits."""
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


def answer_to_json(answer: Answer) -> Any:
    """Compact JSON form of an answer; `answer_from_json` reads it back to the last bit."""
    match answer:
        case ScoreResponse(scores, prompt_tokens):
            return ["score", [_score_to_json(s) for s in scores], prompt_tokens]
        case GenerateResponse(text, finish_reason, prompt_tokens, completion_tokens):
            return ["generate", text, finish_reason, prompt_tokens, completion_tokens]
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
