"""An answer that is another's is refused: another model's, one given before, another prompt's list."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from backends.base import ScoreRequest
from backends.errors import BackendError
from backends.openai.api import ResponseTracker
from backends.openai.capabilities import ServerCapabilities
from tests.backends.openai.direct_routes import api_of

LIST = {" Male": -1.03125417, " Female": -1.28374651, " Other": -2.91827364}


def response(name: str, value: float = -1.0, *, created: int = 5) -> dict[str, Any]:
    return {"id": name, "created": created, "model": "m", "choices": [{"text": str(value)}]}


def took(tracker: ResponseTracker, prompt: Any, listed: dict[str, float]) -> None:
    name = "prompt" if isinstance(prompt, str) else "messages"
    reply = {"choices": [{"logprobs": {"top_logprobs": [listed]}}]}
    tracker.check_list({name: prompt}, reply, ScoreRequest(str(prompt), (" Male",)))


def test_the_same_answer_under_the_same_id_is_refused() -> None:
    tracker = ResponseTracker()
    tracker.unique = True
    tracker.check(response("a", -2.0))
    tracker.check(response("a", -3.0))  # Ollama has 999 ids
    tracker.check(response("a", -2.0, created=6))
    with pytest.raises(BackendError, match="given before") as caught:
        tracker.check(response("a", -3.0))
    assert (caught.value.kind, caught.value.retryable) == ("inconsistent", True)
    assert tracker.distinct == 1


def test_a_list_of_another_prompt_is_in_doubt_for_both() -> None:
    tracker = ResponseTracker()
    took(tracker, "Picture a nurse.", LIST)
    took(tracker, "Picture a  nurse.\n", LIST)  # a template may drop white space
    with pytest.raises(BackendError, match="bit for bit"):
        took(tracker, "Picture a doctor.", LIST)
    assert [request.prompt for request in tracker.ambiguous] == ["Picture a nurse."]
    took(tracker, "Picture a doctor.", {**LIST, " Male": -1.04125417})


@pytest.mark.parametrize(
    "listed",
    [
        {" Yes": -1e-5, " No": -12.0},  # near certainty few digits are left
        {" Yes": -0.5625, " No": -1.0625, " Other": -3.1875, " A": -4.3125, " B": -5.0625},  # logits of 16 bits
        {" Yes": -0.69},
    ],
)
def test_what_two_prompts_may_share_is_accepted(listed: dict[str, float]) -> None:
    tracker = ResponseTracker()
    for prompt in ("Is it?", "Was it?"):
        took(tracker, prompt, listed)


def test_chats_are_distinguished_by_all_turns() -> None:
    tracker = ResponseTracker()
    asked = [{"role": "system", "content": "A"}, {"role": "user", "content": "B"}]
    took(tracker, asked, LIST)
    with pytest.raises(BackendError, match="bit for bit"):
        took(tracker, asked[1:], LIST)


async def test_what_follows_a_refused_answer_has_a_connection_of_its_own() -> None:
    """That of the refused one may be out of step: the next answer on it would be another's."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        body = json.dumps({**response(str(connections)), "model": "other" if connections == 1 else "m"}).encode()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    api = api_of(url, ServerCapabilities(answered_model="m"))
    with pytest.raises(BackendError, match="from model 'other'"):
        await api.completion("Who?")
    assert (await api.completion("Who?"))["id"] == "2"
    await api.client.close()
    server.close()
