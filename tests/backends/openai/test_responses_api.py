"""A model that only the Responses API reaches is found, asked and read there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError
from backends.http.usage import Usage
from backends.openai import OpenAIBackend, PriceTable
from backends.openai.capabilities import ServerCapabilities
from backends.openai.protocol.responses_api import chat_response, responses_request
from tests.backends.openai.direct_routes import api_of
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.responses_server import ResponsesServer
from tests.backends.openai.strict_server import MODEL, O_SERIES, THINKING, Manner, refusal, varied

_PLAIN = Manner(
    {
        "logprobs": (400, "logprobs are not supported"),
        "temperature": (400, "Unsupported parameter: 'temperature' is not supported with this model."),
    }
)
_ASKED = GenerateRequest((Message("system", "One word."), Message("user", "Male or female?")), Sampling(max_tokens=16))


def backend_of(server: ResponsesServer, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, **options)


@pytest.mark.parametrize("manner", [_PLAIN, O_SERIES, THINKING], ids=["plain", "o-series", "thinking"])
async def test_a_model_of_responses_alone_answers_a_chat(manner: Manner, tmp_path: Path) -> None:
    async with ResponsesServer(manner, lambda _: {"Female": 1.0}).running() as server:
        backend = backend_of(server, tmp_path, reasoning_effort="low" if manner.thinks else None)
        description = await backend.describe()
        probed = len(server.bodies)
        answer, *_ = await backend.run([_ASKED])
        again = backend_of(server, tmp_path, reasoning_effort="low" if manner.thinks else None)
        assert (await again.describe()).fingerprint == description.fingerprint
        second, *_ = await again.run([_ASKED])
        sent = server.bodies[probed:]
        await backend.close()
        await again.close()
    assert description.capabilities == {"generate", "chat"}
    assert description.fingerprint["endpoint"] == "responses"
    for found in (answer, second):
        assert isinstance(found, GenerateResponse), found
        assert (found.text, found.finish_reason) == ("Female", "stop")
        assert ("I consider" in found.thought) is (manner.thinks == "field")
        assert found.thought_tokens == (40 if manner.thinks else 0)
    assert all("input" in body and body["store"] is False for body in sent)
    assert all(body.get("reasoning") == ({"effort": "low"} if manner.thinks else None) for body in sent)


class OnlyResponses(ResponsesServer):
    """Refuses chats in words of its own: as Azure (vanna-ai/vanna #967), or as a server without that route."""

    refuses: tuple[int, str] = 404, "Not Found"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return super().reply(path, sent) if path == "/v1/responses" else refusal(*self.refuses)


@pytest.mark.parametrize(
    "refuses",
    [
        (404, "Not Found"),
        (400, "The chatCompletion operation does not work with the specified model, gpt-5-codex."),
    ],
    ids=["no-route", "azure"],
)
async def test_responses_are_found_whatever_refuses_chats(refuses: tuple[int, str], tmp_path: Path) -> None:
    async with OnlyResponses(O_SERIES, varied).running() as server:
        server.refuses = refuses
        backend = backend_of(server, tmp_path)
        description = await backend.describe()
        answer, *_ = await backend.run([_ASKED])
        await backend.close()
    assert description.fingerprint["endpoint"] == "responses"
    assert isinstance(answer, GenerateResponse), answer


def test_a_remark_on_the_way_is_no_part_of_the_answer() -> None:
    def said(text: str, phase: str | None) -> dict[str, Any]:
        return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

    output = [said("I compare both.", "commentary"), said("Female", "final_answer")]
    (choice,) = chat_response({"status": "completed", "output": output})["choices"]
    assert choice["message"]["content"] == "Female"
    assert choice["message"]["reasoning_content"] == "I compare both."
    (plain,) = chat_response({"status": "completed", "output": [said("Fem", None), said("ale", None)]})["choices"]
    assert plain["message"]["content"] == "Female"


async def test_the_least_limit_of_responses_is_within_the_cost() -> None:
    usage = Usage(PriceTable(prompt=0.0, completion=1e6), max_cost=14.0)
    api = api_of("http://127.0.0.1:9/v1", ServerCapabilities(responses=True), usage=usage)
    with pytest.raises(BackendError, match="up to 16") as caught:
        await api.chat((Message("user", "A gender?"),), max_tokens=5)
    assert caught.value.kind == "quota"


async def test_a_text_shorter_than_the_api_allows_is_refused(tmp_path: Path) -> None:
    async with ResponsesServer(_PLAIN, varied).running() as server:
        backend = backend_of(server, tmp_path)
        short, *_ = await backend.run([GenerateRequest(_ASKED.prompt, Sampling(max_tokens=8))])
        await backend.close()
    assert isinstance(short, BackendError)
    assert "16" in short.message


def test_a_request_says_all_that_the_chat_did() -> None:
    turns = [{"role": "user", "content": "Hi"}]
    body = {"model": "m", "messages": turns, "max_tokens": 4, "temperature": 0.0, "logprobs": True, "top_logprobs": 5}
    assert responses_request({**body, "reasoning_effort": "low", "reasoning": {"summary": "auto"}}) == {
        "model": "m",
        "input": turns,
        "max_output_tokens": 16,
        "temperature": 0.0,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 5,
        "reasoning": {"summary": "auto", "effort": "low"},
        "store": False,
    }


@pytest.mark.parametrize("name", ["n", "seed", "stop", "logit_bias"])
def test_a_parameter_that_the_api_lacks_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match=name):
        responses_request({"model": "m", "messages": [], name: 2})


def test_listed_tokens_are_found_at_the_first_place() -> None:
    listed = [{"token": "Yes", "bytes": [89, 101, 115], "logprob": -0.1, "top_logprobs": []}]
    part = {"type": "output_text", "text": "Yes.", "logprobs": listed}
    choice = chat_response({"status": "completed", "output": [{"type": "message", "content": [part]}]})["choices"][0]
    assert choice["logprobs"] == {"content": listed}


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"status": "failed", "error": {"code": "server_error", "message": "over"}, "output": []}, "server"),
        ({"status": "completed"}, "malformed"),
        ({"status": "in_progress", "output": []}, "malformed"),
    ],
)
def test_a_response_without_an_answer_is_an_error(response: dict[str, Any], kind: str) -> None:
    with pytest.raises(BackendError) as caught:
        chat_response(response)
    assert caught.value.kind == kind


def test_a_refusal_is_the_answer_that_it_is() -> None:
    output = [{"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}]
    (choice,) = chat_response({"status": "completed", "output": output})["choices"]
    assert choice["message"]["refusal"] == "I can't."
