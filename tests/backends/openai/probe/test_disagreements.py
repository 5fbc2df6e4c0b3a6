"""Two routes to one number that differ: a third experiment decides and is told, or nothing is used."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from backends.base import Description
from backends.openai import OpenAIBackend
from backends.openai.probe.experiments.draws import settle
from backends.openai.probe.session import NotTestedError, ProbeSession
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.server import HONEST, MODEL, Lie, Style, WordServer


async def described(style: Style, lie: Lie, folder: Path) -> Description:
    async with WordServer(style, 1, lie).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        found = await backend.describe()
        await backend.close()
    return found


@pytest.mark.parametrize(
    ("lie", "style", "said"),
    [
        ("BOS doubled on texts, not on ids", "whole", "Every text is asked as token ids"),
        ("echo of another model", "echo", "decided for the lists"),
    ],
)
async def test_what_decided_between_two_routes_is_stated(lie: str, style: Style, said: str, tmp_path: Path) -> None:
    found = await described(style, LIES[lie](np.random.default_rng(0)), tmp_path)
    assert "score" in found.capabilities
    assert any(said in statement for statement in found.statements), found.statements


async def test_an_open_disagreement_leaves_no_score_and_a_reason(tmp_path: Path) -> None:
    found = await described("lists", LIES["semantic cache"](np.random.default_rng(0)), tmp_path)
    assert "score" not in found.capabilities
    assert any("no score of a text is used" in statement for statement in found.statements)


async def test_an_honest_server_says_its_limits_and_its_cost(tmp_path: Path) -> None:
    found = await described("lists", HONEST, tmp_path)
    assert found.statements == ()
    assert any("temperature between" in limit for limit in found.limits)
    assert 0 < found.requests <= 400


async def test_a_small_difference_is_not_left_to_chance() -> None:
    """120 draws would rarely decide between 0.30 and 0.25; where neither is true, they would do so by chance."""
    async with WordServer("lists", 1).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None)
        with pytest.raises(NotTestedError, match="too little"):
            await settle(ProbeSession(backend._api), "Her brother is a", " doctor", math.log(0.3), math.log(0.25))
        await backend.close()
    assert server.requests == 0
