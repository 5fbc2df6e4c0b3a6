"""Weights laid out for the CPU's matrix kernels: the same numbers, or the model as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends import HFBackend
from backends.transformers import weight_layout
from backends.transformers.weight_layout import LaidOutLinear, lay_out
from tests.backends.transformers.test_placement import PARTS

pytestmark = pytest.mark.skipif(not weight_layout._has_kernels(), reason="a CPU without these kernels")
IDS = torch.tensor([[5, 7, 11, 13, 17, 19]])


def loaded(folder: Path, dtype: str = "float32") -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(IDS).logits
        return found


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_neox"])
def test_numbers_in_float32_move_by_rounding_alone(folders: dict[str, Path], family: str) -> None:
    model = loaded(folders[family])
    usual = logits(model)
    assert lay_out(model) > 0
    assert float((logits(model) - usual).abs().max()) < 1e-5


def test_numbers_in_bfloat16_stay_bit_by_bit(folders: dict[str, Path]) -> None:
    model = loaded(folders["llama"], "bfloat16")
    usual = logits(model)
    assert lay_out(model) > 0
    assert torch.equal(logits(model), usual)


def test_a_row_does_not_depend_on_those_beside_it() -> None:
    layer = torch.nn.Linear(576, 1536)
    rows = torch.randn(100, 576, generator=torch.Generator().manual_seed(0))
    weight_layout._change(layer)
    with torch.inference_mode():
        together = layer(rows)
        assert all(torch.equal(layer(rows[:count]), together[:count]) for count in (1, 2, 3, 17, 64))


def test_a_model_that_reads_its_weights_stays_as_it_was(folders: dict[str, Path]) -> None:
    model = loaded(folders["llama"])
    held = {name: weight.clone() for name, weight in model.named_parameters()}
    read = model.model.layers[0].self_attn.q_proj
    model.model.layers[0].input_layernorm.register_forward_hook(lambda _, __, x: x + read.weight.mean())
    usual = logits(model)
    assert lay_out(model) == 0
    assert torch.equal(logits(model), usual)
    assert all(torch.equal(weight, held[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_dtypes_stay_as_they_are(folders: dict[str, Path], dtype: str) -> None:
    assert lay_out(loaded(folders["llama"], dtype)) == 0


def test_layers_moved_for_each_pass_stay_as_they_are(folders: dict[str, Path], tmp_path: Path) -> None:
    backend = HFBackend(folders["llama"], device_map=PARTS, offload_folder=tmp_path)
    model = backend.load().model
    assert not any(isinstance(module, LaidOutLinear) for module in model.modules())


def test_an_audited_model_is_laid_out(folders: dict[str, Path]) -> None:
    model = HFBackend(folders["llama"], device="cpu").load().model
    assert isinstance(model.lm_head, LaidOutLinear)
    assert all(isinstance(layer.mlp.up_proj, LaidOutLinear) for layer in model.model.layers)
