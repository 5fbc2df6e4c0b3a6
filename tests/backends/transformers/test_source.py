"""Models as hub ids, folders and GGUF files: what they must hold, their adapters and their identity."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors.torch import load_file, save_file

from backends import BackendError, ConfigError, HFBackend
from backends.base import ScoreRequest
from tests.backends.local.tiny_models import (
    GROUPED,
    byte_level_tokenizer,
    save_model_of,
    save_tiny_llama_gguf,
    save_tiny_model,
)
from tests.backends.transformers.reference import REQUESTS, plain_model


@pytest.mark.parametrize("missing", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_missing_weights_are_not_drawn_at_random(missing: str, tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights[missing]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    backend = HFBackend(folder, threads=1)
    with pytest.raises(ConfigError, match=missing) as error:
        backend.load()
    assert error.value.field == "model"


def test_model_of_another_kind_is_refused_without_weights(tmp_path: Path) -> None:
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=300)
    config.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    backend = HFBackend(tmp_path, threads=1)
    for ask in (backend.describe_blocking, backend.load):
        with pytest.raises(ConfigError, match="'t5' is not a causal") as error:
            ask()
        assert error.value.field == "model"
    assert "trust_remote_code" not in error.value.hint


def test_a_folder_is_looked_up_on_no_hub(folders: dict[str, Path]) -> None:
    source = HFBackend(folders["llama"]).source
    assert (source.snapshot(), source.commit()) == (None, None)


def test_one_part_of_a_gguf_file_is_refused(tmp_path: Path) -> None:
    save_tiny_llama_gguf(tmp_path / "whole.gguf")
    HFBackend(tmp_path / "whole.gguf").check()
    save_tiny_llama_gguf(tmp_path / "part.gguf", part_tensors=4)
    for part in ("part-00001-of-00003.gguf", "part-00002-of-00003.gguf"):
        with pytest.raises(ConfigError, match="one of 3 parts") as error:
            HFBackend(tmp_path / part).check()
        assert error.value.field == "model"


@pytest.mark.parametrize("change", ["prefix", "one less", "one more"])
def test_an_adapter_whose_weights_find_no_place_is_refused(
    change: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    import peft

    model, _ = plain_model(folders["llama"])
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    first = next(iter(weights))
    if change == "prefix":
        weights = {name.replace("model.model.model.", "model.model."): value for name, value in weights.items()}
    elif change == "one less":
        del weights[first]
    else:
        weights[first.replace("layers.0", "layers.9")] = weights[first].clone()
    save_file(weights, tmp_path / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match="lora_A") as error:
        HFBackend(folders["llama"], adapter=tmp_path, threads=1).load()
    assert error.value.field == "adapter"


def test_files_hash_follows_trusted_code(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)

    def identity(*, trusting: bool) -> object:
        return HFBackend(folder, trust_remote_code=trusting, threads=1).describe_blocking().fingerprint["files_sha256"]

    seen = [identity(trusting=False)]
    for code in ("one = 1\n", "one = 2\n"):
        (folder / "modeling_own.py").write_text(code)
        seen.append(identity(trusting=True))
        assert identity(trusting=False) == seen[0], "code that is not run changes nothing"
    assert len(set(seen)) == 3


def test_an_index_that_chooses_files_is_in_the_fingerprint(folders: dict[str, Path], tmp_path: Path) -> None:
    """Loaders read only the files that it names: two folders with the same files gave other numbers under one name."""
    folder = shutil.copytree(folders["llama"], tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file(weights, folder / "b.safetensors", metadata={"format": "pt"})
    prints = []
    for chosen in ("a", "b"):
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, f"{chosen}.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        prints.append(HFBackend(folder, threads=1).describe_blocking().fingerprint)
    assert prints[0] != prints[1]


def test_an_adapter_beside_the_model_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """transformers applies it, and no option or fingerprint named it or its scale."""
    import peft

    folder = shutil.copytree(folders["llama"], tmp_path / "model")
    model, _ = plain_model(folder)
    peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(folder)
    backend = HFBackend(folder, threads=1)
    with pytest.raises(ConfigError, match="adapter lies beside the model"):
        backend.check()
    (answer,) = backend.run_blocking(REQUESTS[:1])  # of a hub id, this is where it shows
    assert "adapter lies beside the model" in str(answer)


def test_a_token_beyond_the_model_spells_no_prompt(tmp_path: Path) -> None:
    """The model predicts none of its own tokens' number or more: such a way to spell a prompt's end has no part."""
    tokenizer = byte_level_tokenizer()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    names = state["model"]["vocab"]
    last = max(names, key=names.__getitem__)
    names["Ġs"], names[last] = names[last], names["Ġs"]
    answers = []
    for size in (len(names), len(names) - 1):
        folder = save_model_of(
            lambda v, n=size: transformers.LlamaConfig(**GROUPED, vocab_size=n), tmp_path / str(size)
        )
        (folder / "tokenizer.json").write_text(json.dumps(state))
        answers += HFBackend(folder, threads=1).run_blocking([ScoreRequest("the man sh", ("e",))])
    assert not any(isinstance(answer, BackendError) for answer in answers), answers


def test_a_gguf_file_never_computes_by_fetched_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def from_pretrained(*_: Any, **options: Any) -> None:
        asked.append(options.get("quantization_config"))
        raise OSError

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    with pytest.raises(ConfigError):
        HFBackend(save_tiny_llama_gguf(tmp_path / "llama.gguf")).source.load("float32", "cpu")
    assert [options.dequantize for options in asked] == [True]
