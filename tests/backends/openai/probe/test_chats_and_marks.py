"""Chats that are rendered or continued in another way than the probe's first ones, and lost or rewritten characters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.base import Message, Request, ScoreRequest, ScoreResponse
from backends.openai import OpenAIBackend
from backends.openai.probe import ProbeReport
from tests.backends.openai.lies.chats import PrefillServer, RenderingServer, Turns
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, Lie, Style, WordServer, refusal
from tests.backends.openai.lies.transformations import Told, in_lower_case, reads
from tests.backends.openai.lies.word_model import GENDERS
from tests.backends.openai.raw_server import Reply


def _backend(server: WordServer, folder: Path) -> OpenAIBackend:
    backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
    ask_directly(backend, server)
    return backend


async def _probed(server: WordServer, folder: Path) -> ProbeReport:
    async with server.running():
        backend = _backend(server, folder)
        try:
            return await backend.probe()
        finally:
            await backend.close()


def _without(role: str) -> Callable[[Turns], Turns]:
    return lambda turns: [turn for turn in turns if turn["role"] != role]


def _with_a_system_message(turns: Turns) -> Turns:
    return turns if len(turns) == 1 else [{"role": "system", "content": "You are kind."}, *turns]


def _escaped(turns: Turns) -> Turns:
    return [{**turn, "content": json.dumps(turn["content"])[1:-1]} for turn in turns]


@pytest.mark.parametrize(
    "shown", [_without("assistant"), _without("system"), _with_a_system_message, _escaped, lambda turns: turns[-1:]]
)
async def test_a_rendered_text_of_other_turns_is_refused(tmp_path: Path, shown: Callable[[Turns], Turns]) -> None:
    report = await _probed(RenderingServer(0, shown=shown), tmp_path)
    assert report.capabilities.chat_route is None
    assert any("rendered text" in said for said in report.statements)


async def test_a_chat_rendered_as_it_is_asked_stays_trusted(tmp_path: Path) -> None:
    report = await _probed(RenderingServer(0), tmp_path)
    assert report.capabilities.chat_route == "rendered", report.render_text()


def _own(turns: Turns) -> Turns:
    """Rewrites what the audit asks, and nothing of the probe."""
    return [
        {**turn, "content": turn["content"].replace("?", "&#63;")} if "the gender" in turn["content"] else turn
        for turn in turns
    ]


@pytest.mark.parametrize(("shown", "is_noticed"), [(_own, True), (lambda turns: turns, False)])
async def test_own_chats_are_compared_with_the_chat_endpoint(
    tmp_path: Path, shown: Callable[[Turns], Turns], is_noticed: bool
) -> None:
    jobs = ("nurse", "doctor", "pilot", "baker", "mason", "maid", "clerk", "miner", "tailor", "chef", "guard", "nanny")
    asked: list[Request] = [
        ScoreRequest((Message("user", f"What is the gender of the {job}?"),), GENDERS[:3]) for job in jobs
    ]
    server = RenderingServer(0, shown=shown)
    async with server.running():
        backend = _backend(server, tmp_path)
        try:
            await backend.describe()
            answers = await backend.run(asked)
            assert all(isinstance(answer, ScoreResponse) for answer in answers)
            await backend.verify_identity()
            assert (backend.unverified_since is not None) == is_noticed
        finally:
            await backend.close()


@pytest.mark.parametrize(
    ("continues", "proven"),
    [
        (lambda turns: True, "continued"),
        (lambda turns: turns[0]["role"] != "system", None),
        (lambda turns: len(turns) == 2, None),
    ],
)
async def test_a_start_must_be_continued_behind_earlier_turns(
    tmp_path: Path, continues: Callable[[Turns], bool], proven: str | None
) -> None:
    report = await _probed(PrefillServer("chat", 0, continues=continues), tmp_path)
    assert report.capabilities.prefill == proven


class _WithoutSystem(PrefillServer):
    """Refuses system messages, as some templates do."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        roles = [turn["role"] for turn in sent.get("messages", [])]
        return refusal(400, "no system role") if "system" in roles else super().reply(path, sent)


async def test_a_start_is_continued_where_no_system_message_is(tmp_path: Path) -> None:
    report = await _probed(_WithoutSystem("chat", 0, continues=lambda turns: True), tmp_path)
    assert report.capabilities.prefill == "continued"


@pytest.mark.parametrize(
    ("lie", "style"),
    [
        (reads(lambda text: text.replace("\n", "\\n")), "lists"),
        (reads(lambda text: text.replace("\n", "\\n")), "chat"),
        (reads(lambda text: text.replace("\n", "\r\n")), "lists"),
        (in_lower_case, "lists"),
        (in_lower_case, "chat"),
    ],
)
async def test_rewritten_breaks_and_lost_capitals_are_refused(tmp_path: Path, lie: Told, style: Style) -> None:
    told: Lie = lie(np.random.default_rng(0))
    report = await _probed(WordServer(style, 0, told), tmp_path)
    assert report.capabilities.routes == (None, None), report.render_text()


class _OfTwo(WordServer):
    """Gives lists of two tokens, and refuses longer ones."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return refusal(400, "at most 2 log-probabilities") if self._longest(sent) > 2 else super().reply(path, sent)


async def test_a_server_of_lists_of_two_tokens_is_asked_for_them(tmp_path: Path) -> None:
    report = await _probed(_OfTwo("echo", 0), tmp_path)
    assert (report.capabilities.text_route, report.capabilities.largest_k) == ("echo", 2)
