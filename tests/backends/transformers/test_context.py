"""How many tokens a model may read: RoPE whose angles depend on the length."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from backends import BackendError, HFBackend
from backends.base import GenerateRequest, Sampling, ScoreRequest, ScoreResponse
from backends.transformers.context import context_length
from tests.backends.local.tiny_models import (
    BASE,
    GROUPED,
    log_probabilities,
    save_model_of,
)
from tests.backends.transformers.reference import plain_model, scores

LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 24, "factor": 4.0,
}  # fmt: skip


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}


def phi3(vocabulary: int) -> transformers.Phi3Config:
    """LongRoPE, with other angles beyond 24 tokens."""
    return transformers.Phi3Config(
        **BASE, num_key_value_heads=2, vocab_size=vocabulary, original_max_position_embeddings=24,
        rope_parameters=dict(LONGROPE),
    )  # fmt: skip


def test_longrope_is_limited_to_its_short_angles(tmp_path: Path) -> None:
    folder = save_model_of(phi3, tmp_path)
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    before = backend.describe_blocking().notes
    requests = [ScoreRequest("the police man", (" she",)), ScoreRequest("xyz" * 8, ("x",))]
    assert len(tokenizer(requests[1].prompt)["input_ids"]) == 24
    expected = []
    for request in requests:
        *read, last = tokenizer(request.prompt + request.continuations[0])["input_ids"]
        with torch.inference_mode():  # the last token is only predicted, never read
            expected.append(float(model(torch.tensor([read])).logits[0, -1].log_softmax(-1)[last]))
    far = ScoreRequest("xyz" * 8 + "x", ("y",))
    *together, refused = backend.run_blocking([*requests, far])
    assert [a.scores[0].logprob for a in together if isinstance(a, ScoreResponse)] == pytest.approx(expected, abs=1e-5)
    assert isinstance(refused, BackendError)
    assert refused.kind == "context_length"
    text = backend.run_blocking([GenerateRequest("xyz" * 6, Sampling(max_tokens=7))])[0]
    assert isinstance(text, BackendError)
    assert text.kind == "context_length"
    assert before["context"] == backend.describe_blocking().notes["context"]
    assert before["context"].startswith("24 tokens")


def test_dynamic_rope_within_its_context_has_one_set_of_angles(tmp_path: Path) -> None:
    folder = save_model_of(
        lambda v: transformers.LlamaConfig(**GROUPED, vocab_size=v, rope_parameters=dict(DYNAMIC)), tmp_path
    )
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    requests = [ScoreRequest("the police man", (" she",)), ScoreRequest("xyz" * 31 + "x", (" she",))]
    expected = [log_probabilities(model, tokenizer(r.prompt + r.continuations[0])["input_ids"])[-1] for r in requests]
    assert scores(backend, requests) == pytest.approx(expected, abs=1e-5)
    assert "context" not in backend.describe_blocking().notes


def test_rope_of_each_kind_of_layer_counts() -> None:
    config = transformers.Gemma3TextConfig(max_position_embeddings=96)
    assert context_length(config) == (96, "")
    assert context_length(transformers.XLNetConfig()) == (None, "")
    config.rope_parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": dict(LONGROPE),
    }
    assert context_length(config)[0] == 24
