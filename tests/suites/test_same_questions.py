"""The papers' questions and figures keep their keys: a store of an earlier version keeps its answers."""

from __future__ import annotations

import hashlib

import pytest

from audit.results.signatures import encode_parts, signature_json, write_signature
from audit.store.keys import answer_keys
from suites import MGBR, GenderPair

WRITTEN = {"mode": "generation", "prompt_format": "chat", "sampling": {"temperature": 0.7}, "repeats": 2}
RELEASED = {"groups": ["female"], "structures": ["brackets"], "prompt_format": "chat", "variant": "as_released"}


@pytest.mark.parametrize(
    ("suite", "options", "digest"),
    [
        (MGBR, {"n": 12}, "0a230c61d01f1ba2"),
        (MGBR, {"n": 6, **WRITTEN}, "49cf1af246a9149b"),
        (MGBR, {"n": 6, "mode": "generation", "genders": ["male"], "wording": "section_2"}, "cc8a35089293b9da"),
        (GenderPair, {"groups": ["male", "neither"]}, "a2e85bb5a011f541"),
        (
            GenderPair,
            {**RELEASED, "toxicity": None, "sampling": {"temperature": 0.9}, "repeats": 2},
            "d17afc93f2be2a68",
        ),
    ],
)
def test_ids_answer_keys_and_figures_stay_the_same(suite, options, digest):
    asked = suite(**options)
    found = hashlib.sha256(signature_json(dict(asked.signature())).encode())
    for item in asked.items():
        keys = [*answer_keys(item.request, "fingerprint")]
        found.update(signature_json([item.id, dict(item.factors), keys, item.is_control]).encode())
    for spec in asked.measures(()):
        found.update(write_signature(encode_parts({}), spec).encode())
    assert found.hexdigest()[:16] == digest
