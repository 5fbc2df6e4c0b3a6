"""What replicas cost where one fails in mid-answer, and how each names the limit on tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, Message, Sampling, ScoreResponse
from backends.errors import BackendError
from backends.http.usage import PriceTable
from backends.openai import OpenAIBackend
from tests.backends.http.test_replicas import ASKED, DrawnAlone, asked_together, backend_of
from tests.backends.openai.lying_server import MODEL
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import refusal

PRICES = PriceTable(prompt=0, completion=1e6)
TEXT = GenerateRequest((Message("user", "Say something."),), Sampling(max_tokens=16))


class CutsOff(DrawnAlone):
    """Cuts the connection in the middle of its answers if ``cuts``; it knows the limit by one ``name``."""

    cuts = False
    name = "max_tokens"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        wrong = {"max_tokens", "max_completion_tokens"} - {self.name}
        if any(name in sent for name in wrong):
            return refusal(400, f"Unsupported parameter: '{wrong.pop()}'. Use '{self.name}' instead.")
        reply = super().reply(path, sent)
        if self.cuts and "Say something" in str(sent):
            reply.cut = 20
        return reply


async def test_what_a_replica_lost_in_mid_answer_is_charged(tmp_path: Path) -> None:
    async with CutsOff().running() as one, CutsOff().running() as other:
        backend = backend_of((one, other), tmp_path, prices=PRICES)
        await backend.describe()
        before = backend.spent() or 0.0
        one.cuts = True
        answers = [(await backend.run([TEXT]))[0] for _ in range(2)]
        spent = (backend.spent() or 0.0) - before
        await backend.close()
    assert not any(isinstance(answer, BackendError) for answer in answers), answers
    assert spent == 16 + 2, "the lost answer may have had all of its tokens"


async def test_a_lost_answers_price_counts_towards_the_limit(tmp_path: Path) -> None:
    async with CutsOff().running() as one, CutsOff().running() as other:
        backend = backend_of((one, other), tmp_path, prices=PRICES)
        await backend.describe()
        backend.limit_cost((backend.spent() or 0.0) + 20)
        one.cuts = True
        before = other.requests
        (answer,) = await backend.run([TEXT])
        await backend.close()
    assert isinstance(answer, BackendError)
    assert answer.kind == "quota"
    assert other.requests == before, "16 may be spent, and another 16 would exceed it"


async def test_what_never_reached_a_server_costs_nothing(tmp_path: Path) -> None:
    async with CutsOff().running() as one:
        backend = OpenAIBackend(one.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, prices=PRICES)
        await backend.describe()
        before = backend.spent()
        await backend.close()  # or the request is sent on a connection that just ended
    (answer,) = await backend.run([TEXT])
    await backend.close()
    assert isinstance(answer, BackendError)
    assert answer.kind == "connection"
    assert backend.spent() == before


@pytest.mark.parametrize("first", ["max_tokens", "max_completion_tokens"])
async def test_each_replica_has_its_name_of_the_limit(first: str, tmp_path: Path) -> None:
    async with CutsOff().running() as one, CutsOff().running() as other:
        one.name = first
        other.name = "max_tokens" if first == "max_completion_tokens" else "max_completion_tokens"
        backend = backend_of((one, other), tmp_path, max_in_flight=3)
        await backend.describe()
        one.pause = other.pause = 0.01
        before = one.requests, other.requests
        answers = await asked_together(backend)
        shares = one.requests - before[0], other.requests - before[1]
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert min(shares) >= 8
    assert sum(shares) <= len(ASKED) + 2, "it is asked by its own name at once"
