"""Adapters beside a model's weights: the numbers that PEFT gives, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends import ConfigError, HFBackend
from backends.base import ScoreRequest
from tests.backends.local.tiny_models import FAMILIES, GROUPED, log_probabilities, save_model_of
from tests.backends.transformers.reference import plain_model, scores
from tests.rounding import float32_close

peft = pytest.importorskip("peft")

BASES = {
    "tied": lambda v: transformers.LlamaConfig(**GROUPED, vocab_size=v, tie_word_embeddings=True),
    "gpt2": FAMILIES["gpt2"],
    "llama": FAMILIES["llama"],
}


def saved(base: str, config: Any, folder: Path) -> tuple[Path, Path]:
    """The folders of a tiny model and of an adapter of it that moves its numbers."""
    model = save_model_of(BASES[base], folder / "model")
    torch.manual_seed(3)
    adapted = peft.get_peft_model(plain_model(model)[0], config)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.add_(0.3 * torch.randn_like(weight))
    adapted.save_pretrained(folder / "adapter")
    return model, folder / "adapter"


def lora(*targets: str, **options: Any) -> Any:
    return peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=list(targets), **options)


@pytest.mark.parametrize(
    ("base", "config"),
    [
        ("tied", lora("q_proj", "embed_tokens")),
        ("tied", lora("q_proj", "lm_head")),
        ("tied", lora("embed_tokens", "lm_head")),
        ("tied", lora("q_proj", "embed_tokens", ensure_weight_tying=True)),
        ("tied", lora("q_proj", modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
        ("gpt2", lora("c_attn", "wte", fan_in_fan_out=True)),
        ("llama", lora("q_proj", layer_replication=[[0, 2], [1, 3]])),
        ("llama", lora("q_proj", layer_replication=[[0, 3], [0, 3]])),
        ("llama", lora("q_proj", use_dora=True, modules_to_save=["lm_head"])),
    ],
)
def test_an_adapter_of_shared_weights_keeps_its_numbers(base: str, config: Any, tmp_path: Path) -> None:
    """PEFT would merge what is for the embedding into the output head as well, and the other way round."""
    model, adapter = saved(base, config, tmp_path)
    plain, tokenizer = plain_model(model)
    adapted = peft.PeftModel.from_pretrained(plain, adapter).eval()
    ids = tokenizer("the police said that she")["input_ids"]
    expected = log_probabilities(adapted, ids)[-1]
    request = ScoreRequest("the police said that", (" she",))
    assert abs(scores(HFBackend(model, threads=1), [request])[0] - expected) > 0.1
    HFBackend(model, adapter=adapter).check()
    assert scores(HFBackend(model, adapter=adapter, threads=2), [request]) == float32_close([expected])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lora("q_proj", alora_invocation_tokens=[5]), "acts outside of the model's layers"),
        (peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4), "its weights do not match"),
        (peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4), "its weights do not match"),
    ],
    ids=["alora", "prompt", "prefix"],
)
def test_an_adapter_that_is_no_change_of_weights_is_refused(config: Any, reason: str, tmp_path: Path) -> None:
    model, adapter = saved("llama", config, tmp_path)
    with pytest.raises(ConfigError, match=reason) as error:
        HFBackend(model, adapter=adapter, threads=1).load()
    assert error.value.field == "adapter"


TWO = {"target_modules": ["q_proj", "o_proj"]}
#: Kinds of PEFT beside LoRA that change weights.
KINDS = {
    "HRA": lambda: peft.HRAConfig(r=4, **TWO),
    "IA3": lambda: peft.IA3Config(target_modules=["q_proj", "down_proj"], feedforward_modules=["down_proj"]),
    "VERA": lambda: peft.VeraConfig(r=4, **TWO),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_pefts_numbers_or_is_refused(kind: str, tmp_path: Path) -> None:
    model, adapter = saved("llama", KINDS[kind](), tmp_path)
    plain, tokenizer = plain_model(model)
    adapted = peft.PeftModel.from_pretrained(plain, adapter).eval()
    expected = log_probabilities(adapted, tokenizer("the police said that she")["input_ids"])[-1]
    backend = HFBackend(model, adapter=adapter, threads=1)
    backend.check()
    assert scores(backend, [ScoreRequest("the police said that", (" she",))]) == float32_close([expected])


def test_an_adapter_of_another_base_is_stated(tmp_path: Path) -> None:
    """One of the same shape can be applied; whether it belongs there, its reader has to know."""
    model, adapter = saved("llama", lora("q_proj"), tmp_path)
    own = HFBackend(model, adapter=adapter, threads=1).describe_blocking().statements
    assert not [said for said in own if "trained on" in said]
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "org/other"}))
    other = HFBackend(model, adapter=adapter, threads=1).describe_blocking().statements
    assert [said for said in other if said.startswith("its adapter says that it was trained on org/other")]
