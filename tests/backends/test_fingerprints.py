"""Every field of a local fingerprint: why it may change an answer, and that it follows what it stands for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from backends import HFBackend, LlamaCppBackend
from backends.base import GenerateRequest, Message, Sampling, ScoreRequest
from backends.classifiers import ProfanityClassifier, SequenceClassifier, VaderClassifier
from backends.embedded import smollm2_path
from backends.local.backend import LocalBackend
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_model, save_tiny_phi3_gguf

REQUESTS = [
    ScoreRequest("the police said that", (" she", " he")),
    ScoreRequest((Message("user", "the man"),), (" she",)),
    GenerateRequest("the man", Sampling(max_tokens=8)),
]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
Change = Callable[[Path, pytest.MonkeyPatch], LocalBackend]


@dataclass(frozen=True)
class Field:
    """A field of a fingerprint, why it may change an answer, and a change that it has to follow.

    ``change`` gives the changed backend. Where ``shown``, both are asked, and the answers have to differ; elsewhere
    that takes another machine, another version or a trained model.
    """

    name: str
    why: str
    change: Change
    shown: bool = False


def fingerprint(backend: LocalBackend) -> Mapping[str, Any]:
    return backend.describe_blocking().fingerprint


def check(field: Field, backend: LocalBackend, path: Path, patch: pytest.MonkeyPatch) -> None:
    before = fingerprint(backend)
    answers = backend.run_blocking(REQUESTS) if field.shown else None
    changed = field.change(path, patch)
    after = fingerprint(changed)
    assert after.get(field.name, "none") != before.get(field.name, "none"), field.why
    if field.shown:
        assert changed.run_blocking(REQUESTS) != answers, field.why


# -- transformers ---------------------------------------------------------------------------------


def hf(model: Path, **options: Any) -> HFBackend:
    return HFBackend(model, threads=1, **options)


def edit_json(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **values}))


def hf_with_other_weights(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    weights = {name: weight * 1.1 for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return hf(folder)


def hf_with_another_end(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = transformers.AutoTokenizer.from_pretrained(folder)("the man", return_tensors="pt")["input_ids"]
    written = model.generate(ids, max_new_tokens=3, do_sample=False)
    edit_json(folder / "generation_config.json", eos_token_id=int(written[0, -1]))
    return hf(folder)


def hf_with_another_tokenizer(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["merges"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return hf(folder)


def hf_with_a_template(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return hf(folder)


def hf_with_an_adapter(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    model = peft.get_peft_model(transformers.AutoModelForCausalLM.from_pretrained(folder), config)
    model.save_pretrained(folder / "adapter")
    return hf(folder, adapter=folder / "adapter")


def hf_quantised(folder: Path, patch: pytest.MonkeyPatch) -> HFBackend:
    edit_json(folder / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    return hf(folder)


HF_FIELDS = [
    Field("weights_sha256", "the model itself", hf_with_other_weights, shown=True),
    Field("files_sha256", "generation_config.json says what ends a text", hf_with_another_end, shown=True),
    Field("tokenizer_sha256", "other tokens are scored and drawn", hf_with_another_tokenizer),
    Field("chat_template_sha256", "the text that a chat becomes", hf_with_a_template, shown=True),
    Field("dtype", "the rounding of every product", lambda path, _: hf(path, dtype="bfloat16"), shown=True),
    Field("quantisation", "how the weights are rounded", hf_quantised),
    Field("quantiser", "the library that multiplies quantised weights", hf_quantised),
    Field("adapter", "weights added to the model's own", hf_with_an_adapter, shown=True),
    Field("device", "kernels of other devices sum in other orders", lambda path, _: hf(path, device="mps")),
]


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("field", HF_FIELDS, ids=lambda field: field.name)
def test_hf_field_follows_its_cause(
    field: Field, saved_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(saved_folder, tmp_path / "model")
    check(field, hf(saved_folder), folder, monkeypatch)


#: What computes: engines sum and draw differently, their versions too.
VERSIONS = {"backend", "sampler", "scoring_version"}
HF_EXPLAINED = {field.name for field in HF_FIELDS} | VERSIONS | {"torch", "transformers"}


HF_OPTIONAL = {"quantiser"}  # only of quantised models


def test_hf_fields_are_all_explained(saved_folder: Path) -> None:
    assert set(fingerprint(hf(saved_folder))) == HF_EXPLAINED - HF_OPTIONAL


@pytest.mark.models
def test_hf_gguf_fields_are_all_explained() -> None:
    """A GGUF file is one: its hash stands for the folder's two."""
    assert set(fingerprint(hf(smollm2_path()))) == HF_EXPLAINED - {"files_sha256"} - HF_OPTIONAL


