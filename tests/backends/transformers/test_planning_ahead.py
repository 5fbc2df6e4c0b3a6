"""A batch is planned while the model computes the one before; its answers are those of a batch that comes alone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from backends import HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.local import causal
from backends.local.backend import discard_response
from tests.rounding import float32_close

FIRST = [ScoreRequest(f"{name} said that", (" he", " she")) for name in ("Ann", "Tom", "Bo")]
SECOND = [ScoreRequest(f"{name} knew why", (" he", " they were")) for name in ("Kim", "Eve", "Jo")]


def values(answers: Any) -> list[float]:
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    return [score.logprob for answer in answers for score in answer.scores]


def test_the_next_batch_is_planned_beside_the_model(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    planned = threading.Event()
    made = causal.prepare

    def watched(requests: Any, *rest: Any) -> Any:
        plans = made(requests, *rest)
        if requests == SECOND:
            assert threading.current_thread().name.startswith("planner")
            planned.set()
        return plans

    alone = HFBackend(folders["llama"], threads=1)
    expected = values(alone.run_blocking(FIRST)) + values(alone.run_blocking(SECOND))
    monkeypatch.setattr(causal, "prepare", watched)

    async def run() -> list[float]:
        backend = HFBackend(folders["llama"], threads=1)
        await backend.run(FIRST[:1])  # loads the model; what comes before is not planned ahead
        waited = []

        def on_response(place: int, answer: Any) -> None:
            waited.append(planned.wait(100))  # the first batch is being computed

        worker = backend.run_blocking

        def held(batch: Any) -> Any:
            return worker(batch, on_response if batch is FIRST else discard_response)

        monkeypatch.setattr(backend, "run_blocking", held)
        first, second = await asyncio.gather(backend.run(FIRST), backend.run(SECOND))
        await backend.close()
        assert waited == [True] * len(FIRST)
        return values(first) + values(second)

    assert asyncio.run(run()) == float32_close(expected)


def test_planning_ends_before_the_model_is_freed(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is cut off may leave a batch that is being planned, with the tokenizer of the model."""
    begun, go_on, ended = threading.Event(), threading.Event(), []
    made = causal.prepare

    def slow(requests: Any, *rest: Any) -> Any:
        begun.set()
        go_on.wait(100)
        ended.append("planning")
        return made(requests, *rest)

    async def run() -> None:
        backend = HFBackend(folders["llama"], threads=1)
        await backend.run(FIRST[:1])
        monkeypatch.setattr(causal, "prepare", slow)
        free = backend.close_blocking
        monkeypatch.setattr(backend, "close_blocking", lambda: (ended.append("free"), free()))
        backend._plan_ahead(SECOND)
        await asyncio.to_thread(begun.wait, 100)
        closing = asyncio.create_task(backend.close())
        await asyncio.sleep(0.05)
        go_on.set()
        await closing

    asyncio.run(run())
    assert ended == ["planning", "free"]
