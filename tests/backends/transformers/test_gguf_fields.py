"""GGUF files whose fields and tensors transformers ignores: refused where that would change numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import transformers

from backends import BackendError, ConfigError, HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.transformers.gguf_fields import check_fields, check_tensors
from tests.backends.local import tiny_models
from tests.backends.local.tiny_models import save_tiny_llama_gguf
from tests.backends.transformers.reference import scores

Add = Callable[[gguf.GGUFWriter], Any]

TEXTS = (
    "the man", " the man", "  the   man", "<|a|>the man", "the<|a|> she", "the <|a|>  man", "<s>the", "</s> the man",
    "é the", "a\nb\n\nthe", "\tman", " ", "▁the", "the▁man", "<unk>the", "<0x41>the",
)  # fmt: skip


def rotation(kind: gguf.RopeScalingType, factor: float) -> Add:
    return lambda writer: (writer.add_rope_scaling_type(kind), writer.add_rope_scaling_factor(factor))


@pytest.mark.parametrize(
    ("also", "what"),
    [
        (lambda w: w.add_tensor("rope_freqs.weight", np.linspace(1, 8, 8, dtype=np.float32)), "rope_freqs"),
        (rotation(gguf.RopeScalingType.LINEAR, 8.0), "rope.scaling"),
        (rotation(gguf.RopeScalingType.YARN, 4.0), "rope.scaling"),
        (lambda w: w.add_float32("llama.rope.scale_linear", 4.0), "rope.scaling"),
    ],
)
def test_a_rotation_that_is_ignored_is_refused(also: Add, what: str, tmp_path: Path) -> None:
    file = save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True, also=also)
    with pytest.raises(ConfigError, match=what):
        HFBackend(file).check()


@pytest.mark.parametrize("name", ["attn_q.bias", "attn_output.bias", "ffn_down.bias", "ffn_gate.scale"])
def test_a_tensor_that_is_ignored_is_refused(name: str, tmp_path: Path) -> None:
    """llama.cpp adds the bias and multiplies by the scale: numbers moved by up to 3 nats."""
    tensor = np.full(1 if name.endswith("scale") else 32, 0.5, dtype=np.float32)
    file = save_tiny_llama_gguf(
        tmp_path / "model.gguf", prefix_space=True, also=lambda w: w.add_tensor(f"blk.0.{name}", tensor)
    )
    (answer,) = HFBackend(file, threads=1).run_blocking([ScoreRequest("the man", (" he",))])
    assert isinstance(answer, BackendError)
    assert f"blk.0.{name}" in str(answer)


MIXTURE = {
    "hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 32,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip


def test_a_tensor_of_experts_that_is_ignored_is_refused() -> None:
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**MIXTURE))
    used = [f"blk.0.ffn_{name}_exps.weight" for name in ("gate", "up", "down")]
    check_tensors(Path("model.gguf"), model, "qwen3moe", [*used, "blk.0.ffn_gate_inp.weight"])
    for ignored in ("blk.0.ffn_up_exps.bias", "blk.0.ffn_down_exps.scale", "blk.1.ffn_up_exps.weight"):
        with pytest.raises(ConfigError, match=ignored):
            check_tensors(Path("model.gguf"), model, "qwen3moe", [*used, ignored])


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("gemma3", {"attention.key_length": 128}),
        ("gemma3", {"attention.key_length": 256, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
        ("gemma2", {"attention.key_length": 256, "final_logit_softcapping": 20.0}),
        ("starcoder2", {"rope.freq_base": 999_999.0}),
        ("stablelm", {"embedding_length": 64, "attention.head_count": 4, "rope.dimension_count": 16}),
        ("phi3", {"embedding_length": 64, "attention.head_count": 4, "rope.dimension_count": 12}),
    ],
)
def test_a_field_that_is_ignored_is_refused(architecture: str, fields: dict[str, Any]) -> None:
    header = {"general.architecture": architecture} | {
        f"{architecture}.{name}": value for name, value in fields.items()
    }
    with pytest.raises(ConfigError, match="transformers ignores"):
        check_fields(Path("model.gguf"), header, ())


@pytest.mark.parametrize(
    "fields",
    [
        {"rope.scaling.type": "none", "rope.scaling.factor": 8.0},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 1.0},
        {"attention.key_length": 256, "rope.dimension_count": 256, "attn_logit_softcapping": 50.0},
    ],
)
def test_a_field_without_effect_is_taken(fields: dict[str, Any]) -> None:
    header = {"general.architecture": "gemma2"} | {f"gemma2.{name}": value for name, value in fields.items()}
    check_fields(Path("model.gguf"), header, ())


@pytest.mark.parametrize("space", [True, False, None])
def test_sentencepiece_tokens_are_those_of_llamacpp(
    space: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that begins with a space, or follows a special token, was split otherwise; so was one without prefix."""
    if space is not True:
        own = gguf.GGUFWriter.add_add_space_prefix
        monkeypatch.setattr(
            gguf.GGUFWriter, "add_add_space_prefix", lambda w, _: None if space is None else own(w, space)
        )
    file = tiny_models.save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True)
    theirs, close = LlamaCppBackend(file)._load_encoder()
    ours, _ = HFBackend(file)._load_encoder()
    wanted, found = (pieces(encoder, TEXTS) for encoder in (theirs, ours))
    close()
    assert found == wanted


def pieces(encoder: Any, texts: Sequence[str]) -> list[list[bytes]]:
    return [[encoder.piece(token) for token in tokens] for tokens in encoder.encode(list(texts), chat=False)]


def test_both_engines_score_a_sentencepiece_file_alike(tmp_path: Path) -> None:
    file = save_tiny_llama_gguf(tmp_path / "model.gguf", prefix_space=True)
    requests = [ScoreRequest(text, (" he", "man")) for text in TEXTS[:6]]
    theirs = LlamaCppBackend(file, threads=1)
    wanted = scores(theirs, requests)  # type: ignore[arg-type]
    theirs.close_blocking()
    assert scores(HFBackend(file, threads=1), requests) == pytest.approx(wanted, abs=0.02)
