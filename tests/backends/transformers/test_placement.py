"""Models spread over devices and the disk, quantised on load, with another attention."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from backends import ConfigError, HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling
from backends.local.trie import Branches, Trie
from backends.local.trie import Path as TokenPath
from backends.transformers.placement import Placement, input_device
from backends.transformers.scoring import attention
from tests.backends.transformers.reference import REQUESTS, plain_model, scores
from tests.rounding import float32_close

PARTS = {
    "model.embed_tokens": "disk", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "disk",
    "model.layers.0": "cpu", "model.layers.1": "disk", "model.layers.2": "disk",
}  # fmt: skip


def texts(backend: HFBackend) -> list[str]:
    answers = backend.run_blocking([GenerateRequest(p, Sampling(max_tokens=9)) for p in ("the man", "the police said")])
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    return [answer.text for answer in answers if isinstance(answer, GenerateResponse)]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_a_model_on_cpu_and_disk_answers_as_a_whole_one(family: str, folders: dict[str, Path], tmp_path: Path) -> None:
    whole = HFBackend(folders[family], threads=1)
    spread = HFBackend(folders[family], threads=1, device_map=PARTS, offload_folder=tmp_path)
    spread.check()
    assert scores(spread, REQUESTS) == float32_close(scores(whole, REQUESTS))
    assert texts(spread) == texts(whole)
    assert spread.notes_of_run()["route"] == whole.notes_of_run()["route"]
    assert spread.describe_blocking().fingerprint == whole.describe_blocking().fingerprint
    layers = spread.load().model.model.layers
    assert [next(layer.parameters()).device.type for layer in layers] == ["cpu", "meta", "meta"]


def test_layers_on_another_device_get_the_tree_there() -> None:
    """As layers on a second GPU would: here, where no number is computed."""
    trie = Trie([((), Branches([TokenPath((1, 2, 3), 1), TokenPath((1, 2, 4), 1)]))])
    pack = trie.pack(0, nodes=8, rows=8)
    tree = attention.make_tree_pass(trie, pack, [], {})
    module = torch.nn.Module()
    with tree.active():
        for module.layer_idx, device in enumerate(("cpu", "meta", "cpu")):
            q, k = (torch.ones(1, heads, pack.stop, 8, device=device) for heads in (4, 2))
            out, _ = attention._tree_attention(module, q, k, k, None)
            assert (out.device.type, out.shape) == (device, (1, pack.stop, 4, 8))
    assert [state[0].device.type for state in tree.present.values()] == ["cpu", "meta", "cpu"]


def test_input_goes_to_the_first_device_that_computes() -> None:
    class Spread:
        hf_device_map = {"a": "disk", "b": "cpu", "c": 1, "d": 0}  # noqa: RUF012

    assert input_device(Spread()) == torch.device("cuda:1")
    assert Placement(device_map=Spread.hf_device_map).main_device == "cuda:1"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"device_map": "everywhere"}, "device_map"),
        ({"device_map": "auto", "device": "cpu"}, "device"),
        ({"max_memory": {"cpu": "1GB"}}, "max_memory"),
        ({"offload_folder": "x"}, "offload_folder"),
        ({"quantization": "int3"}, "quantization"),
        ({"attn_implementation": "eager"}, "attn_implementation"),
    ],
)
def test_bad_placements_are_named_before_a_model_is_loaded(
    options: dict[str, Any], field: str, folders: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError) as error:
        HFBackend(folders["llama"], **options).check()
    assert error.value.field == field


def test_two_models_in_one_folder_read_their_own_weights(folders: dict[str, Path], tmp_path: Path) -> None:
    """The files of parts on the disk are named after the parts alone. A folder goes with its model."""
    first = HFBackend(folders["llama"], threads=1, device_map=PARTS, offload_folder=tmp_path)
    usual = scores(first, REQUESTS)
    second = HFBackend(folders["gemma2"], threads=1, device_map=PARTS, offload_folder=tmp_path)
    assert scores(second, REQUESTS) != usual
    assert scores(first, REQUESTS) == usual
    first.close_blocking()
    second.close_blocking()
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_an_adapter_that_peft_would_leave_out_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """Weights on the disk keep their values when PEFT merges, with no more than a warning of torch."""
    model, _ = plain_model(folders["llama"])
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    options: dict[str, Any] = {"adapter": tmp_path / "adapter", "offload_folder": tmp_path}
    by_name = HFBackend(folders["llama"], **options, device_map=PARTS)
    by_memory = HFBackend(folders["llama"], **options, device_map="auto", max_memory={"cpu": 60_000})
    for ask in (by_name.load, by_memory.load):
        with pytest.raises(ConfigError, match="PEFT leaves it out") as error:
            ask()
        assert error.value.field == "adapter"
