"""A stop ends a local model's batch after the step at hand: what is computed is told, and the rest is no failure."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends import HFBackend, LlamaCppBackend
from backends.base import Answer, GenerateRequest, GenerateResponse, Sampling, ScoreRequest, ScoreResponse
from backends.classifiers import text_classifier
from backends.errors import StoppedError
from backends.llamacpp import generation as llama_writing
from backends.local.backend import LocalBackend
from backends.local.causal import CausalBackend
from backends.local.scoring import Known, score_requests
from backends.local.trie import Trie
from backends.transformers import generation as writing
from backends.transformers.text import HFTextEncoder
from tests.backends.local.tiny_models import byte_level_tokenizer, save_tiny_llama_gguf, save_tiny_model

SCORED = [ScoreRequest(f"{name} said in {i}", (" he", " she")) for name in ("Ann", "Tom") for i in range(30)]
WRITTEN = [GenerateRequest(f"the man {i}", Sampling(max_tokens=2 + 3 * i)) for i in range(6)]


class PlantedScorer:
    """Says -1 to everything, in passes of four texts. ``on_pass`` is called in each."""

    route, context, vocabulary = "planted", None, 10_000

    def __init__(self, on_pass: Callable[[], None]) -> None:
        self.on_pass = on_pass

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        for at in range(0, len(trie.ask_nodes), 8):
            self.on_pass()
            asks = np.arange(at, min(at + 8, len(trie.ask_nodes)))
            yield Known(asks, np.full(len(asks), -1.0))


@pytest.mark.parametrize("most", [0, 1, 3])
def test_after_a_stop_no_pass_is_begun(most: int) -> None:
    passes: list[int] = []
    told: dict[int, Answer] = {}
    encoder = HFTextEncoder(byte_level_tokenizer())
    scorer = PlantedScorer(lambda: passes.append(1))
    answers = score_requests(SCORED, encoder, scorer, told.__setitem__, lambda: len(passes) >= most)
    assert len(passes) == most
    assert bool(told) == bool(most)
    assert len(told) < len(SCORED)
    for at, answer in enumerate(answers):
        assert answer is told[at] if at in told else isinstance(answer, StoppedError)


def test_a_bad_request_is_told_as_such_after_a_stop() -> None:
    asked = [*SCORED[:3], ScoreRequest("", ("the",))]
    answers = score_requests(
        asked, HFTextEncoder(byte_level_tokenizer()), PlantedScorer(lambda: None), is_stopped=lambda: True
    )
    assert [isinstance(answer, StoppedError) for answer in answers] == [True, True, True, False]


def test_a_stopped_request_comes_back_from_another_process() -> None:
    assert type(pickle.loads(pickle.dumps(StoppedError()))) is StoppedError


@pytest.mark.parametrize("backend", [HFBackend("m"), LlamaCppBackend("m.gguf"), text_classifier("m")])
def test_a_local_backend_travels_to_an_actor(backend: LocalBackend) -> None:
    there = pickle.loads(pickle.dumps(backend))
    assert type(there) is type(backend)
    assert not there.is_stopped()


def hf(threads: int, folder: Path) -> CausalBackend:
    return HFBackend(save_tiny_model("llama", folder), threads=threads)


def llamacpp(threads: int, folder: Path) -> CausalBackend:
    return LlamaCppBackend(save_tiny_llama_gguf(folder / "tiny.gguf"), threads=threads)


ENGINES = pytest.mark.parametrize(("engine", "threads"), [(hf, 1), (llamacpp, 1)])


def stopping(backend: Any, function: Any, calls: list[int], after: int) -> Any:
    """``function``, which stops the backend during call number ``after``."""

    def counted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == after:
            backend.stop_computing()
        return function(*given)

    return counted


async def streamed(backend: CausalBackend, batch: Sequence[Any]) -> tuple[list[Answer], dict[int, Answer]]:
    told: dict[int, Answer] = {}
    answers = await backend.run_streaming(batch, told.__setitem__)
    await asyncio.sleep(0)  # what the worker has told last
    return answers, told


@ENGINES
async def test_a_stopped_batch_of_scores_goes_on(
    engine: Any, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = engine(threads, tmp_path)
    expected = await usual.run(SCORED)
    await usual.close()
    backend = engine(threads, tmp_path)
    scorer: Any = backend.load().scorer
    if engine is hf:
        scorer.size.most_tokens = 64
    else:
        scorer.pack_tokens = 64
    passes, calls = type(scorer).passes, []

    def stopped(self: Any, trie: Trie) -> Generator[Known, None, None]:
        for known in passes(self, trie):
            calls.append(1)
            if len(calls) == 2:
                backend.stop_computing()
            yield known

    with monkeypatch.context() as patched:
        patched.setattr(type(scorer), "passes", stopped)
        answers, told = await streamed(backend, SCORED)
    assert len(calls) == 2
    assert 0 < len(told) < len(SCORED)
    assert {at for at, answer in enumerate(answers) if isinstance(answer, ScoreResponse)} == set(told)
    assert sum(isinstance(answer, StoppedError) for answer in answers) == len(SCORED) - len(told)
    again = [request for at, request in enumerate(SCORED) if at not in told]
    rest = dict(zip((at for at in range(len(SCORED)) if at not in told), await backend.run(again), strict=True))
    for at, answer in enumerate(expected):
        found = told.get(at) or rest[at]
        assert [s.logprob for s in found.scores] == pytest.approx([s.logprob for s in answer.scores], abs=1e-4)
    await backend.close()


@pytest.mark.parametrize("engine", [hf, llamacpp])
async def test_stopped_texts_are_written_by_the_next_run(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, tokens = engine(1, tmp_path), []
    expected = await backend.run(WRITTEN)
    assert all(isinstance(answer, GenerateResponse) for answer in expected)
    rows = writing._Batch if engine is hf else llama_writing._Slots
    with monkeypatch.context() as patched:
        patched.setattr(rows, "_advance", stopping(backend, rows._advance, tokens, 20))
        answers, told = await streamed(backend, WRITTEN)
    assert 20 <= len(tokens) < 20 + len(WRITTEN), "the step of the twentieth token is the last"
    assert 0 < len(told) < len(WRITTEN)
    for at, answer in enumerate(answers):
        assert answer == told[at] if at in told else isinstance(answer, StoppedError)
    assert await backend.run(WRITTEN) == expected
    await backend.close()
