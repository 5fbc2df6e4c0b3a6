"""A model behind which another one answers some requests, without a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from backends.base import Answer, Request, ScoreRequest
from backends.stand_ins.fake import FakeBackend

#: (number of the request, requests in flight, random number in [0, 1)) → whether another model answers it.
Foreign = Callable[[int, int, float], bool]


def other_probability(prompt: str, continuation: str) -> float:
    return 0.001 + 0.05 * random.Random(f"other|{prompt}|{continuation}").random()


class MixedBackend(FakeBackend):
    """Answers some requests by another model, and wants a part of its questions asked twice.

    ``noise`` nats are what its scores are known to move by, and four times as much is tolerated.
    """

    def __init__(self, foreign: Foreign, *, seed: int = 0, noise: float = 0.0, in_flight: int = 8) -> None:
        super().__init__("mixed", batch_size=1, max_in_flight=in_flight)
        self._foreign, self._noise = foreign, noise
        self._other = FakeBackend("other", score=other_probability)
        self._draw = random.Random(seed)
        self.n_requests = self.in_flight = 0
        self.batches: list[Request] = []

    def repeats_itself(self, request: Request) -> bool:
        return isinstance(request, ScoreRequest)

    def score_noise(self) -> tuple[float, float]:
        return self._noise, max(0.02, 4 * self._noise)

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        self.n_requests += 1
        self.in_flight += 1
        self.batches += batch
        is_foreign = self._foreign(self.n_requests, self.in_flight, self._draw.random())
        await asyncio.sleep(0)
        try:
            return await (self._other.run(batch) if is_foreign else super().run(batch))
        finally:
            self.in_flight -= 1
