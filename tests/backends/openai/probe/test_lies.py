"""Every named lie is refused or asked again; none becomes a score."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from backends.base import ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lying_server import MODEL, IdLiar, Liar, Lie, distribution
from tests.backends.openai.raw_server import Reply

PROMPT = "Q: Who is it?\nA:"


REQUEST = ScoreRequest(PROMPT, (" Male", " Female"))


def echo_ignored(sent: dict[str, Any], reply: Reply) -> None:
    if sent.get("echo"):
        reply.choice["text"] = " Male"
        for name, values in reply.choice["logprobs"].items():
            reply.choice["logprobs"][name] = values[-1:]


def echo_shifted(sent: dict[str, Any], reply: Reply) -> None:
    if sent.get("echo"):
        values = reply.choice["logprobs"]["token_logprobs"]
        reply.choice["logprobs"]["token_logprobs"] = [None, *values[2:], values[-1]]


def one_token_dropped(sent: dict[str, Any], reply: Reply) -> None:
    if sent.get("echo"):
        for values in reply.choice["logprobs"].values():
            del values[3]


def _every_value(reply: Reply, change: Callable[[float], Any]) -> None:
    for token, value in reply.listed.items():
        reply.listed[token] = change(value)
    values = reply.choice["logprobs"]["token_logprobs"]
    reply.choice["logprobs"]["token_logprobs"] = [None if v is None else change(v) for v in values]


def nan(sent: dict[str, Any], reply: Reply) -> None:
    _every_value(reply, lambda _: math.nan)


def null(sent: dict[str, Any], reply: Reply) -> None:
    _every_value(reply, lambda _: None)


def placeholder(sent: dict[str, Any], reply: Reply) -> None:
    _every_value(reply, lambda _: -9999.0)


def positive(sent: dict[str, Any], reply: Reply) -> None:
    _every_value(reply, lambda value: -value)


def sums_to_more_than_one(sent: dict[str, Any], reply: Reply) -> None:
    total = math.fsum(map(math.exp, reply.listed.values()))
    _every_value(reply, lambda value: min(value + math.log(1.3 / total), 0.0) if len(reply.listed) > 1 else 0.0)
    reply.listed["more"] = math.log(0.4)


def probabilities(sent: dict[str, Any], reply: Reply) -> None:
    _every_value(reply, math.exp)


def swapped_choices(sent: dict[str, Any], reply: Reply) -> None:
    reply.choice["index"] = 1


def duplicated_choice(sent: dict[str, Any], reply: Reply) -> None:
    reply.body["choices"] *= 2


def one_number_for_all_answers(sent: dict[str, Any], reply: Reply) -> None:
    reply.body["id"] = "cmpl-0"


def wrong_model(sent: dict[str, Any], reply: Reply) -> None:
    reply.body["model"] = "cheaper-1"


def error_with_status_200(sent: dict[str, Any], reply: Reply) -> None:
    reply.body = {"error": {"message": "overloaded", "type": "overloaded_error"}}


def html_with_status_200(sent: dict[str, Any], reply: Reply) -> None:
    reply.raw = b"<html><body>Please sign in</body></html>"


def truncated_json(sent: dict[str, Any], reply: Reply) -> None:
    reply.raw = json.dumps(reply.body).encode()[:-40]


def body_ends_too_early(sent: dict[str, Any], reply: Reply) -> None:
    reply.cut = 60


def no_log_probabilities(sent: dict[str, Any], reply: Reply) -> None:
    reply.choice["logprobs"] = None


def no_choices(sent: dict[str, Any], reply: Reply) -> None:
    reply.body["choices"] = []


def leading_space_left_out(sent: dict[str, Any], reply: Reply) -> None:
    if sent.get("echo"):
        reply.status, reply.body = 400, {"error": {"message": "echo is not supported"}}
        return
    for name in ("tokens", "top_logprobs"):
        (first,) = reply.choice["logprobs"][name]
        left = {t.lstrip(" "): v for t, v in first.items()} if name == "top_logprobs" else first.lstrip(" ")
        reply.choice["logprobs"][name] = [left]


LIES: tuple[Lie, ...] = (
    *(echo_ignored, echo_shifted, one_token_dropped, nan, null, placeholder, positive, sums_to_more_than_one),
    *(
        probabilities,
        swapped_choices,
        duplicated_choice,
        one_number_for_all_answers,
        wrong_model,
        error_with_status_200,
    ),
    *(html_with_status_200, truncated_json, body_ends_too_early, no_log_probabilities, no_choices),
    leading_space_left_out,
)


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    async with Liar().running() as server:
        yield server


def backend_of(liar: Liar, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(liar.base_url, model=MODEL, api_key_env=None, probe_folder=folder, timeout=5)


def truth(continuation: str) -> float:
    return distribution(PROMPT)[continuation]


@pytest.mark.usefixtures("no_blocking")
async def test_an_honest_server_is_believed_and_its_echo_used(liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    assert (await backend.probe()).capabilities.text_route == "echo"
    (answer,) = await backend.run([REQUEST])
    await backend.close()
    assert isinstance(answer, ScoreResponse)
    assert [s.logprob for s in answer.scores] == pytest.approx([truth(c) for c in REQUEST.continuations])


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("from_the_start", [True, False], ids=["always", "after the probe"])
async def test_a_lie_never_becomes_a_wrong_score(lie: Lie, from_the_start: bool, liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    liar.lie = lie if from_the_start else None
    try:
        await backend.probe()
        liar.lie = lie
        (answer,) = await backend.run([REQUEST])
    except BackendError as error:
        answer = error
    finally:
        await backend.close()
    if isinstance(answer, BackendError):
        assert answer.retryable or answer.kind in ("inconsistent", "unsupported", "malformed", "bad_request")
        return
    # Another route than the lied about one may have told the truth. A shift that begins after the
    # probe is for the canary to find, not for one answer.
    assert isinstance(answer, ScoreResponse)
    if lie is echo_shifted and not from_the_start:
        await backend.verify_identity()
        assert backend.unverified_since is not None
        return
    for score, continuation in zip(answer.scores, REQUEST.continuations, strict=True):
        assert score.high >= truth(continuation) - 1e-6
        if score.logprob is not None:
            assert score.logprob == pytest.approx(truth(continuation))


async def test_a_lie_in_one_answer_leaves_the_others(liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    await backend.probe()
    liar.lie = positive
    (bad,) = await backend.run([REQUEST])
    liar.lie = None
    (good,) = await backend.run([REQUEST])
    await backend.close()
    assert isinstance(bad, BackendError)
    assert isinstance(good, ScoreResponse)


async def test_what_was_answered_before_a_failure_is_not_asked_again(liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    await backend.probe()
    many = ScoreRequest(PROMPT, (" Male", " Female", " doctor", " nurse"))
    before, limit = liar.requests, 3

    def fails_at_the_third(sent: dict[str, Any], reply: Reply) -> None:
        if liar.requests - before == limit:
            reply.status, reply.body = 503, {"error": "busy"}

    liar.lie = fails_at_the_third
    (failed,) = await backend.run([many])
    (answer,) = await backend.run([many])
    await backend.close()
    assert isinstance(failed, BackendError)
    assert isinstance(answer, ScoreResponse)
    # Prompt alone and four continuations, of which one was asked twice.
    assert liar.requests - before == 6


async def test_max_tokens_is_never_zero(liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    await backend.run([REQUEST])
    await backend.close()
    assert {b["max_tokens"] for b in liar.bodies if "max_tokens" in b} >= {1}
    assert all(b.get("max_tokens", 1) >= 1 for b in liar.bodies)


@pytest.mark.parametrize("kind", [Liar, IdLiar], ids=["echo", "prompt_logprobs"])
async def test_values_that_depend_on_the_servers_cache_are_not_used(kind: type[Liar], tmp_path: Path) -> None:
    """As vLLM with its cache of prompts: rows of a text whose start was read before come from an old buffer."""
    read: set[str] = set()

    def stale(sent: dict[str, Any], reply: Reply) -> None:
        if not sent.get("echo") and "prompt_logprobs" not in sent:
            return
        start = json.dumps(sent["prompt"])[:12]
        if start in read:
            for row in reply.choice.get("prompt_logprobs", [])[1:]:
                row[next(iter(row))]["logprob"] -= 0.7
            values = reply.choice["logprobs"]["token_logprobs"] if reply.choice["logprobs"] else []
            values[1:-1] = [v - 0.7 for v in values[1:-1]]
        read.add(start)

    async with kind().running() as server:
        server.lie = stale
        backend = backend_of(server, tmp_path)
        report = await backend.probe()
        answers = [(await backend.run([REQUEST]))[0] for _ in range(2)]
        await backend.close()
    assert report.capabilities.text_route in ("top_k", "top_k_ids"), report.render_text()
    name = "echo" if kind is Liar else "prompt_logprobs"
    assert next(c.passed for c in report.checks if c.name == name) is False
    for answer in answers:
        assert isinstance(answer, ScoreResponse)
        assert [s.logprob for s in answer.scores] == pytest.approx([truth(c) for c in REQUEST.continuations])


async def test_an_honest_servers_prompt_log_probabilities_are_used(tmp_path: Path) -> None:
    async with IdLiar().running() as server:
        backend = backend_of(server, tmp_path)
        report = await backend.probe()
        (answer,) = await backend.run([REQUEST])
        await backend.close()
    assert report.capabilities.text_route == "prompt_logprobs", report.render_text()
    assert isinstance(answer, ScoreResponse)
    assert [s.logprob for s in answer.scores] == pytest.approx([truth(c) for c in REQUEST.continuations])


async def test_an_error_inside_a_choice_is_returned_and_not_kept(liar: Liar, tmp_path: Path) -> None:
    """As OpenRouter tells of the provider behind it."""

    def limited(sent: dict[str, Any], reply: Reply) -> None:
        reply.choice["error"] = {"code": 429, "message": "the provider is busy"}
        reply.choice["logprobs"], reply.choice["finish_reason"] = None, "error"

    backend = backend_of(liar, tmp_path)
    await backend.probe()
    liar.lie = limited
    (refused,) = await backend.run([REQUEST])
    liar.lie = None
    (answer,) = await backend.run([REQUEST])
    await backend.close()
    assert isinstance(refused, BackendError)
    assert (refused.kind, refused.retryable) == ("rate_limited", True)
    assert isinstance(answer, ScoreResponse)