# -- llama.cpp ------------------------------------------------------------------------------------


def changed_gguf(**how: Any) -> Change:
    return lambda path, _: LlamaCppBackend(save_tiny_llama_gguf(path.with_name("changed.gguf"), **how))


def double_layer(tensors: dict[str, Any]) -> None:
    tensors["blk.0.ffn_up"] *= 2


OTHER_WEIGHTS = changed_gguf(change=double_layer)
LLAMA_FIELDS = [
    Field("weights_sha256", "the model itself", OTHER_WEIGHTS, shown=True),
    Field("tokenizer", "other tokens are scored and drawn; the same file holds it", OTHER_WEIGHTS),
    Field(
        "chat_template_sha256",
        "the text that a chat becomes",
        changed_gguf(also=lambda writer: writer.add_chat_template(TEMPLATE)),
        shown=True,
    ),
    Field("quantisation", "how the weights are rounded", changed_gguf(also=lambda writer: writer.add_file_type(1))),
    Field("dtype", "the rounding of cached values", lambda path, _: LlamaCppBackend(path, n_gpu_layers=1)),
    Field("n_gpu_layers", "kernels of a GPU round differently", lambda path, _: LlamaCppBackend(path, n_gpu_layers=1)),
    Field("context", "what exceeds it is refused", lambda path, _: LlamaCppBackend(path, context=9), shown=True),
    Field(
        "most_cells",
        "a larger context takes other angles of LongRoPE",
        lambda path, _: LlamaCppBackend(save_tiny_phi3_gguf(path.with_name("phi3.gguf"), first=512, most=1024)),
    ),
]


@pytest.mark.parametrize("field", LLAMA_FIELDS, ids=lambda field: field.name)
def test_llamacpp_field_follows_its_cause(field: Field, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save_tiny_llama_gguf(tmp_path / "llama.gguf")
    check(field, LlamaCppBackend(file, threads=1), file, monkeypatch)


def test_llamacpp_fields_are_all_explained(tmp_path: Path) -> None:
    explained = {field.name for field in LLAMA_FIELDS} | VERSIONS | {"llama_cpp_python"}
    # "adapter" is always None: it stands for what HFBackend says there, and can never change.
    backend = LlamaCppBackend(save_tiny_llama_gguf(tmp_path / "llama.gguf"))
    assert set(fingerprint(backend)) == (explained | {"adapter"}) - {"most_cells"}
    assert fingerprint(backend)["adapter"] is None


# -- classifiers ----------------------------------------------------------------------------------


def save_classifier(folder: Path, **config: Any) -> SequenceClassifier:
    """A folder that is described as a classifier's; no weights are read for that."""
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    folder.mkdir()
    transformers.BertConfig(architectures=["BertForSequenceClassification"], **{**labels, **config}).save_pretrained(
        folder
    )
    return SequenceClassifier(str(folder))


@pytest.mark.parametrize(
    ("changed", "config"),
    [
        ({"files_sha256"}, {"layer_norm_eps": 0.5}),  # the model itself, by its files
        ({"files_sha256", "labels"}, {"id2label": {0: "yes", 1: "no"}}),  # the names of what is answered
        ({"files_sha256", "activation"}, {"problem_type": "multi_label_classification"}),  # softmax or sigmoid
    ],
)
def test_classifier_field_follows_its_cause(tmp_path: Path, changed: set[str], config: dict[str, Any]) -> None:
    before, after = (
        fingerprint(save_classifier(tmp_path / name, **more)) for name, more in (("one", {}), ("two", config))
    )
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == changed
    # The packages' versions stand for their kernels and their models' code.
    assert set(before) == {"backend", "weights_sha256", "files_sha256", "labels", "transformers", "torch"}


def test_packaged_classifier_is_its_package() -> None:
    """What computes is in the package, and in the library that evaluates its linear model."""
    assert set(fingerprint(VaderClassifier())) == {"backend", "vaderSentiment"}
    assert set(fingerprint(ProfanityClassifier())) == {"backend", "alt-profanity-check", "scikit-learn"}
