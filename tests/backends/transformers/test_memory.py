"""Memory that runs out, and the bytes that a pass may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.profiler import ProfilerActivity, profile

from backends import BackendError, HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.local.scoring import logprobs
from backends.local.trie import Path as TokenPath
from backends.transformers.memory import LOGIT_BYTES, is_out_of_memory, most_rows
from backends.transformers.scoring import attention
from backends.transformers.scoring.scorer import SequenceScorer
from tests.backends.transformers.reference import scores
from tests.rounding import float32_close


@pytest.mark.parametrize(
    ("device", "free", "rows"), [("cpu", 80, 524), ("cuda:0", 80, 8388), ("cuda:0", 8, 2097), ("cuda:0", 1, 524)]
)
def test_a_gpus_free_memory_says_how_many_logits_a_pack_has(
    device: str, free: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 128,000 logits: 524 would cut a pass of 8,192 tokens, some 1,800 of which are asked, into four."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free << 30, 80 << 30))
    assert most_rows(128_000, device) == rows


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


@pytest.mark.parametrize("family", ["llama", "falcon", "falcon_alibi"])
def test_no_forward_pass_makes_more_rows_of_logits_than_fit(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ScoreRequest("the", (" she he she xyz xyz xyz xyz", " man"))
    backend = HFBackend(folders[family], threads=1)
    usual = scores(backend, [request])
    scorer = backend.load().scorer
    made = []
    reader = scorer._reader
    forward = reader.logits

    def counted(ids: Any, positions: Any, mask: Any, places: torch.Tensor) -> torch.Tensor:
        made.append(len(places))
        return forward(ids, positions, mask, places)

    monkeypatch.setattr(reader, "logits", counted)
    monkeypatch.setattr(scorer.size, "most_rows", 4)
    assert scores(backend, [request]) == float32_close(usual)
    assert sum(made) >= 12
    assert max(made) <= 4


def test_large_vocabulary_and_long_prompt_keep_the_limits() -> None:
    """A vocabulary of 262,144, a prompt of 8,000 tokens, 500 tokens scored, most of them in one pack of 512.

    Without bounds the logits of that pack are 500 MB, and the keys and scores of its blocks 400 MB.
    """
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=8,
        head_dim=8, vocab_size=262_144, max_position_embeddings=9000,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    scorer = SequenceScorer(model, lambda _: np.arange(0), pack_tokens=512)
    tokens = np.random.default_rng(0).integers(0, 262_144, 8190).tolist()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        (values,) = logprobs(scorer, [TokenPath(tuple(tokens), 7690)])
    assert len(values) == 500
    events = sorted(
        (e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    )
    held = np.cumsum([e.nbytes() for e in events])
    most = LOGIT_BYTES + attention.GATHER_BYTES
    assert LOGIT_BYTES / 2 < held.max() < most
