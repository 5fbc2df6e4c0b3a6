"""How many tokens a model may read: RoPE whose angles depend on the length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends import BackendError, HFBackend
from backends.base import GenerateRequest, Sampling, ScoreRequest, ScoreResponse
from backends.transformers.backend import PACK_TOKENS
from backends.transformers.context import alike_places, context_length
from tests.backends.local.tiny_models import (
    BASE,
    GROUPED,
    log_probabilities,
    save_model_of,
)
from tests.backends.transformers.reference import plain_model, scores
from tests.rounding import float32_close

LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 24, "factor": 4.0,
}  # fmt: skip


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
    assert [a.scores[0].logprob for a in together if isinstance(a, ScoreResponse)] == float32_close(expected)
    assert isinstance(refused, BackendError)
    assert refused.kind == "context_length"
    text = backend.run_blocking([GenerateRequest("xyz" * 6, Sampling(max_tokens=7))])[0]
    assert isinstance(text, BackendError)
    assert text.kind == "context_length"
    assert before["context"] == backend.describe_blocking().notes["context"]
    assert before["context"].startswith("24 tokens")


def test_rope_of_each_kind_of_layer_counts() -> None:
    config = transformers.Gemma3TextConfig(max_position_embeddings=96)
    assert context_length(config) == (96, "")
    assert context_length(transformers.XLNetConfig()) == (None, "")
    config.rope_parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": dict(LONGROPE),
    }
    assert context_length(config)[0] == 24


def test_places_that_no_scaling_counts_have_no_limit() -> None:
    assert alike_places(llama4(99)) == 19
    assert alike_places(transformers.Llama4TextConfig(attn_temperature_tuning=False)) is None


def llama4(vocabulary: int) -> transformers.Llama4TextConfig:
    """Queries are scaled by their place, in steps of 20 tokens, in every second layer."""
    return transformers.Llama4TextConfig(
        **GROUPED, vocab_size=vocabulary, intermediate_size_mlp=48, num_local_experts=2, attention_chunk_size=96,
        floor_scale=20, attn_scale=2.0, no_rope_layers=[1, 0, 1],
    )  # fmt: skip


LONG = "xyz abc " * 6  # 48 tokens


@pytest.mark.parametrize("pack", [512, 16])
def test_places_that_a_model_counts_itself_are_the_text_s(
    pack: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree's row of tokens was counted through, so that texts behind others were scaled: 0.5 nats."""
    monkeypatch.setitem(PACK_TOKENS, "cpu", pack)
    folder = save_model_of(llama4, tmp_path)
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    requests = [ScoreRequest(f"{start}bcd", (" she", "xy", "z")) for start in ("k", "q", "a", "t", "u", LONG[:13])]
    expected = []
    for request in requests:
        start = len(tokenizer(request.prompt)["input_ids"])
        for continuation in request.continuations:
            tokens = tokenizer(request.prompt + continuation)["input_ids"]
            expected.append(sum(log_probabilities(model, tokens)[start - 1 :]))
    assert scores(backend, requests) == float32_close(expected)
    assert backend.load().route.startswith("tree")
    for asked in (ScoreRequest(LONG, ("z",)), GenerateRequest(LONG[:13], Sampling(max_tokens=9))):
        (far,) = backend.run_blocking([asked])
        assert isinstance(far, BackendError)
        assert far.kind == "context_length", "beyond them places are counted along a pass"


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (lambda v: transformers.MptConfig(vocab_size=v, d_model=32, n_layers=2, n_heads=4, max_seq_len=24), 24),
        (
            lambda v: transformers.RobertaConfig(
                **{**BASE, "pad_token_id": 1, "max_position_embeddings": 26}, vocab_size=v, is_decoder=True
            ),
            24,
        ),
    ],
    ids=["mpt", "roberta"],
)
def test_places_are_counted_as_the_model_has_them(config: Any, most: int, tmp_path: Path) -> None:
    """MPT names its limit otherwise; RoBERTa has two places fewer than its config says. Both ended in torch's words."""
    backend = HFBackend(save_model_of(config, tmp_path), threads=1)
    texts = ["x" * (most - 1), "x" * most, "x" * (most + 1), "x" * 90]
    answers = backend.run_blocking([ScoreRequest(text, ("yy",)) for text in texts])
    kinds = ["" if isinstance(answer, ScoreResponse) else answer.kind for answer in answers]  # type: ignore[union-attr]
    assert kinds == ["", "context_length", "context_length", "context_length"]
    [written] = backend.run_blocking([GenerateRequest("x" * 20, Sampling(max_tokens=9))])
    assert isinstance(written, BackendError)
    assert written.kind == "context_length"
