"""Servers that list one token: their lists agree by chance now and then, and those of one answer always do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.openai import OpenAIBackend
from backends.openai.probe.report import ProbeReport
from tests.backends.openai.lies import server as laboratory
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import HONEST, MODEL, Lie, WordServer
from tests.backends.openai.lies.transformations import normalised


@pytest.fixture(autouse=True)
def _one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "LONGEST", 1)


async def _probed(lie: Lie, seed: int, folder: Path) -> ProbeReport:
    async with WordServer("chat", seed, lie).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        ask_directly(backend, server)
        report = await backend.probe()
        await backend.close()
    return report


@pytest.mark.parametrize("seed", [2, 3])  # two pairs of lists agree within 0.001 nats in the second
async def test_an_honest_server_that_lists_one_token_is_believed(seed: int, tmp_path: Path) -> None:
    report = await _probed(HONEST, seed, tmp_path)
    assert report.capabilities.chat_route == "chat_first"
    assert report.statements == ()


@pytest.mark.parametrize(
    "lie",
    [
        "cache by the first 12 characters",
        *(
            pytest.param(lie, marks=pytest.mark.battery)
            for lie in (
                "semantic cache",
                "cache by the last 12 characters",
                "cache without case",
                "cache without word order",
                "prompt cut to its last 100 tokens",
                "system messages dropped",
                "emoji dropped",
            )
        ),
    ],
)
async def test_one_answer_to_twins_is_refused(lie: str, tmp_path: Path) -> None:
    report = await _probed(LIES[lie](np.random.default_rng(0)), 2, tmp_path)
    assert report.capabilities.chat_route is None
    assert "get one answer" in report.statements[0]


async def test_one_token_that_is_always_certain_proves_nothing(tmp_path: Path) -> None:
    def sure(values: np.ndarray) -> np.ndarray:
        return normalised(30 * values)

    lie = Lie(lists=lambda values, asked: sure(values), draws=lambda values, t, asked: sure(values) / (t or 1e-3))
    report = await _probed(lie, 2, tmp_path)
    assert report.capabilities.chat_route is None
    assert "do not show which prompt was read" in report.statements[0]
