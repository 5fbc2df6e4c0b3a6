"""Every field of a local fingerprint follows what it stands for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import peft
import pytest
import transformers
from safetensors.torch import load_file, save_file

from backends import HFBackend, LlamaCppBackend
from backends.classifiers import ProfanityClassifier, VaderClassifier
from backends.embedded import smollm2_path
from backends.local.backend import LocalBackend
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_model, save_tiny_phi3_gguf

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
Change = Callable[[Path], LocalBackend]


def fingerprint(backend: LocalBackend) -> Mapping[str, Any]:
    return backend.describe_blocking().fingerprint


# -- transformers ---------------------------------------------------------------------------------


def hf(model: Path, **options: Any) -> HFBackend:
    return HFBackend(model, threads=1, **options)


def edit_json(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **values}))


def hf_with_other_weights(folder: Path) -> HFBackend:
    weights = {name: weight * 1.1 for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return hf(folder)


def hf_with_another_end(folder: Path) -> HFBackend:
    edit_json(folder / "generation_config.json", eos_token_id=7)
    return hf(folder)


def hf_with_another_tokenizer(folder: Path) -> HFBackend:
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["merges"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return hf(folder)


def hf_with_a_template(folder: Path) -> HFBackend:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return hf(folder)


def hf_with_an_adapter(folder: Path) -> HFBackend:
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(folder), config)
    model.save_pretrained(folder / "adapter")
    return hf(folder, adapter=folder / "adapter")


def hf_quantised(folder: Path) -> HFBackend:
    edit_json(folder / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    return hf(folder)


#: Field of the fingerprint → a change that it has to follow.
HF_FIELDS: dict[str, Change] = {
    "weights_sha256": hf_with_other_weights,
    "files_sha256": hf_with_another_end,
    "tokenizer_sha256": hf_with_another_tokenizer,
    "chat_template_sha256": hf_with_a_template,
    "dtype": lambda path: hf(path, dtype="bfloat16"),
    "quantisation": hf_quantised,
    "quantiser": hf_quantised,
    "adapter": hf_with_an_adapter,
    "device": lambda path: hf(path, device="mps"),
}


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("field", HF_FIELDS)
def test_hf_field_follows_its_cause(field: str, saved_folder: Path, tmp_path: Path) -> None:
    changed = HF_FIELDS[field](shutil.copytree(saved_folder, tmp_path / "model"))
    assert fingerprint(changed).get(field) != fingerprint(hf(saved_folder)).get(field)


#: What computes: engines sum and draw differently, their versions too.
VERSIONS = {"backend", "sampler", "scoring_version"}
HF_EXPLAINED = {*HF_FIELDS} | VERSIONS | {"torch", "transformers"}


HF_OPTIONAL = {"quantiser"}  # only of quantised models


def test_hf_fields_are_all_explained(saved_folder: Path) -> None:
    assert set(fingerprint(hf(saved_folder))) == HF_EXPLAINED - HF_OPTIONAL


@pytest.mark.models
def test_hf_gguf_fields_are_all_explained() -> None:
    assert set(fingerprint(hf(smollm2_path()))) == HF_EXPLAINED - {"files_sha256"} - HF_OPTIONAL


# -- llama.cpp ------------------------------------------------------------------------------------


def changed_gguf(**how: Any) -> Change:
    return lambda path: LlamaCppBackend(save_tiny_llama_gguf(path.with_name("changed.gguf"), **how))


def double_layer(tensors: dict[str, Any]) -> None:
    tensors["blk.0.ffn_up"] *= 2


OTHER_WEIGHTS = changed_gguf(change=double_layer)
LLAMA_FIELDS: dict[str, Change] = {
    "weights_sha256": OTHER_WEIGHTS,
    "tokenizer": OTHER_WEIGHTS,  # the same file holds it
    "chat_template_sha256": changed_gguf(also=lambda writer: writer.add_chat_template(TEMPLATE)),
    "quantisation": changed_gguf(also=lambda writer: writer.add_file_type(1)),
    "dtype": lambda path: LlamaCppBackend(path, n_gpu_layers=1),
    "n_gpu_layers": lambda path: LlamaCppBackend(path, n_gpu_layers=1),
    "context": lambda path: LlamaCppBackend(path, context=9),
    "most_cells": lambda path: LlamaCppBackend(save_tiny_phi3_gguf(path.with_name("phi3.gguf"), first=512, most=1024)),
}


@pytest.mark.parametrize("field", LLAMA_FIELDS)
def test_llamacpp_field_follows_its_cause(field: str, tmp_path: Path) -> None:
    file = save_tiny_llama_gguf(tmp_path / "llama.gguf")
    before = fingerprint(LlamaCppBackend(file))
    assert fingerprint(LLAMA_FIELDS[field](file)).get(field) != before.get(field)


def test_llamacpp_fields_are_all_explained(tmp_path: Path) -> None:
    explained = {*LLAMA_FIELDS} | VERSIONS | {"llama_cpp_python"}
    # "adapter" is always None: it stands for what HFBackend says there, and can never change.
    backend = LlamaCppBackend(save_tiny_llama_gguf(tmp_path / "llama.gguf"))
    assert set(fingerprint(backend)) == (explained | {"adapter"}) - {"most_cells"}
    assert fingerprint(backend)["adapter"] is None


# -- classifiers ----------------------------------------------------------------------------------


def test_packaged_classifier_is_its_package() -> None:
    """What computes is in the package, and in the library that evaluates its linear model."""
    assert set(fingerprint(VaderClassifier())) == {"backend", "vaderSentiment"}
    assert set(fingerprint(ProfanityClassifier())) == {"backend", "alt-profanity-check", "scikit-learn"}
