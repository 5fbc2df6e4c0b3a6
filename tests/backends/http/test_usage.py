"""Tokens are counted, priced and limited."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import PriceTable
from backends.base import ScoreRequest, ScoreResponse
from backends.errors import BackendError, ErrorKind
from backends.http.errors import UnsentError
from backends.http.usage import Usage
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.server import MODEL, WordServer


def answer(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    details = {"cached_tokens": cached}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}}


def test_a_cost_by_hand() -> None:
    # 600 fresh at 2, 400 cached at 0.5, 100 drawn at 8, all a million: 0.0012 + 0.0002 + 0.0008.
    assert PriceTable(2.0, 8.0, 0.5).cost(1000, 100, 400) == pytest.approx(0.0022)
    assert PriceTable(2.0, 8.0).cost(1000, 100, 400) == pytest.approx(0.0028)


async def paid(usage: Usage, asked: dict[str, Any], response: dict[str, Any] | BackendError) -> None:
    async def ask() -> dict[str, Any]:
        if isinstance(response, BackendError):
            raise response
        return response

    with contextlib.suppress(BackendError):
        await usage.paid(asked, ask)


async def test_counts_add_up_and_cached_tokens_are_cheaper() -> None:
    usage = Usage(PriceTable(2.0, 8.0, 0.5))
    for _ in range(2):
        await paid(usage, {"prompt": "x" * 1000, "max_tokens": 100}, answer(1000, 100, 400))
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (2, 2000, 200, 800)
    assert usage.cost == pytest.approx(0.0044)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=60), st.integers(1, 50)), max_size=30), st.floats(0, 0.01))
async def test_the_limit_is_never_passed(requests: list[tuple[str, int]], limit: float) -> None:
    usage, answered = Usage(PriceTable(3.0, 9.0), limit), asyncio.Event()

    async def sent(prompt: str, most: int) -> None:
        async def ask() -> dict[str, Any]:
            await answered.wait()
            return answer(len(prompt.encode()) + 2, most)

        with contextlib.suppress(BackendError):
            await usage.paid({"prompt": prompt, "max_tokens": most}, ask)

    together = [asyncio.create_task(sent(*request)) for request in requests]
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(*together)
    assert usage.cost is not None
    assert usage.cost <= limit + 1e-12


@pytest.mark.parametrize(("kind", "is_paid"), [("timeout", True), ("connection", True), ("rate_limited", False)])
async def test_a_request_whose_fate_is_unknown_counts_as_paid(kind: ErrorKind, is_paid: bool) -> None:
    usage = Usage(PriceTable(2.0, 8.0))
    await paid(usage, {"prompt": "abc", "max_tokens": 5}, BackendError(kind, "no answer"))
    assert usage.cost == pytest.approx((5 * 2.0 + 5 * 8.0) / 1e6 if is_paid else 0.0)
    await paid(usage, {"prompt": "abc", "max_tokens": 5}, UnsentError(kind, "no server"))
    assert usage.cost == pytest.approx((5 * 2.0 + 5 * 8.0) / 1e6 if is_paid else 0.0)


async def test_requests_stop_before_the_cost_limit(tmp_path: Path) -> None:
    async with WordServer("echo", 0).running() as server:
        options: dict[str, Any] = {
            "model": MODEL,
            "api_key_env": None,
            "probe_folder": tmp_path,
            "prices": PriceTable(10.0, 10.0),
        }
        looking = OpenAIBackend(server.base_url, **options)
        await looking.probe()  # kept in the folder
        await looking.close()
        limit = 0.02
        backend = OpenAIBackend(server.base_url, max_cost=limit, **options)
        answers = []
        for number in range(200):
            answers += await backend.run([ScoreRequest(f"Question {number}:\nA:", (" Male", " Female"))])
        sent = server.requests
        (last,) = await backend.run([ScoreRequest("One more, longer:\n" * 30 + "A:", (" Male",))])
        await backend.close()
    assert isinstance(answers[0], ScoreResponse)
    assert isinstance(last, BackendError)
    assert (last.kind, last.retryable) == ("quota", False)
    assert server.requests == sent
    assert limit - 0.01 < (backend.spent() or 0.0) <= limit


@pytest.mark.parametrize(("prompt", "completion"), [(0, 0), (0, 3), (7, 0)])
@pytest.mark.parametrize("choice", [{"text": "Male"}, {"message": {"content": "Male"}}])
async def test_counts_of_nothing_are_no_counts(choice: dict[str, Any], prompt: int, completion: int) -> None:
    """Gateways that count nothing report 0: a limit to costs would never be reached."""
    usage = Usage(PriceTable(2.0, 8.0))
    await paid(usage, {"prompt": "abc", "max_tokens": 5}, {**answer(prompt, completion), "choices": [choice]})
    assert usage.cost == pytest.approx((5 * 2.0 + 5 * 8.0) / 1e6)


@pytest.mark.parametrize(
    ("usage", "generated"),
    [
        ({"completion_tokens": 50, "total_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"completion_tokens": 10, "total_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"completion_tokens": 10, "total_tokens": 60}, 50),
        ({"total_tokens": 60}, 50),
        ({"completion_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"completion_tokens": 10, "total_tokens": 20, "completion_tokens_details": {"reasoning_tokens": 40}}, 50),
        ({"completion_tokens": 10, "total_tokens": 20}, 10),
    ],
)
async def test_a_thought_is_counted_and_paid_for(usage: dict[str, Any], generated: int) -> None:
    counted = Usage(PriceTable(prompt=0.0, completion=1.0))
    await paid(counted, {"prompt": "x", "max_tokens": 99}, {"usage": {"prompt_tokens": 10, **usage}})
    assert counted.completion_tokens == generated
    assert counted.cost == pytest.approx(generated / 1e6)
