"""Routes over whole texts: each is compared with the same lists, which are requested once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from backends.openai import OpenAIBackend
from tests.backends.openai.lies import server as laboratory
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, WordServer


async def test_a_second_route_requests_few_more_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lists = Counter[bool]()
    for both in (False, True):
        monkeypatch.setitem(laboratory.KINDS, "score", {"echo", "prompt_logprobs"} if both else {"echo"})
        async with WordServer("score", seed=0).running() as server:
            folder = tmp_path / str(both)
            backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
            ask_directly(backend, server)
            report = await backend.probe()
            await backend.close()
        passed = {check.name for check in report.checks if check.passed}
        assert {"echo", "prompt_logprobs"} - passed == (set() if both else {"prompt_logprobs"})
        lists[both] = sum(bool(sent.get("logprobs")) and not sent.get("echo") for sent in server.bodies)
    assert lists[True] - lists[False] <= 3
