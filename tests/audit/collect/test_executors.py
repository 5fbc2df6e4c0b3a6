"""What every executor promises: in this process, and on a Ray cluster where Ray is installed."""

from __future__ import annotations

import importlib.util

import pytest

from audit import RayExecutor
from audit.collect.executors import Executor
from backends import FakeBackend
from backends.base import GenerateRequest, ScoreRequest

NO_RAY = importlib.util.find_spec("ray") is None
EXECUTORS = [
    pytest.param(Executor, id="local"),
    pytest.param(
        lambda: RayExecutor(actors=1, cpus=0.5),
        id="ray",
        marks=[pytest.mark.ray, pytest.mark.skipif(NO_RAY, reason="ray is not installed")],
    ),
]
BATCH = [ScoreRequest("a prompt", (" a", " b")), GenerateRequest("another"), GenerateRequest("a third")]


class Failing(FakeBackend):
    """Raises what a bug would."""

    async def run(self, batch):
        raise ZeroDivisionError("a bug of the backend")

    def notes_of_run(self):
        return {}


class Telling(FakeBackend):
    """Knows something after its first batch."""

    def notes_of_run(self):
        return {"batches": str(sum(self.asked.values()))}


@pytest.fixture(params=EXECUTORS)
async def executor(request):
    made = request.param()
    yield made
    await made.close()


async def answers(executor: Executor, backend):
    assert await executor.slots(backend) >= 1
    try:
        return await executor.submit(backend, BATCH, lambda place, answer: None)
    finally:
        await executor.release(backend)


async def test_each_request_gets_its_answer_in_order(executor):
    assert isinstance(executor, Executor)
    assert await answers(executor, FakeBackend("even", device="cpu")) == [FakeBackend("even")._answer(r) for r in BATCH]


async def test_what_a_backend_raises_is_raised(executor):
    with pytest.raises(ZeroDivisionError, match="a bug of the backend"):
        await answers(executor, Failing("failing", device="cpu"))


async def test_what_a_backend_learned_is_noted(executor):
    backend = Telling("telling", device="cpu")
    await executor.slots(backend)
    await executor.submit(backend, BATCH, lambda place, answer: None)
    assert executor.notes(backend) == {"batches": "3"}
    await executor.release(backend)
