"""A measure's signature: everything needed to reproduce it, except the model, as one line of text.

``key:value|key:value…``, with values as canonical JSON. ``%``, ``|`` and ``:`` in a key are percent-encoded, so that
`read_signature` can recover the parts.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from suites.base import Factor, MeasureSpec

_LONGEST_VALUE = 120  # characters of a value

#: Parts about the number of items and the confidence, not about what is measured.
EXTENT = frozenset({"limit", "seed", "sample", "confidence", "until"})


def encode_parts(parts: Mapping[str, Any]) -> dict[str, str]:
    """Encode the parts that many measures share. A long value, such as a list of templates, is replaced by its hash."""
    return {key: _short(value) for key, value in parts.items()}


def write_signature(encoded: Mapping[str, str], spec: MeasureSpec) -> str:
    """The signature of one measure: shared parts from `encode_parts`, then its own, which are never hashed."""
    own: dict[str, Any] = {
        "measure": spec.measure,
        "quantity": spec.quantity,
        "where": dict(spec.where),
        "estimator": spec.estimator,
        "clusters": list(spec.clusters),
        "covariate": spec.covariate,
        "coverage": spec.probability_mass,
    }
    if spec.membership is not None:
        own["membership"] = spec.membership
    if spec.weights is not None:
        weights: list[tuple[Factor, float]] = list(spec.weights.items())
        own |= {"stratum": spec.stratum, "weights": sorted(weights, key=signature_json)}
    fields = {**encoded, **{key: signature_json(value) for key, value in own.items()}}
    return "|".join([_part(key, value) for key, value in fields.items()])


def read_signature(signature: str) -> dict[str, Any]:
    """The parts of a signature."""
    pairs = (part.partition(":") for part in signature.split("|"))
    return {_unquoted(key): json.loads(_unquoted(value)) for key, _, value in pairs}


def signature_changes(before: str, now: str) -> dict[str, tuple[Any, Any]]:
    """The parts in which two signatures differ, by name: (before, now), None where one has no such part."""
    old, new = read_signature(before), read_signature(now)
    return {
        key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    }


#: JSON that is the same for equal values. Infinite numbers (a range) are allowed, unlike in a store's keys.
signature_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def _short(value: Any) -> str:
    written = signature_json(value)
    if len(written) <= _LONGEST_VALUE:
        return written
    return signature_json(f"sha256:{hashlib.sha256(written.encode()).hexdigest()[:16]}")


@functools.lru_cache(1024)  # figures have most parts in common
def _part(key: str, value: str) -> str:
    return f"{_quoted(key).replace(':', '%3A')}:{_quoted(value)}"


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("|", "%7C")


def _unquoted(text: str) -> str:
    return text.replace("%3A", ":").replace("%7C", "|").replace("%25", "%")
