"""Routes over whole texts: each is compared with the same lists, which are requested once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from backends.openai import OpenAIBackend
from backends.openai.probe.experiments import sequences
from tests.backends.openai.lies import server as laboratory
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, WordServer

#: Lists hold one of these words; until now an honest echo then failed as "differs by 0 nats over 1 tokens".
_UNLIKELY = ("The copper midwife Thursday window", "careful seven river apple pilot")


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


@pytest.mark.parametrize(
    ("of_a_zone", "said"),
    [(3, "over 1 tokens, by 0 over 9 of a long text"), (0, "no row of a long text could be compared")],
)
async def test_rows_of_a_long_text_suffice(
    of_a_zone: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        sequences, "SEQUENCES", ("The copper midwife Thursday window", "careful seven river apple pilot")
    )
    monkeypatch.setattr(sequences, "_OF_A_ZONE", of_a_zone)
    async with WordServer("echo", seed=0).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        ask_directly(backend, server)
        report = await backend.probe()
        await backend.close()
    (check,) = [check for check in report.checks if check.name == "echo"]
    assert said in check.message
    assert bool(check.passed) == (of_a_zone > 0)


async def test_too_few_comparable_rows_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        sequences, "SEQUENCES", ("The copper midwife Thursday window", "careful seven river apple pilot")
    )
    monkeypatch.setattr(sequences, "_OF_A_ZONE", 1)
    monkeypatch.setattr(sequences, "ZONES", ((0.3, 0.5),))
    async with WordServer("echo", seed=0).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        ask_directly(backend, server)
        report = await backend.probe()
        await backend.close()
    (check,) = [check for check in report.checks if check.name == "echo"]
    assert check.message == "only 2 of its tokens are in lists of 20: 3 must be compared"
