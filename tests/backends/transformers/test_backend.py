"""HFBackend as a backend: options, loading, identity, batches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from backends import BackendError, ConfigError, HFBackend
from backends.base import GenerateRequest, Sampling
from tests.backends.transformers.reference import REQUESTS, scores


def test_two_models_that_compute_at_once_keep_apart(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As two devices do. Both forward passes have begun before either goes on."""
    backends = [HFBackend(folders[family], threads=1) for family in ("llama", "gemma2")]
    requests = [REQUESTS[:1], REQUESTS[1:2]]
    alone = [scores(backend, asked) for backend, asked in zip(backends, requests, strict=True)]
    meet = threading.Barrier(2, timeout=60)
    for backend in backends:
        loaded = backend.load()
        model = loaded.model
        forward = model.forward

        def together(*ids: Any, forward: Any = forward, **options: Any) -> Any:
            meet.wait()
            return forward(*ids, **options)

        monkeypatch.setattr(model, "forward", together)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(scores, backends, requests)) == alone


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": "/no/such/model.gguf"}, "model"),
        ({"model": "x/y", "dtype": "int3"}, "dtype"),
        ({"model": "x/y", "device": "tpu"}, "device"),
        ({"model": "x/y", "threads": 0}, "threads"),
        ({"model": "x/y", "adapter": "./nowhere"}, "adapter"),
        ({"model": "tests", "revision": "main"}, "revision"),
        ({"model": "./tests"}, "model"),
        ({"model": "./pyproject.toml"}, "model"),
    ],
)
def test_bad_options_are_named_before_anything_is_loaded(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        HFBackend(**options).check()
    assert error.value.field == field


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_device_that_is_not_there_is_refused_by_check(
    device: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda:7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device") as error:
        HFBackend(folders["llama"], device=device).check()
    assert error.value.field == "device"
    HFBackend(folders["llama"], device="cuda:0" if device == "cuda:7" else "auto").check()


@pytest.mark.parametrize("step", ["to", "forward"])
def test_model_that_does_not_fit_is_loaded_once(
    step: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights, or the first token with them."""
    tried = []

    def full(model: Any, input_ids: Any = None, position_ids: Any = None, **_: Any) -> Any:
        tried.append(model)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(transformers.LlamaForCausalLM, step, full)
    backend = HFBackend(folders["llama"], threads=1)
    for _ in range(2):
        answers = backend.run_blocking([*REQUESTS, GenerateRequest("the man", Sampling(max_tokens=3))])
        assert [a.kind for a in answers if isinstance(a, BackendError)] == ["out_of_memory"] * (len(REQUESTS) + 1)
    assert all(model is tried[0] for model in tried)
    backend.close_blocking()
    monkeypatch.undo()
    assert len(scores(backend, REQUESTS[:1])) == 6
