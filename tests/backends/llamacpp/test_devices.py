"""Named devices and shares of a llama.cpp model. No GPU is here: the CPU stands for one, as llama.cpp lists it too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from backends import ConfigError, LlamaCppBackend
from backends.llamacpp import backend as llamacpp_backend
from backends.llamacpp import devices as llamacpp_devices
from backends.llamacpp.engine import LlamaEngine
from tests.backends.local.tiny_models import save_tiny_chat_gguf

TWO = ["CUDA0", "CUDA1", "CPU"]


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llamacpp_backend, "_llama_has_gpu", lambda: True)
    monkeypatch.setattr(llamacpp_devices, "device_names", lambda: TWO)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return save_tiny_chat_gguf(tmp_path / "tiny.gguf", "", True)


def test_llamacpp_names_its_devices() -> None:
    assert "CPU" in llamacpp_devices.device_names()
    array = llamacpp_devices.device_list(["CPU"])
    assert array[0] is not None
    assert array[1] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"devices": ["CUDA0"]}, "without effect on the CPU"),
        ({"tensor_split": [1.0]}, "without effect on the CPU"),
        ({"n_gpu_layers": -1, "devices": ["CUDA0", "CUDA7"]}, "no CUDA7 here. Give of CUDA0, CUDA1, CPU"),
        ({"n_gpu_layers": -1, "tensor_split": [1.0]}, "not a share for each of 2 devices"),
        ({"n_gpu_layers": -1, "tensor_split": [0.0, 0.0]}, "not a share for each of 2 devices"),
        ({"n_gpu_layers": -1, "devices": ["CUDA1"], "tensor_split": [1.0, 1.0]}, "each of 1 devices"),
    ],
)
@pytest.mark.usefixtures("two_gpus")
def test_devices_that_are_not_here_are_refused(options: dict[str, Any], said: str, file: Path) -> None:
    with pytest.raises(ConfigError) as error:
        LlamaCppBackend(file, **options).check()
    assert said in str(error.value)


@pytest.mark.parametrize("options", [{"devices": []}, {"devices": "CUDA0"}, {"tensor_split": [-1.0]}])
def test_what_is_no_list_of_devices_is_refused(options: dict[str, Any], file: Path) -> None:
    with pytest.raises(ConfigError, match=r"Give (their names|0.0 or more)"):
        LlamaCppBackend(file, n_gpu_layers=-1, **options)


@pytest.mark.usefixtures("two_gpus")
def test_models_on_devices_of_their_own_go_side_by_side(file: Path) -> None:
    first, second = (LlamaCppBackend(file, n_gpu_layers=-1, devices=[name]) for name in ("CUDA0", "CUDA1"))
    first.check()
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    prints = [backend.describe_blocking().fingerprint for backend in (first, second)]
    assert prints[0] == prints[1]  # one kind of device: the same numbers
    assert prints[0]["devices"] == "CUDA"
    assert "devices" not in LlamaCppBackend(file, n_gpu_layers=-1).describe_blocking().fingerprint


def test_devices_and_shares_reach_llamacpp(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[bool, list[float]]] = []
    load = llama_cpp.llama_model_load_from_file

    def kept(path: bytes, params: Any) -> Any:
        given.append((bool(params.devices), [params.tensor_split[i] for i in range(2)]))
        return load(path, llama_cpp.llama_model_default_params())

    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", kept)
    LlamaEngine(file, devices=["CPU"], tensor_split=[3.0, 1.0], vocab_only=True).close()
    assert given == [(True, [3.0, 1.0])]
