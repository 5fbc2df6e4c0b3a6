"""Keys under which answers are stored: hashes of exactly what was asked, of which model, in which repeated run.

A key has two parts. The prompt's part identifies the prompt, the model and the number of the run (``runs=3`` asks a
model several times). The other part identifies the continuations that are scored. So the scores of a prompt's
continuations lie together, and a list with one more asks for that one only. All else of a request (how a text is drawn,
whole texts that are scored alone) belongs to the first part.

Text is compared exactly, without Unicode normalisation or trimming: to a tokenizer these are different prompts. JSON
with ASCII escapes would write U+1F600 and two lone surrogates alike; plain UTF-8 rejects lone surrogates. So keys are
hashed, and answers stored, as JSON without escapes in UTF-8 in which a lone surrogate keeps its own three bytes
("surrogatepass"). Floats are written with the fewest digits that read back to the same 64 bits.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from backends.base import (
    ClassifyRequest,
    GenerateRequest,
    Request,
    Sampling,
    ScoreRequest,
    prompt_from_json,
    prompt_to_json,
)

#: Bytes of a key's two parts.
PROMPT_BYTES, PART_BYTES = 16, 8
_PREFIX = "a2-"
_NO_PART = bytes(PART_BYTES)

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def canonical_json(obj: Any) -> str:
    """The canonical JSON of ``obj``: sorted keys, no spaces, no ASCII escapes.

    Raises ValueError for NaN and infinities. The string may contain lone surrogates: encode it with `to_bytes`.
    """
    return _encode(obj)


def to_bytes(text: str) -> bytes:
    """UTF-8 that preserves lone surrogates; `from_bytes` reads it back."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(data: bytes) -> str:
    """Read back what `to_bytes` wrote."""
    return data.decode("utf-8", "surrogatepass")


def to_json_bytes(obj: Any) -> bytes:
    """`canonical_json`, encoded; `from_json_bytes` reads it back."""
    return to_bytes(_encode(obj))


def from_json_bytes(data: bytes) -> Any:
    """Read back what `to_json_bytes` wrote."""
    return json.loads(from_bytes(data))


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """Short id of a backend's fingerprint, e.g. ``fp2-0f3a…``."""
    return "fp2-" + hashlib.sha256(to_json_bytes(dict(fingerprint))).hexdigest()[:40]


def text_id(body: bytes) -> bytes:
    """Id of a prompt in its JSON form, under which the store keeps its text once."""
    return hashlib.sha256(body).digest()[:PROMPT_BYTES]


class Keyed(NamedTuple):
    """A request with the key of one model's answer to it. ``run`` is the number of the repeated run, from 1."""

    request: Request
    fingerprint: str
    prompt: bytes
    part: bytes
    run: int = 1

    @property
    def key(self) -> str:
        """The key as a text, by which reports name an answer."""
        return key_text(self.prompt + self.part)


def key_text(key: bytes) -> str:
    """A key as a text."""
    return _PREFIX + key.hex()


def key_bytes(text: str) -> bytes | None:
    """A key from its text; None if it is none."""
    try:
        key = bytes.fromhex(text.removeprefix(_PREFIX))
    except ValueError:
        return None
    return key if len(key) == PROMPT_BYTES + PART_BYTES else None


#: Between the seeds of two runs' draws.
_NEXT_RUN = 1_000_003


def of_run(request: Request, run: int) -> Request:
    """A request as run 1, 2, … asks it afresh: draws have a seed of their own in each."""
    if run == 1 or not isinstance(request, GenerateRequest):
        return request
    return dataclasses.replace(request, seed=request.seed + (run - 1) * _NEXT_RUN)


def keyed(request: Request, fingerprint: str, run: int = 1) -> Keyed:
    """The key under which the answer of the model with this fingerprint's id is stored."""
    digest = _hash_of_model(type(request).__name__, fingerprint, run).copy()
    digest.update(prompt_json(request))
    if isinstance(request, ScoreRequest) and not request.first_given:
        part = _part(request.continuations)
    else:
        digest.update(b"\n" + to_json_bytes(details(request)))
        part = _NO_PART
    return Keyed(request, fingerprint, digest.digest()[:PROMPT_BYTES], part, run)


@functools.lru_cache(maxsize=64)
def _hash_of_model(kind: str, fingerprint: str, run: int) -> hashlib._Hash:
    return hashlib.sha256(to_bytes(f"{kind}\n{fingerprint}\n{run}\n"))


@functools.lru_cache(maxsize=256)
def _part(continuations: tuple[str, ...]) -> bytes:
    return hashlib.sha256(to_json_bytes(continuations)).digest()[:PART_BYTES]


def prompt_json(request: Request) -> bytes:
    """A request's prompt as JSON."""
    prompt = request.text if isinstance(request, ClassifyRequest) else request.prompt
    return _encode(prompt if isinstance(prompt, str) else prompt_to_json(prompt)).encode("utf-8", "surrogatepass")


def details(request: Request) -> list[Any]:
    """All of a request but its prompt, ready for JSON; `request_of` joins the two again."""
    match request:
        case ScoreRequest(_, continuations, first_given):
            return ["score", list(continuations), first_given]
        case GenerateRequest(_, drawn, seed, repeat):
            numbers = [float(drawn.temperature), float(drawn.top_p), int(drawn.top_k), float(drawn.repetition_penalty)]
            return ["generate", *numbers, int(drawn.max_tokens), list(drawn.stop), int(seed), int(repeat)]
        case ClassifyRequest():
            return ["classify"]


def request_of(prompt: Any, parts: list[Any]) -> Request:
    """The request of a prompt as a JSON value and of `details`. Raises ValueError for anything else."""
    match parts:
        case ["score", [*continuations], first_given]:
            return ScoreRequest(prompt_from_json(prompt), tuple(continuations), first_given)
        case ["generate", temperature, top_p, top_k, penalty, max_tokens, stop, seed, repeat]:
            sampling = Sampling(temperature, top_p, top_k, penalty, max_tokens, tuple(stop))
            return GenerateRequest(prompt_from_json(prompt), sampling, seed, repeat)
        case ["classify"]:
            return ClassifyRequest(prompt)
    raise ValueError(f"unknown kind of request: {parts[:1]}")
