"""Memory that runs out, and the bytes that a pass may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backends import BackendError, HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.transformers.memory import is_out_of_memory
from tests.backends.transformers.reference import scores
from tests.rounding import float32_close


@pytest.mark.parametrize("family", ["llama", "falcon", "falcon_alibi"])
def test_prompt_too_large_fails_alone_and_size_grows_back(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 20 tokens per pass, and none beyond the 60th."""
    backend = HFBackend(folders[family], threads=1)
    good = [ScoreRequest(f"the man said {i}{j}", (" he", " she")) for i in range(6) for j in range(6)]
    usual = scores(backend, good)
    loaded = backend.load()
    model, scorer = loaded.model, loaded.scorer
    forward = model.forward

    def small(ids: torch.Tensor, **options: Any) -> Any:
        mask = options.get("attention_mask")
        furthest = ids.shape[1] if mask is not None else int(options["position_ids"].max()) + 1
        if ids.numel() > 20 or furthest > 60:
            raise torch.OutOfMemoryError("planted")
        return forward(ids, **options)

    monkeypatch.setattr(model, "forward", small)
    long = [ScoreRequest(start * 9, (" he",)) for start in ("x" * 9, "the man said!")]
    answers = backend.run_blocking([*good[:20], *long, *good[20:]])
    refused = answers[20:22]
    assert [a.kind for a in refused if isinstance(a, BackendError)] == ["out_of_memory"] * 2
    found = [s.logprob for a in answers if isinstance(a, ScoreResponse) for s in a.scores]
    assert found == float32_close(usual)
    assert 1 < scorer.size.most_tokens >> scorer.size.halvings <= 32
    monkeypatch.setattr(model, "forward", forward)
    for _ in range(60):
        assert scores(backend, good) == float32_close(usual)
    assert scorer.size.halvings == 0


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("anything"), True),
        (MemoryError(), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("HIP out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"), True),
        (RuntimeError("Expected tensor with memory format channels_last"), False),
    ],
)
def test_out_of_memory_is_recognised_on_each_device(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected
