"""Weights that a config.json does not describe are told, and sound models are never refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends import ConfigError, HFBackend
from tests.backends.local.tiny_models import BASE, FAMILIES, GROUPED, save_model_of

TIED = {**GROUPED, "tie_word_embeddings": True}


def mixtral(tokens: int) -> Any:
    return transformers.MixtralConfig(**GROUPED, vocab_size=tokens, num_local_experts=4, num_experts_per_tok=2)


def resized(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model.resize_token_embeddings(320)
    model.save_pretrained(folder)


def divided(folder: Path) -> None:
    transformers.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink()


def with_a_further_head(folder: Path) -> None:
    """As a checkpoint with a value head beside its weights."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "v_head.weight": torch.zeros(1, 32)}, folder / "model.safetensors", {"format": "pt"})


#: A model, and what was done to its files: each can be loaded.
SOUND: dict[str, tuple[Callable[[int], Any], Callable[[Path], None]]] = {
    "tied and resized": (lambda v: transformers.LlamaConfig(**TIED, vocab_size=v), resized),
    "experts and divided": (mixtral, divided),
    "a further head": (FAMILIES["llama"], with_a_further_head),
    "a decoder of a kind of encoders": (
        lambda v: transformers.BertConfig(**{**BASE, "pad_token_id": 0}, vocab_size=v, is_decoder=True),
        lambda folder: None,
    ),
}


@pytest.mark.parametrize("done", SOUND)
def test_a_sound_model_is_loaded_and_writes_nothing(
    done: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config, change = SOUND[done]
    change(save_model_of(config, tmp_path))
    capfd.readouterr()
    HFBackend(tmp_path, threads=1).load()
    assert capfd.readouterr().err == ""


def quantised(dtype: torch.dtype, scale: str) -> Callable[[Path], None]:
    """The products' weights in 8 bits, with their scales under this ending; config.json names no quantisation."""

    def change(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        weights = load_file(folder / "model.safetensors")
        for name in [name for name in weights if name.endswith("_proj.weight")]:
            largest = 448.0 if dtype.is_floating_point else 127.0
            step = weights[name].abs().max() / largest
            weights[name] = (weights[name] / step).to(dtype)
            if scale:
                weights[name.removesuffix("weight") + scale] = step.reshape(1)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float8_e4m3fn, "weight_scale"),  # NVIDIA's ModelOpt, whose quantisation is in a file of its own
        (torch.float8_e4m3fn, "weight_scale_inv"),
        (torch.int8, "SCB"),
        (torch.int8, ""),
    ],
)
def test_weights_whose_scales_would_be_left_out_are_told(dtype: torch.dtype, scale: str, tmp_path: Path) -> None:
    """transformers left the scales out, and took the numbers of 8 bits for the weights themselves."""
    save_model_of(FAMILIES["llama"], tmp_path)
    quantised(dtype, scale)(tmp_path)
    with pytest.raises(ConfigError, match="are quantised, and its config"):
        HFBackend(tmp_path, threads=1).load()


def test_eight_bit_floats_without_scales_are_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_model_of(FAMILIES["llama"], tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    save_file({n: w.to(torch.float8_e4m3fn) for n, w in weights.items()}, tmp_path / "model.safetensors")
    HFBackend(tmp_path, threads=1).load()
