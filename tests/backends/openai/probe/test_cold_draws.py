"""Draws at a low temperature, where each takes a request: how many it takes, and whose lists follow the temperature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.openai import OpenAIBackend
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import HONEST, MODEL, Asked, Lie, Style, WordServer
from tests.backends.openai.lies.transformations import normalised


def _after_the_temperature(values: np.ndarray, asked: Asked) -> np.ndarray:
    return normalised(values / (asked.sent.get("temperature") or 1.0))


#: An honest server: its lists hold what the sampler draws from (SGLang's default; vLLM's ``processed_logprobs``).
OF_THE_SAMPLER = Lie(lists=_after_the_temperature)


async def _probed(lie: Lie, style: Style, folder: Path) -> tuple[bool, int]:
    """Whether scores are used, and how many requests had a low temperature."""
    async with WordServer(style, 1, lie).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        ask_directly(backend, server)
        described = await backend.describe()
        await backend.close()
    return "score" in described.capabilities, sum(sent.get("temperature") == 0.5 for sent in server.bodies)


@pytest.mark.parametrize("style", ["lists", "chat"])
async def test_texts_with_lists_decide_in_a_few_requests(style: Style, tmp_path: Path) -> None:
    scored, cold = await _probed(HONEST, style, tmp_path)
    assert scored
    assert cold <= 12  # usually 6; chance may leave the first look open


async def test_lists_of_the_samplers_temperature_are_believed(tmp_path: Path) -> None:
    assert (await _probed(OF_THE_SAMPLER, "chat", tmp_path))[0]


@pytest.mark.parametrize("style", ["lists", "chat"])
async def test_a_temperature_that_is_ignored_is_refused(style: Style, tmp_path: Path) -> None:
    scored, cold = await _probed(LIES["temperature ignored"](np.random.default_rng(0)), style, tmp_path)
    assert not scored
    assert cold <= 6
