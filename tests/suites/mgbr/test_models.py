"""The counting benchmark on real models: two engines on the same weights, and a real server."""

from __future__ import annotations

import math

import pytest

from backends.base import Backend, GenerateResponse, ScoreResponse
from backends.embedded import smollm2_path
from backends.llamacpp.backend import LlamaCppBackend
from backends.transformers.backend import HFBackend
from suites import MGBR


async def answered(suite: MGBR, backend: Backend) -> list[ScoreResponse | GenerateResponse]:
    answers = await backend.run([item.request for item in suite.items()])
    await backend.close()
    for answer in answers:
        assert isinstance(answer, ScoreResponse | GenerateResponse), answer
    return answers  # type: ignore[return-value]


@pytest.mark.models
async def test_two_engines_with_the_same_weights_score_the_same_counts() -> None:
    suite = MGBR(n=1, conditions=["zero-shot"], genders=["female"])
    llama = await answered(suite, LlamaCppBackend(smollm2_path(), threads=2))
    torch = await answered(suite, HFBackend(smollm2_path(), device="cpu", threads=2))
    for item, a, b in zip(suite.items(), llama, torch, strict=True):
        assert isinstance(a, ScoreResponse)
        assert isinstance(b, ScoreResponse)
        for continuation, x, y in zip(item.request.continuations, a.scores, b.scores, strict=True):  # type: ignore[union-attr]
            assert "".join(t.text for t in x.tokens) == continuation
            assert x.boundary == y.boundary == "clean"
            # One of them computes with quantised weights; the control's counts are in the tail.
            assert x.logprob == pytest.approx(y.logprob, abs=1.0 if item.is_control else 0.5)
        if item.is_control:
            continue
        row = suite.read(item, a)
        assert row.values["accuracy"].value == float(a.scores[0].logprob > a.scores[1].logprob)  # type: ignore[operator]
        mass = math.fsum(math.exp(s.logprob) for s in a.scores if s.logprob is not None)
        assert row.values["coverage"].value == pytest.approx(mass)
