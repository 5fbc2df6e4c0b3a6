"""What a dry run says of requests and money, and what the run then takes: near with a look, never above without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from audit.prepare.forecast import dry_run_audit
from backends.openai import PriceTable
from suites import OccuGender
from tests.backends.openai.lies.server import MODEL, WordServer
from tests.backends.openai.look.odd import ODD
from tests.backends.openai.raw_server import RawServer, backend_of
from tests.backends.openai.strict_server import DEPRECATED, StrictServer, varied

PRICES = PriceTable(prompt=2.0, completion=8.0)
CHATS = {"prompt_format": "chat_whole"}


def drawing() -> StrictServer:
    server = StrictServer(DEPRECATED, varied)
    server.served = MODEL
    return server


KINDS: dict[str, tuple[Callable[[], RawServer], dict[str, Any], dict[str, Any]]] = {
    "echo": (lambda: WordServer("echo", 0), {}, {}),
    "completion lists": (lambda: WordServer("lists", 0), {}, {}),
    "prompt_logprobs": (lambda: WordServer("ids", 0), {}, {}),
    "chat lists": (lambda: WordServer("chat", 0), CHATS, {}),
    "chat lists, one answer a request": (lambda: WordServer("chat", 1), CHATS, {}),
    "chat at temperature 1": (lambda: ODD["temperature 1 alone"]("chat", 0), CHATS, {}),
    "draws": (drawing, CHATS, {"samples": 10}),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_estimate_is_near_with_a_look_and_a_bound_without(kind: str, tmp_path: Path) -> None:
    serve, of_suite, options = KINDS[kind]
    server: Any = serve()

    def audit() -> tuple[Any, Audit]:
        backend = backend_of(server, tmp_path, prices=PRICES, **options)
        known = {"limit": 40, "small_sample": True, "db": tmp_path / "a.db", "out": tmp_path / "out"}
        return backend, Audit(models={"m": backend}, suites=[OccuGender(**of_suite)], **known)  # type: ignore[arg-type]

    async with server.running():
        (bound,) = (await dry_run_audit(audit()[1])).models
        assert not server.bodies, "a dry run sends nothing"
        (near,) = (await dry_run_audit(audit()[1], ask=True)).models
        looked = server.requests
        assert (await dry_run_audit(audit()[1])).models == [near], "a stored look is enough"
        assert server.requests == looked
        backend, asked = audit()
        await asked.run()
    sent, spent = sum("max_tokens" in str(body) for body in server.bodies[looked:]), backend.spent()
    said, most = (one.calls + one.checking_requests for one in (near, bound))
    print(f"{kind}: {said} requests said, {sent} sent; {near.cost} said, {spent} spent; at most {most}, {bound.cost}")
    assert said == pytest.approx(sent, rel=0.10)
    assert near.cost == pytest.approx(spent, rel=0.20)
    assert bound.is_bound
    assert looked + sent <= most
    assert looked + near.checking_requests <= bound.checking_requests
    assert spent <= bound.cost
