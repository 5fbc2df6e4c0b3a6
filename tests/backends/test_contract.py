"""One contract for every kind of backend: the same requests, order, errors, seeds, stops and lives.

What is tested here once is tested of no backend by itself. vLLM is asked in its own environment (tests/backends/vllm).
"""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import FakeBackend, HFBackend, LlamaCppBackend, OpenAIBackend, RecordedBackend
from backends.base import (
    Answer,
    Backend,
    GenerateRequest,
    GenerateResponse,
    Message,
    Sampling,
    ScoreRequest,
    ScoreResponse,
    SupportsStopping,
    SupportsStreaming,
)
from backends.errors import BackendError, StoppedError
from backends.local.causal import CausalBackend
from tests.backends.http.contract import check_scores, keeps_the_contract
from tests.backends.local.tiny_models import save_tiny_llama_gguf, save_tiny_model
from tests.backends.openai.lies.server import MODEL, WordServer
from tests.rounding import float32_close

PROMPT = "the nurse said that"
CONTINUATIONS = (" he", " she", " they were")
DRAWN = [GenerateRequest(PROMPT, Sampling(max_tokens=8, temperature=1.0), seed, n) for seed in (3, 4) for n in (0, 1)]


def recorded(folder: Path) -> Backend:
    rows = [{"prompt": PROMPT, "completion": f" She is {n}."} for n in range(4)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return RecordedBackend(folder / "a.jsonl")


LOCAL: dict[str, Callable[[Path], CausalBackend]] = {
    "transformers": lambda folder: HFBackend(save_tiny_model("llama", folder), threads=1),
    "transformers rows": lambda folder: HFBackend(save_tiny_model("falcon", folder), threads=1),
    "llamacpp": lambda folder: LlamaCppBackend(save_tiny_llama_gguf(folder / "a.gguf", prefix_space=True), threads=1),
}
KINDS: dict[str, Callable[[Path], Backend]] = {"fake": lambda _: FakeBackend(), "recorded": recorded, **LOCAL}


@contextlib.asynccontextmanager
async def made(kind: str, folder: Path) -> AsyncIterator[Backend]:
    """A backend of this kind, closed at the end."""
    if kind == "server":
        async with WordServer("echo", 0).running() as server:
            backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
            yield backend
            await backend.close()
    else:
        yield (other := KINDS[kind](folder))
        await other.close()


def kept(answers: Sequence[Answer]) -> list[Any]:
    """What of answers has to come again: texts, errors' kinds, log-probabilities up to the order of sums."""
    return [
        float32_close([s.logprob for s in a.scores])  # type: ignore[misc]
        if isinstance(a, ScoreResponse)
        else a.text
        if isinstance(a, GenerateResponse)
        else a.kind
        for a in answers
    ]


def said(answers: Sequence[Answer]) -> list[Any]:
    return [[s.logprob for s in a.scores] if isinstance(a, ScoreResponse) else kept([a])[0] for a in answers]


@pytest.mark.parametrize("kind", ["fake", *LOCAL, "server"])  # a file holds one draw of one seed
async def test_every_backend_answers_as_the_engine_relies_on(kind: str, tmp_path: Path) -> None:
    prompt = "Picture a nurse:" if kind == "server" else PROMPT
    words = (" Male", " Female") if kind == "server" else CONTINUATIONS
    async with made(kind, tmp_path) as backend:
        await keeps_the_contract(backend, prompt, words)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_follows_its_seed_and_repeat(kind: str, tmp_path: Path) -> None:
    async with made(kind, tmp_path) as backend:
        asked = [DRAWN[0], DRAWN[1]] if kind == "recorded" else DRAWN  # one seed is all that a file has
        first = said(await backend.run(asked))
        assert said(await backend.run(asked[::-1]))[::-1] == first
        assert [said(await backend.run([request]))[0] for request in asked] == first
        assert len(set(first)) > 1


#: Requests that no model answers → the kind of their error.
ODD: list[tuple[Any, str]] = [
    (ScoreRequest("x" * 400, (" he",)), "context_length"),
    (GenerateRequest("x" * 400, Sampling(max_tokens=8)), "context_length"),
    (ScoreRequest((Message("user", "hello"),), (" he",)), "unsupported"),
    (GenerateRequest((Message("user", "hello"),), Sampling(max_tokens=8)), "unsupported"),
    (ScoreRequest("the man \ud800", (" he",)), "bad_request"),
    (GenerateRequest("the man \ud800", Sampling(max_tokens=8)), "bad_request"),
]
SOUND = [
    ScoreRequest(PROMPT, CONTINUATIONS),
    GenerateRequest(PROMPT, Sampling(max_tokens=4)),
    ScoreRequest("the man ", ("he", "she")),
    *(ScoreRequest(f"the man {n} said that", (" he", " she")) for n in range(4)),
]


@pytest.mark.parametrize("kind", LOCAL)
async def test_odd_requests_fail_alone_and_order_is_kept(kind: str, tmp_path: Path) -> None:
    mixed = [request for at, (odd, _) in enumerate(ODD) for request in (SOUND[at], odd)] + SOUND[len(ODD) :]
    async with made(kind, tmp_path) as backend:
        usual = await backend.run(SOUND)
        assert not any(isinstance(answer, BackendError) for answer in usual), usual
        for request, answer in zip(SOUND, usual, strict=True):
            if isinstance(request, ScoreRequest):
                assert isinstance(answer, ScoreResponse)
                check_scores(request, answer)
        told: dict[int, Answer] = {}
        assert isinstance(backend, SupportsStreaming)
        answers = await backend.run_streaming(mixed, told.__setitem__)
        odd = answers[1 : 2 * len(ODD) : 2]
        assert [answer.kind for answer in odd if isinstance(answer, BackendError)] == [one for _, one in ODD]
        sound = [answer for at, answer in enumerate(answers) if at % 2 == 0 or at >= 2 * len(ODD)]
        assert said(sound) == kept(usual)
        assert all(answers[at] is answer for at, answer in told.items()), "each is told as it is returned"
        swapped = [
            replace(one, continuations=one.continuations[::-1]) if isinstance(one, ScoreRequest) else one
            for one in SOUND[::-1]
        ]
        backwards = said(await backend.run(swapped))
        assert [one[::-1] if isinstance(one, list) else one for one in backwards[::-1]] == kept(usual)


@pytest.mark.parametrize("kind", LOCAL)
async def test_a_stop_ends_a_batch_and_the_next_goes_on(kind: str, tmp_path: Path) -> None:
    scored = [ScoreRequest(f"{name} said in {i}", (" he", " she")) for name in ("Ann", "Tom") for i in range(30)]
    asked = [*scored, *(GenerateRequest(f"the man {i}", Sampling(max_tokens=2 + 3 * i)) for i in range(6))]
    async with made(kind, tmp_path) as backend:
        assert isinstance(backend, SupportsStopping)
        assert isinstance(backend, SupportsStreaming)
        expected = await backend.run(asked)
        scorer: Any = backend.load().scorer  # type: ignore[attr-defined]
        small: Any = getattr(scorer, "size", scorer)
        setattr(small, "most_tokens" if small is not scorer else "pack_tokens", 64)
        told: dict[int, Answer] = {}

        def on_response(at: int, answer: Answer) -> None:
            told[at] = answer
            backend.stop_computing()

        answers = await backend.run_streaming(asked, on_response)
        left = [at for at, answer in enumerate(answers) if isinstance(answer, StoppedError)]
        assert 0 < len(left) < len(asked)
        rest = dict(zip(left, await backend.run([asked[at] for at in left]), strict=True))
        assert said([rest.get(at, answer) for at, answer in enumerate(answers)]) == kept(expected)


@pytest.mark.parametrize("kind", LOCAL)
async def test_a_closed_backend_loads_again_here_and_in_another_process(kind: str, tmp_path: Path) -> None:
    async with made(kind, tmp_path) as backend:
        described = await backend.describe()
        usual = await backend.run(SOUND[:2])
        await backend.close()
        await backend.close()
        assert said(await backend.run(SOUND[:2])) == kept(usual)
        await backend.close()
        other = pickle.loads(pickle.dumps(backend))
        assert (await other.describe()).fingerprint == described.fingerprint
        assert said(await other.run(SOUND[:2])) == kept(usual)
        await other.close()
