"""Mistyped names and damaged files of local models: each is an error in one line, never a traceback or a number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from backends import HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.local.causal import CausalBackend
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_model

REQUEST = ScoreRequest("the police said that", (" she",))
Damage = Callable[[Path], object]


def written(name: str, content: str | bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(name: str, size: int) -> Damage:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def without(*names: str) -> Damage:
    return lambda folder: [(folder / name).unlink() for name in names]


def with_config(**options: object) -> Damage:
    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | options))

    return damage


def pickled_code(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")


#: What was done to a folder → a word of the error.
FOLDERS: dict[str, tuple[Damage, str]] = {
    "config.json is not JSON": (written("config.json", "{"), "config.json cannot be loaded"),
    "fewer layers than the weights": (with_config(num_hidden_layers=1), "fewer layers than its weights"),
    "more layers than the weights": (with_config(num_hidden_layers=5), "would be random"),
    "an unknown architecture": (with_config(model_type="frobnicate"), "frobnicate"),
    "code of its own": (
        with_config(model_type="frob", auto_map={"AutoConfig": "x.X", "AutoModelForCausalLM": "x.X"}),
        "Set trust_remote_code",
    ),
    "another size": (with_config(hidden_size=64), "[280, 32] in the weights, and [280, 64] by config.json"),
    "an unknown activation": (with_config(hidden_act="frob"), "frob"),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), "a folder without a tokenizer"),
    "tokenizer.json is not JSON": (written("tokenizer.json", "{"), "its tokenizer cannot be loaded"),
    "weights cut off": (cut("model.safetensors", 20_000), "the model cannot be loaded"),
    "weights gone": (without("model.safetensors"), "the model cannot be loaded"),
    "quantised by what is not here": (with_config(quantization_config={"quant_method": "gptq", "bits": 4}), "GPTQ"),
    "a pickle with code": (pickled_code, "the model cannot be loaded"),
}
#: Adapters: their config, and what is told.
ADAPTERS: dict[str, tuple[str | None, str]] = {
    "a folder that is not there": (None, "no adapter_config.json there"),
    "a config that is not JSON": ("{", "the adapter cannot be loaded"),
    "layers that the model lacks": ('{"peft_type": "LORA", "r": 4, "target_modules": ["nope"]}', "nope"),
    "an unknown method": ('{"peft_type": "WHAT"}', "WHAT"),
}
NAMES = {
    "nobody/nothing": "without a network",
    "nowhere/at/all": "no such file or folder",
    "org/name@v2": "no such file or folder",
    "a--b/..c": "cannot be loaded",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model("llama", tmp_path_factory.mktemp("whole"))


def said(make: Callable[[], CausalBackend]) -> str:
    """The error that a run of this backend meets, before or while the model loads."""
    try:
        backend = make()
        backend.check()
        backend.describe_blocking()
    except ConfigError as error:
        return str(error)
    answers = backend.run_blocking([REQUEST, REQUEST])
    backend.close_blocking()
    errors = [str(answer) for answer in answers if isinstance(answer, BackendError)]
    assert len(errors) == 2
    return errors[0]


def is_clear(told: str, says: str) -> None:
    assert says in told
    assert "\n" not in told
    assert len(told) < 600


@pytest.mark.parametrize("done", FOLDERS)
def test_a_damaged_folder_is_told_with_its_cause(done: str, whole: Path, tmp_path: Path) -> None:
    damage, says = FOLDERS[done]
    damage(Path(shutil.copytree(whole, tmp_path / "model")))
    told = said(lambda: HFBackend(tmp_path / "model", threads=1))
    is_clear(told, says)
    assert str(tmp_path / "model") in told


@pytest.mark.parametrize("done", ADAPTERS)
def test_a_damaged_adapter_is_told_with_its_cause(done: str, whole: Path, tmp_path: Path) -> None:
    config, says = ADAPTERS[done]
    if config is not None:
        (tmp_path / "adapter_config.json").write_text(config)
        (tmp_path / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    told = said(lambda: HFBackend(whole, adapter=tmp_path, threads=1))
    is_clear(told, says)
    assert "adapter = " in told


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_nowhere_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    is_clear(said(lambda: HFBackend(name, threads=1)), NAMES[name])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda content: content[:-2000], "cannot"),
        (lambda content: content[:60], "not a readable GGUF file"),
        (lambda content: b"GGML" + content[4:], "not a GGUF file"),
        (lambda content: content[:4] + b"\x63\0\0\0" + content[8:], "version 99"),
        (lambda content: content[:8] + b"\xff" * 16 + content[24:], "not a readable GGUF file"),
        (lambda content: content.replace(b"llama", b"frobb"), "frobb"),
    ],
    ids=["cut off", "header cut", "another magic", "another version", "huge counts", "unknown"],
)
def test_a_damaged_gguf_file_is_told_with_its_cause(
    change: Callable[[bytes], bytes], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    save_tiny_llama_gguf(path)
    path.write_bytes(change(path.read_bytes()))
    is_clear(said(lambda: LlamaCppBackend(path, threads=1)), says)
