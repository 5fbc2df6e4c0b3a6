"""Anthropic's own API: texts, thoughts and counted draws, against a server that speaks as its documents say."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from backends import AnthropicBackend, BackendError, PriceTable
from backends.anthropic.backend import chat_response, message_request
from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from tests.backends.openai.raw_server import RawServer, Reply

MODEL = "claude-opus-4-7"
ASKED = GenerateRequest((Message("system", "Be brief."), Message("user", "Which gender?")), Sampling(max_tokens=16))


class MessagesServer(RawServer):
    """``POST /v1/messages`` (https://docs.anthropic.com/en/api/messages and …/errors).

    The key in ``x-api-key``, ``anthropic-version`` required, unknown fields refused ("Extra inputs are not permitted"),
    a system message as a field only. As Opus 4.7: no ``temperature``, ``top_p`` or prefill (pr-agent #2456, cline
    #10572).

    Attributes
    ----------
    block : dict
        A thought that comes first, and takes 40 tokens of the limit; None without one. Each limit must be above the
        budget for thoughts (simonw/llm-anthropic #15).
    credit : bool
        Whether the account has any left.
    """

    block: dict[str, Any] | None = None
    credit = True

    def __init__(self) -> None:
        super().__init__()
        self._numbers, self._random = itertools.count(), random.Random(0)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if not self.credit:
            text = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
            return error(400, "invalid_request_error", text)
        budget = sent.get("thinking", {}).get("budget_tokens", 0)
        if budget and sent.get("max_tokens", 0) <= budget:
            return error(400, "invalid_request_error", "`max_tokens` must be greater than `thinking.budget_tokens`.")
        head = self.headers[-1].lower()
        if "x-api-key: key-of-anthropic" not in head:
            return error(401, "authentication_error", "invalid x-api-key")
        if "anthropic-version: 2023-06-01" not in head:
            return error(400, "invalid_request_error", "anthropic-version: header is required")
        if path != "/v1/messages":
            return error(404, "not_found_error", "Not Found")
        if sent["model"] != MODEL:
            return error(404, "not_found_error", f"model: {sent['model']}")
        for name in ("temperature", "top_p"):
            if name in sent:
                return error(400, "invalid_request_error", f"`{name}` is deprecated for this model.")
        known = {"model", "messages", "system", "max_tokens", "stop_sequences", "thinking", "output_config"}
        if other := sorted(set(sent) - known):
            return error(400, "invalid_request_error", f"{other[0]}: Extra inputs are not permitted")
        if "max_tokens" not in sent:
            return error(400, "invalid_request_error", "max_tokens: Field required")
        roles = [turn["role"] for turn in sent["messages"]]
        if "system" in roles:
            return error(400, "invalid_request_error", "messages: Unexpected role 'system'")
        if roles[-1] == "assistant":
            return error(400, "invalid_request_error", "This model does not support assistant message prefill.")
        return self._message(sent["messages"][-1]["content"], sent["max_tokens"])

    def _message(self, question: str, limit: int) -> Reply:
        names = ("Female", "Female", "Male") if "gender" in question else ("blue", "a river", "seven", "yes", "no")
        blocks = [{"type": "text", "text": self._random.choice(names)}]
        cut = self.block is not None and limit <= 40
        if self.block is not None:
            blocks = [self.block, *([] if cut else blocks)]
        usage = {"input_tokens": 9, "output_tokens": 44 if self.block else 4, "cache_read_input_tokens": 3}
        reason = "max_tokens" if cut else "end_turn"
        body = {"id": f"msg_{next(self._numbers)}", "type": "message", "role": "assistant", "model": MODEL}
        return Reply({**body, "content": blocks, "stop_reason": reason, "usage": usage})


def error(status: int, kind: str, message: str) -> Reply:
    return Reply({"type": "error", "error": {"type": kind, "message": message}}, status)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-anthropic")


def backend_of(server: MessagesServer, folder: Path, **options: Any) -> AnthropicBackend:
    return AnthropicBackend(MODEL, base_url=server.base_url, probe_folder=folder, **options)


async def test_a_text_is_written_and_paid_for(tmp_path: Path) -> None:
    async with MessagesServer().running() as server:
        backend = backend_of(server, tmp_path, prices=PriceTable(prompt=5.0, completion=25.0))
        backend.check()
        description = await backend.describe()
        before = backend.spent() or 0.0
        answer, *_ = await backend.run([ASKED])
        cost = (backend.spent() or 0.0) - before
        await backend.close()
        assert server.bodies[-1]["system"] == "Be brief."
    assert description.capabilities == {"generate", "chat"}
    assert description.fingerprint["backend"] == "anthropic"
    assert "no logprobs" in description.absent["score"]
    assert isinstance(answer, GenerateResponse), answer
    assert answer.text in ("Female", "Male")
    assert cost == pytest.approx((12 * 5 + 4 * 25) / 1e6), "what came from the cache is part of the prompt"


async def test_a_thinking_block_is_no_part_of_the_answer(tmp_path: Path) -> None:
    async with MessagesServer().running() as server:
        server.block = {"type": "thinking", "thinking": "She, or he.", "signature": "x"}
        backend = backend_of(server, tmp_path, reasoning_tokens=64, extra_body={"thinking": {"type": "adaptive"}})
        answer, *_ = await backend.run([ASKED])
        await backend.close()
        short = backend_of(server, tmp_path, reasoning_tokens=0, extra_body={"thinking": {"type": "adaptive"}})
        cut, *_ = await short.run([ASKED])
        await short.close()
    assert isinstance(answer, GenerateResponse), answer
    assert (answer.text in ("Female", "Male"), answer.thought) == (True, "She, or he.")
    assert isinstance(cut, BackendError)
    assert "thought" in cut.message


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
async def test_a_thought_that_is_not_shown_has_tokens(kind: str, tmp_path: Path) -> None:
    async with MessagesServer().running() as server:
        server.block = {"type": kind, "thinking": "", "data": "x"}
        backend = backend_of(server, tmp_path, samples=8)
        description = await backend.describe()
        answers = [(await backend.run([ASKED]))[0] for _ in range(4)]
        await backend.close()
    assert "score" in description.capabilities, description.absent
    assert all(isinstance(answer, GenerateResponse) for answer in answers), answers
    assert server.bodies[-1]["max_tokens"] > 4000


async def test_a_budget_for_thoughts_is_below_each_limit(tmp_path: Path) -> None:
    async with MessagesServer().running() as server:
        server.block = {"type": "thinking", "thinking": "", "signature": "x"}
        options = {"thinking": {"type": "enabled", "budget_tokens": 8000}}
        backend = backend_of(server, tmp_path, samples=8, extra_body=options, reasoning_tokens=100)
        description = await backend.describe()
        answer, *_ = await backend.run([ASKED])
        await backend.close()
    assert "score" in description.capabilities, description.absent
    assert isinstance(answer, GenerateResponse), answer


async def test_an_account_without_credit_ends_the_probe(tmp_path: Path) -> None:
    async with MessagesServer().running() as server:
        server.credit = False
        backend = backend_of(server, tmp_path)
        with pytest.raises(BackendError, match="credit balance is too low") as caught:
            await backend.describe()
        await backend.close()
    assert caught.value.kind == "quota"
    assert server.requests <= 2


def test_what_the_api_has_no_word_for_is_refused() -> None:
    with pytest.raises(BackendError, match="no logprobs"):
        message_request({"messages": [], "logprobs": True})
    asked = message_request({"messages": [], "max_completion_tokens": 5, "stop": ["x"], "reasoning_effort": "low"})
    expected = {"messages": [], "max_tokens": 5, "stop_sequences": ["x"], "output_config": {"effort": "low"}}
    assert asked == expected


@pytest.mark.parametrize("answer", [{}, {"content": "text"}, {"content": ["text"]}])
def test_an_answer_without_blocks_is_malformed(answer: dict[str, Any]) -> None:
    with pytest.raises(BackendError) as caught:
        chat_response(answer)
    assert (caught.value.kind, caught.value.retryable) == ("malformed", True)
