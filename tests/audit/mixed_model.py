"""A hosted model behind which another one answers some requests, without a server."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from backends import FakeBackend
from backends.base import Answer, ChecksMade, Request, ScoreRequest

#: (number of the request, random number in [0, 1)) → whether another model answers it.
Foreign = Callable[[int, float], bool]


def other_probability(prompt: str, continuation: str) -> float:
    return 0.001 + 0.05 * random.Random(f"other|{prompt}|{continuation}").random()


class MixedBackend(FakeBackend):
    """Answers some requests by another model, and moves each score by up to ``noise`` of its probability."""

    unverified_since: float | None = None
    unverified_reason = ""

    def __init__(self, foreign: Foreign = lambda number, drawn: False, *, noise: float = 0.0) -> None:
        super().__init__("mixed", score=self._probability, batch_size=1, max_in_flight=8)
        self._foreign, self._noise, self._draw = foreign, noise, random.Random(0)
        self._other = FakeBackend("other", score=other_probability)
        self.seen: list[Request] = []
        self.made = ChecksMade()

    def _probability(self, prompt: str, continuation: str) -> float:
        own = 0.001 + 0.05 * random.Random(f"own|{prompt}|{continuation}").random()
        return own * (1 + self._noise * (2 * self._draw.random() - 1))

    def repeats_itself(self, request: Request) -> bool:
        return isinstance(request, ScoreRequest)

    def scores_separately(self, request: Request) -> bool:
        return False

    def checks_made(self) -> ChecksMade:
        return self.made

    async def verify_identity(self) -> None:
        pass

    def drain_ambiguous(self) -> list[Request]:
        return []

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        self.seen += batch
        is_foreign = self._foreign(len(self.seen), self._draw.random())
        return await (self._other.run(batch) if is_foreign else super().run(batch))
