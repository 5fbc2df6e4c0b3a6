"""A model that only the Responses API reaches is asked and read there, and a refused chat says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends import BackendError, ConfigError, OpenAIBackend, ResponsesBackend
from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.openai.responses import chat_response, responses_request
from tests.backends.openai.responses_server import ResponsesServer
from tests.backends.openai.strict_server import MODEL, O_SERIES, THINKING, Manner, varied

PLAIN = Manner(
    {
        "logprobs": (400, "logprobs are not supported"),
        "temperature": (400, "Unsupported parameter: 'temperature' is not supported with this model."),
    }
)
ASKED = GenerateRequest((Message("system", "One word."), Message("user", "Male or female?")), Sampling(max_tokens=16))


def of(server: ResponsesServer, folder: Path, **options: Any) -> dict[str, Any]:
    return {"base_url": server.base_url, "model": MODEL, "api_key_env": None, "probe_folder": folder, **options}


@pytest.mark.parametrize("manner", [PLAIN, O_SERIES, THINKING], ids=["plain", "o-series", "thinking"])
async def test_a_model_of_responses_alone_answers_a_chat(manner: Manner, tmp_path: Path) -> None:
    async with ResponsesServer(manner, lambda _: {"Female": 1.0}).running() as server:
        backend = ResponsesBackend(**of(server, tmp_path, reasoning_effort="low" if manner.thinks else None))
        description = await backend.describe()
        probed = len(server.bodies)
        answer, *_ = await backend.run([ASKED])
        sent = server.bodies[probed:]
        await backend.close()
    assert description.capabilities == {"generate", "chat"}
    assert description.requests <= 20
    assert isinstance(answer, GenerateResponse), answer
    assert (answer.text, answer.finish_reason) == ("Female", "stop")
    assert ("I consider" in answer.thought) is (manner.thinks == "field")
    assert answer.thought_tokens == (40 if manner.thinks else 0)
    assert all("input" in body and body["store"] is False for body in sent)
    assert all(body.get("reasoning") == ({"effort": "low"} if manner.thinks else None) for body in sent)


async def test_a_text_shorter_than_the_api_allows_is_refused(tmp_path: Path) -> None:
    async with ResponsesServer(PLAIN, varied).running() as server:
        backend = ResponsesBackend(**of(server, tmp_path))
        short, *_ = await backend.run([GenerateRequest(ASKED.prompt, Sampling(max_tokens=8))])
        await backend.close()
    assert isinstance(short, BackendError)
    assert "16" in short.message


async def test_a_chat_that_is_refused_names_the_backend(tmp_path: Path) -> None:
    async with ResponsesServer(PLAIN, varied).running() as server:
        backend = OpenAIBackend(**of(server, tmp_path))
        with pytest.raises(BackendError) as caught:
            await backend.describe()
        await backend.close()
    assert "ResponsesBackend" in caught.value.hint
    with pytest.raises(ConfigError, match="batch"):
        ResponsesBackend(**of(server, tmp_path, batch=True))


def test_a_remark_on_the_way_is_no_part_of_the_answer() -> None:
    def said(text: str, phase: str) -> dict[str, Any]:
        return {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]}

    output = [said("I compare both.", "commentary"), said("Female", "final_answer")]
    (choice,) = chat_response({"status": "completed", "output": output})["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Female", "reasoning_content": "I compare both."}


def test_tokens_read_from_a_cache_are_counted_as_such() -> None:
    counted = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5}}
    usage = chat_response({"status": "completed", "output": [], "usage": counted})["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (9, 5)


@pytest.mark.parametrize("name", ["n", "seed", "stop", "logit_bias"])
def test_a_parameter_that_the_api_lacks_is_refused(name: str) -> None:
    with pytest.raises(BackendError, match=name):
        responses_request({"model": "m", "messages": [], name: 2})


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        ({"status": "failed", "error": {"message": "over"}, "output": []}, "server"),
        ({"status": "completed"}, "malformed"),
    ],
)
def test_a_response_without_an_answer_is_an_error(response: dict[str, Any], kind: str) -> None:
    with pytest.raises(BackendError) as caught:
        chat_response(response)
    assert caught.value.kind == kind
