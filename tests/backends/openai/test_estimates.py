"""What a dry run says of requests and money, and what the run then takes: near with a look, never above without."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.prepare.forecast.estimate import count_requests
from audit.store import Store
from backends.base import ScoreRequest, ScoreResponse
from backends.openai import OpenAIBackend, PriceTable
from suites import OccuGender
from suites.base import Item
from tests.backends.openai.lies.server import MODEL, WordServer
from tests.backends.openai.look.odd import ODD
from tests.backends.openai.raw_server import RawServer, backend_of
from tests.backends.openai.strict_server import DEPRECATED, StrictServer, varied

PRICES = PriceTable(prompt=2.0, completion=8.0)
#: A chat's answer has no space before it.
CHATS = {"prompt_format": "chat"}


def drawing() -> StrictServer:
    server = StrictServer(DEPRECATED, varied)
    server.served = MODEL
    return server


KINDS: dict[str, tuple[Callable[[], RawServer], dict[str, Any], dict[str, Any]]] = {
    "echo": (lambda: WordServer("echo", 0), {}, {}),
    "completion lists": (lambda: WordServer("lists", 0), {}, {}),
    "prompt_logprobs": (lambda: WordServer("ids", 0), {}, {}),
    "chat lists": (lambda: WordServer("chat", 0), CHATS, {}),
    "chat at temperature 1": (lambda: ODD["temperature 1 alone"]("chat", 0), CHATS, {}),
    "draws": (drawing, CHATS, {"samples": 10}),
}


def is_prefill(item: Item) -> bool:
    """Whether a question begins the answer, which these servers do not continue."""
    prompt = item.request.prompt if isinstance(item.request, ScoreRequest) else ""
    return not isinstance(prompt, str) and prompt[-1].role == "assistant"


def estimate(backend: OpenAIBackend, items: list[Item], folder: Path) -> tuple[int, float]:
    """The requests and the money that these items take at most, by what is known of the server."""
    with Store.open(folder / "empty.db") as store:
        found = count_requests(items, "none", backend, store)
    cost = backend.highest_cost(found.prompt_tokens(backend)[0], found.generated_tokens)
    assert cost is not None
    return found.calls, cost


@pytest.mark.parametrize("kind", KINDS)
async def test_an_estimate_is_near_with_a_look_and_a_bound_without(kind: str, tmp_path: Path) -> None:
    serve, of_suite, options = KINDS[kind]
    server: Any = serve()
    asked = (item for item in OccuGender(**of_suite).items() if not is_prefill(item))
    items = list(itertools.islice(asked, 0, 1200, 30))
    async with server.running():
        unasked = backend_of(server, tmp_path, prices=PRICES, **options)
        assert unasked.describe_unasked().fingerprint["unasked"]
        most_calls, most_cost = estimate(unasked, items, tmp_path)
        assert not server.bodies, "a dry run sends nothing"
        backend = backend_of(server, tmp_path, prices=PRICES, **options)
        await backend.describe()
        calls, cost = estimate(backend, items, tmp_path)
        known = backend_of(server, tmp_path, prices=PRICES, **options)
        known.describe_unasked()
        assert estimate(known, items, tmp_path) == (calls, cost), "a stored look is enough"
        backend._checks = None  # their draws are counted by themselves
        before, paid = backend.usage.requests, backend.spent() or 0.0
        answers = await backend.run([item.request for item in items])
        sent, spent = backend.usage.requests - before, (backend.spent() or 0.0) - paid
        await backend.close()
    failed = [answer for answer in answers if not isinstance(answer, ScoreResponse)]
    assert not failed, failed[0]
    print(
        f"{kind}: {calls} requests said, {sent} sent; {cost:.5f} said, {spent:.5f} spent; "
        f"unasked at most {most_calls}, {most_cost:.5f}"
    )
    assert calls == pytest.approx(sent, rel=0.10)
    assert cost == pytest.approx(spent, rel=0.10)
    assert sent <= most_calls
    assert spent <= most_cost
