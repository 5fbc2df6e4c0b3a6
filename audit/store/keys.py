"""Identity: when are two questions the same question?

An answer that was paid for must be found again, and an answer to another question must never be
taken for it. Both depend on one string, the key. A key is a hash of

    the question        the prompt to the last character, and one continuation, or how to generate
    the model           the fingerprint: everything about the model that may change a number
    the draw            ``seed`` and ``repeat`` of a generation

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
    """The one JSON spelling of ``obj``: sorted keys, no spaces, no ASCII escapes.

    Raises ValueError for NaN and infinities. The string may hold lone surrogates: encode it
    with `to_bytes`.
    """
    if obj is None:
        return "null"  # a part of most keys; the encoder's set-up takes ten times as long
    return _encode(obj)


def to_bytes(text: str) -> bytes:
    """UTF-8 in which lone surrogates survive; `from_bytes` reads it back."""
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
    """Short identity of a backend's fingerprint, e.g. ``fp1-0f3a…``."""
    return "fp1-" + _digest(dict(fingerprint))


def prompt_id(prompt: Any) -> str:
    """Identity of a prompt in its JSON form, under which the store keeps its text once."""
    return "p1-" + _digest(prompt)


def _digest(obj: Any) -> str:
    return hashlib.sha256(to_json_bytes(obj)).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request split into what the store keeps of it, with the keys of one model's answers. See `keyed_request`.

    ``details`` and ``keys`` are one for each answer: for each continuation of a `ScoreRequest`, in order; else one.
    ``kind``, ``prompt`` and ``details`` are those of `split_request`.
    """

    request: Request
    fingerprint: str
    kind: str
    prompt: Any
    details: tuple[Any, ...]
    keys: tuple[str, ...]

    def without(self, keys: Collection[str]) -> KeyedRequest:
        """The part that has none of ``keys``. Something must be left."""
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
    # A newline is never part of JSON as written here, so the parts cannot run into each other.
    prefix = _hash_prefix(kind, fingerprint).copy()
    prefix.update(to_bytes(f"{canonical_json(prompt)}\n"))
    keys = []
    for part in details:
        digest = prefix.copy()
        digest.update(to_json_bytes(part))
        keys.append("a1-" + digest.hexdigest()[:40])
    return KeyedRequest(request, fingerprint, kind, prompt, tuple(details), tuple(keys))


def answer_keys(request: Request, fingerprint: str) -> tuple[str, ...]:
    """The keys of `keyed_request`."""
    return keyed_request(request, fingerprint).keys


@functools.lru_cache(maxsize=64)
def _hash_prefix(kind: str, fingerprint: str) -> hashlib._Hash:
    """The hash of what the keys of a kind and a model have in common."""
    return hashlib.sha256(to_bytes(f"{kind}\n{canonical_json(fingerprint)}\n"))


def split_request(request: Request) -> tuple[str, Any, list[Any]]:
    """A request as (kind, prompt, details), ready for JSON: one part for each key.

    The part of a score is its continuation, in a list where its first token is given; of a generation, how it
    is drawn; a classification has none (None).
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
    """The request behind one key: the reverse of `split_request` for one part."""
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
