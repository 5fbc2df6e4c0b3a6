"""The last layer for the asked tokens alone: the same numbers, or the whole layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backends import HFBackend
from backends.transformers.scoring.last_layer import LastLayer
from backends.transformers.scoring.reader import LogitReader
from tests.backends.transformers.reference import plain_model

IDS = torch.tensor([[5, 7, 11, 13, 17, 19], [23, 5, 7, 2, 3, 9]])
PLACES = torch.tensor([11, 0, 4, 7])


def reader(model: Any) -> LogitReader:
    return LogitReader(model, lambda start: None)  # type: ignore[arg-type, return-value]


def test_the_last_layer_reads_the_asked_tokens_alone(folders: dict[str, Path]) -> None:
    """Of two rows, in any order, as the whole layer gives them."""
    model, _ = plain_model(folders["llama"])
    rows: list[int] = []
    usual = model(IDS).logits.flatten(0, 1)[PLACES]
    found = reader(model)
    hook = model.model.layers[-1].mlp.register_forward_pre_hook(
        lambda _, given: rows.append(given[0].shape[:-1].numel())
    )
    assert torch.allclose(found.logits(IDS, None, None, PLACES), usual, atol=1e-5)
    assert torch.allclose(found.logits(IDS, None, None, PLACES, cuts=False), usual, atol=1e-5)
    assert rows == [len(PLACES), IDS.numel()]
    hook.remove()
    assert torch.equal(model(IDS).logits.flatten(0, 1)[PLACES], usual), "other uses of the model are as before"


@pytest.mark.parametrize("family", ["gemma2", "gpt_neox"])
def test_layers_with_other_code_are_computed_whole(family: str, folders: dict[str, Path]) -> None:
    model, _ = plain_model(folders[family])
    assert LastLayer(model)._layer is None
    usual = model(IDS).logits.flatten(0, 1)[PLACES]
    assert torch.allclose(reader(model).logits(IDS, None, None, PLACES), usual, atol=1e-5)


def test_a_layer_that_others_have_a_part_in_is_whole(folders: dict[str, Path]) -> None:
    model, _ = plain_model(folders["llama"])
    model.model.layers[-1].mlp.register_forward_hook(lambda _, given, found: found)
    assert LastLayer(model)._layer is None


def test_a_model_that_needs_all_tokens_later_is_whole(folders: dict[str, Path]) -> None:
    """Here behind the last layer, where its code does not show it."""
    model, _ = plain_model(folders["llama"])
    norm = model.model.norm
    norm.register_forward_pre_hook(lambda _, given: (given[0] - given[0].mean(1, keepdim=True),))
    usual = model(IDS).logits.flatten(0, 1)[PLACES]
    found = reader(model)
    assert torch.allclose(found.logits(IDS, None, None, PLACES), usual, atol=1e-5)


def test_an_audited_llama_reads_its_last_layer_short(folders: dict[str, Path]) -> None:
    scorer = HFBackend(folders["llama"], threads=1).load().scorer
    assert scorer._reader._last._layer is not None
