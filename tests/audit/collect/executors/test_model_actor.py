"""What an actor does with its batches, in this process: no cluster is needed to see it."""

from __future__ import annotations

import asyncio

from audit.collect.executors.model_actor import ModelActor
from backends.base import GenerateRequest, GenerateResponse
from backends.errors import StoppedError
from backends.stand_ins.fake import FakeBackend

BATCHES = [[GenerateRequest(f"{name} {i}") for i in range(4)] for name in ("first", "second")]


class Stoppable(FakeBackend):
    """Answers as many requests as it is let, and then waits for a stop."""

    def __init__(self):
        super().__init__("local", device="cpu")
        self.begun, self._stop, self.at_once = [], asyncio.Event(), 0

    def stop_computing(self):
        self._stop.set()

    async def run(self, batch):
        self.begun.append(batch)
        self.at_once += 1
        assert self.at_once == 1
        await self._stop.wait()
        self.at_once -= 1
        return [*await super().run(batch[:2]), *(StoppedError() for _ in batch[2:])]


async def test_a_stopped_actor_gives_what_it_has_computed():
    backend = Stoppable()
    actor = ModelActor(backend)
    calls = [asyncio.create_task(actor.run(batch)) for batch in BATCHES]
    await asyncio.sleep(0.01)
    await actor.stop_computing()
    (first, _), (second, _) = await asyncio.gather(*calls)
    assert backend.begun == BATCHES[:1]
    assert [isinstance(answer, GenerateResponse) for answer in first] == [True, True, False, False]
    assert all(isinstance(answer, StoppedError) for answer in (*first[2:], *second))


async def test_an_actor_without_a_way_to_stop_ends_its_batch():
    actor = ModelActor(FakeBackend("local", device="cpu", latency=0.05))
    calls = [asyncio.create_task(actor.run(batch)) for batch in BATCHES]
    await asyncio.sleep(0.01)
    await actor.stop_computing()
    (first, _), (second, _) = await asyncio.gather(*calls)
    assert all(isinstance(answer, GenerateResponse) for answer in first)
    assert all(isinstance(answer, StoppedError) for answer in second)
