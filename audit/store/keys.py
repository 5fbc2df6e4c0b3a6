"""Identity: when are two questions the same question?

An answer that was paid for must be found again, and must never be mistaken for the answer to
another question. Both depend on one string, the key. It is a hash of

    the question        the prompt to the last character, and one continuation, or how to generate
    the model           the fingerprint: everything about the model that may change a number
    the draw            ``seed`` and ``repeat`` of a generation

and of nothing else: not of the model's display name, the suite, the item, the run or the time. So a
model that is renamed in a config keeps its answers, and suites that ask the same question share them.

Each continuation has its own key. A `ScoreRequest` contains all continuations of a prompt because a
backend computes them together, but each log P(continuation | prompt) is a separate fact. So adding
an expression to a list asks for that expression only.

Text is compared exactly, without Unicode normalisation, trimming, or folding of line ends: to a
tokenizer these are different prompts. There are two traps. JSON with ASCII escapes writes the single
character U+1F600 and the two lone surrogates D83D DE00 the same way, so it would give two prompts one
key, and would read the second back as the first. Plain UTF-8 rejects lone surrogates altogether.
Keys are therefore hashed, and answers stored, as JSON without ASCII escapes, encoded as UTF-8 in
which a lone surrogate keeps its own three bytes ("surrogatepass").

Numbers have one spelling: the sampling temperatures 0 and 0.0 are the same. Floats are written with
the fewest digits that read back to the same 64 bits, so a stored log-probability is the one that was
received.

Keys, fingerprints and prompts have a version prefix (``a1-``, ``fp1-``, ``p1-``): if this
definition ever changes, old and new identities cannot be confused.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from backends.base import (
    ClassifyRequest,
    GenerateRequest,
    Request,
    Sampling,
    ScoreRequest,
    prompt_from_json,
    prompt_to_json,
)

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode


def canonical_json(obj: Any) -> str:
    """The canonical JSON of ``obj``: sorted keys, no spaces, no ASCII escapes.

    Raises ValueError for NaN and infinities. The string may contain lone surrogates: encode it
    with `to_bytes`.
    """
    if obj is None:
        return "null"  # part of most keys; ten times faster than the encoder
    return _encode(obj)


def to_bytes(text: str) -> bytes:
    """UTF-8 that preserves lone surrogates; `from_bytes` reads it back."""
    return text.encode("utf-8", "surrogatepass")


def from_bytes(data: bytes) -> str:
    """Read back what `to_bytes` wrote."""
    return data.decode("utf-8", "surrogatepass")


def to_json_bytes(obj: Any) -> bytes:
    """`canonical_json`, encoded; `from_json_bytes` reads it back."""
    return to_bytes(canonical_json(obj))


def from_json_bytes(data: bytes) -> Any:
    """Read back what `to_json_bytes` wrote."""
    return json.loads(from_bytes(data))


def fingerprint_id(fingerprint: Mapping[str, Any]) -> str:
    """Short id of a backend's fingerprint, e.g. ``fp1-0f3a…``."""
    return "fp1-" + _digest(dict(fingerprint))


def prompt_id(prompt: Any) -> str:
    """Id of a prompt in its JSON form, under which the store keeps its text once."""
    return "p1-" + _digest(prompt)


def _digest(obj: Any) -> str:
    return hashlib.sha256(to_json_bytes(obj)).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request split into the parts that are stored, with the keys of one model's answers. See `keyed_request`.

    ``details`` and ``keys`` have one entry for each answer: for each continuation of a `ScoreRequest`, in order, else
    one. ``kind``, ``prompt`` and ``details`` are those of `split_request`.
    ``group`` is the hash of what all keys of the prompt, its kind and the model have in common.
    """

    request: Request
    fingerprint: str
    kind: str
    prompt: Any
    details: tuple[Any, ...]
    keys: tuple[str, ...]
    group: bytes

    def without(self, keys: Collection[str]) -> KeyedRequest:
        """The part of the request without ``keys``, which must not be empty."""
        left = [place for place, key in enumerate(self.keys) if key not in keys]
        if len(left) == len(self.keys):
            return self
        assert isinstance(self.request, ScoreRequest)  # only these have more than one key
        return KeyedRequest(
            dataclasses.replace(self.request, continuations=tuple(self.request.continuations[i] for i in left)),
            self.fingerprint,
            self.kind,
            self.prompt,
            tuple(self.details[i] for i in left),
            tuple(self.keys[i] for i in left),
            self.group,
        )


def keyed_request(request: Request, fingerprint: str) -> KeyedRequest:
    """Split a request, and compute the keys under which one model's answers to it are stored.

    Parameters
    ----------
    request : Request
        The question.
    fingerprint : str
        Id of the model's fingerprint.
    """
    kind, prompt, details = split_request(request)
    # Canonical JSON contains no newline, so the parts cannot run into each other.
    prefix = _hash_prefix(kind, fingerprint).copy()
    prefix.update(to_bytes(f"{canonical_json(prompt)}\n"))
    keys = []
    for part in details:
        digest = prefix.copy()
        digest.update(to_json_bytes(part))
        keys.append("a1-" + digest.hexdigest()[:40])
    return KeyedRequest(request, fingerprint, kind, prompt, tuple(details), tuple(keys), prefix.digest()[:20])


def answer_keys(request: Request, fingerprint: str) -> tuple[str, ...]:
    """The keys of `keyed_request`."""
    return keyed_request(request, fingerprint).keys


@functools.lru_cache(maxsize=64)
def _hash_prefix(kind: str, fingerprint: str) -> hashlib._Hash:
    """The hash state shared by all keys of a kind and a model."""
    return hashlib.sha256(to_bytes(f"{kind}\n{canonical_json(fingerprint)}\n"))


def split_request(request: Request) -> tuple[str, Any, list[Any]]:
    """A request as (kind, prompt, details), ready for JSON, with one of the details for each key.

    For a score that is the continuation, wrapped in a list if its first token is given; for a generation, the sampling
    parameters; for a classification, None.
    """
    match request:
        case ScoreRequest(prompt, continuations, first_given):
            parts = [[continuation] for continuation in continuations] if first_given else list(continuations)
            return "score", prompt_to_json(prompt), parts
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


def join_request(kind: str, prompt: Any, part: Any) -> Request:
    """The request behind one key: the inverse of `split_request` for one part."""
    if kind == "score":
        if isinstance(part, list):
            return ScoreRequest(prompt_from_json(prompt), tuple(part), first_given=True)
        return ScoreRequest(prompt_from_json(prompt), (part,))
    if kind == "generate":
        temperature, top_p, top_k, penalty, max_tokens, stop, seed, repeat = part
        sampling = Sampling(temperature, top_p, top_k, penalty, max_tokens, tuple(stop))
        return GenerateRequest(prompt_from_json(prompt), sampling, seed, repeat)
    if kind == "classify":
        return ClassifyRequest(prompt)
    raise ValueError(f"unknown kind of request {kind!r}")
