"""Weights quantised while they are loaded, against plain transformers with the same settings.

Each needs a package (extras `bitsandbytes`, `quanto`, `torchao`), and is skipped without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import transformers

from backends import ConfigError, HFBackend
from backends.base import ScoreRequest
from backends.transformers.placement import PACKAGES, Quantization, settings
from tests.backends.local.tiny_models import GROUPED, log_probabilities, save_model_of
from tests.backends.transformers.reference import REQUESTS, scores

WAYS = get_args(Quantization)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose widths are those of whole blocks of 64 weights."""
    sizes = {**GROUPED, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
    return save_model_of(lambda v: transformers.LlamaConfig(**sizes, vocab_size=v), tmp_path_factory.mktemp("llama"))


def need(way: str) -> None:
    pytest.importorskip(PACKAGES[way.partition("-")[0]][1])


def plain(folder: Path, way: str, dtype: torch.dtype) -> tuple[Any, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, quantization_config=settings(way, dtype), device_map="cpu"
    )
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantised_scores_are_those_of_plain_passes(way: str, dtype: str, folder: Path) -> None:
    """LLM.int8 multiplies the columns with outliers apart, and looks for them in all tokens of a pass."""
    need(way)
    close = 1e-4 if dtype == "float32" and way != "bitsandbytes-int8" else 0.1
    backend = HFBackend(folder, threads=1, quantization=way, dtype=dtype)
    backend.check()
    model, tokenizer = plain(folder, way, getattr(torch, dtype))
    for prompt, word in (("the police said that", " she"), ("the man", " he")):
        expected = log_probabilities(model, tokenizer(prompt + word)["input_ids"])[-1]
        found = scores(backend, [ScoreRequest(prompt, (word,))])
        assert found == pytest.approx([expected], abs=close)
    whole = scores(HFBackend(folder, threads=1), REQUESTS)
    moved = [abs(a - b) for a, b in zip(scores(backend, REQUESTS), whole, strict=True)]
    assert max(moved) > 1e-4


def test_weights_loaded_in_another_dtype_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantiser may choose its own; the answers would be stored under the dtype that was asked for."""
    load = transformers.AutoModelForCausalLM.from_pretrained

    def in_float16(*arguments: Any, dtype: torch.dtype, **options: Any) -> Any:
        return load(*arguments, dtype=torch.float16, **options)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", in_float16)
    with pytest.raises(ConfigError, match="loaded in float16") as error:
        HFBackend(folder, threads=1, dtype="bfloat16").load()
    assert error.value.field == "dtype"
