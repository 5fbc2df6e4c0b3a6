"""Values of tokens that no list of the likeliest holds: equal ones, impossible ones, those that draws contradict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.base import ScoreRequest
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.openai.probe.report import ProbeReport
from backends.openai.scoring.prompt_logprobs import echoed
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.server import HONEST, MODEL, Asked, Lie, Style, WordServer
from tests.backends.openai.raw_server import Reply

EVEN, ODD = 0, 1  # a server of an even seed gives several draws a request
TESTED = "Values of unlikely tokens"


async def probed(style: Style, lie: Lie, folder: Path, seed: int = EVEN) -> ProbeReport:
    async with WordServer(style, seed, lie).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        report = await backend.probe()
        await backend.close()
    return report


def passed(report: ProbeReport, name: str) -> bool | None:
    return next(check.passed for check in report.checks if check.name == name)


@pytest.mark.parametrize("style", ["ids", "chosen", "score", "whole"])
async def test_draws_with_a_bias_confirm_unlikely_values(style: Style, tmp_path: Path) -> None:
    report = await probed(style, HONEST, tmp_path)
    assert passed(report, "unlikely values") is True
    assert not any(TESTED in limit for limit in report.limits)


@pytest.mark.parametrize("style", ["ids", "chosen", "score"])
async def test_draws_with_a_bias_contradict_false_unlikely_values(style: Style, tmp_path: Path) -> None:
    report = await probed(style, LIES["names below rank 20 shuffled"](np.random.default_rng(0)), tmp_path)
    assert passed(report, "unlikely values") is False
    assert report.capabilities.text_route is None
    assert "logit_bias contradict" in report.without_scores


@pytest.mark.parametrize(("style", "seed"), [("ids", ODD), ("echo", EVEN)])
async def test_unlikely_values_that_nothing_tests_are_said_to_be(style: Style, seed: int, tmp_path: Path) -> None:
    report = await probed(style, HONEST, tmp_path, seed)
    assert report.capabilities.text_route is not None
    assert any(TESTED in limit for limit in report.limits)


async def test_bounds_beyond_a_short_list_need_no_test(tmp_path: Path) -> None:
    report = await probed("lists", HONEST, tmp_path)
    assert not any(TESTED in limit for limit in report.limits)


async def test_a_bias_that_does_something_else_proves_nothing(tmp_path: Path) -> None:
    class Halved(WordServer):
        def _bias(self, sent):  # type: ignore[no-untyped-def]
            return super()._bias(sent) / 2

    async with Halved("ids", EVEN).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        report = await backend.probe()
        await backend.close()
    assert report.capabilities.text_route == "prompt_logprobs", "an honest server is not refused for its bias"
    assert passed(report, "unlikely values") is None
    assert any(TESTED in limit for limit in report.limits)


@pytest.mark.parametrize("style", ["echo", "ids", "chosen", "score"])
@pytest.mark.parametrize(
    "lie",
    [
        "-100 for unlikely rows",
        "-20 for unlikely rows",
        "1 for the probability of unlikely rows",
        "a floor of -7 under rows",
        "a floor of -10 under rows",
    ],
)
async def test_placeholders_and_floors_in_rows_are_not_scores(lie: str, style: Style, tmp_path: Path) -> None:
    report = await probed(style, LIES[lie](np.random.default_rng(0)), tmp_path)
    assert report.capabilities.text_route in (None, "top_k", "top_k_ids"), "lists alone, or nothing"


async def test_a_row_that_repeats_its_lowest_value_is_refused(tmp_path: Path) -> None:
    lie = LIES["a floor of -7 under rows"](np.random.default_rng(0))
    async with WordServer("echo", EVEN, lie).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        with pytest.raises(BackendError, match="share its lowest value, -7"):
            await echoed(backend._api, "The copper midwife Thursday window careful seven river apple secretary")
        await backend.close()


@pytest.mark.parametrize("style", ["echo", "ids"])
async def test_answers_that_are_certain_together_are_refused(style: Style, tmp_path: Path) -> None:
    """A lie that begins after the probe: each audited word has probability 0.6."""

    def lists(values: np.ndarray, asked) -> np.ndarray:  # type: ignore[no-untyped-def]
        is_row = asked.kind in ("echo", "prompt_logprobs") and asked.probed
        return np.full_like(values, np.log(0.6) + 1e-3 * len(asked.text) % 0.01) if is_row else values

    async with WordServer(style, EVEN, Lie(lists=lists)).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)
        await backend.probe()
        server.probe_ended = server.requests
        (answer,) = await backend.run([ScoreRequest("Anna saw Ben in the", (" garden", " house"))])
        await backend.close()
    assert isinstance(answer, BackendError)
    assert "more than 1" in answer.message or "lowest value" in answer.message


async def test_a_text_that_is_only_refused_casts_no_doubt(tmp_path: Path) -> None:
    """An honest server that does not echo one of the probe's texts: its lists stay in use."""

    def says(reply: Reply, asked: Asked) -> None:
        if asked.kind == "echo" and "copper midwife" in asked.text:
            reply.status, reply.body = 400, {"error": {"message": "too unusual", "type": "invalid_request_error"}}

    report = await probed("echo", Lie(says=says), tmp_path)
    assert report.capabilities.text_route == "top_k"
    assert passed(report, "echo") is False
    assert report.statements == ()
