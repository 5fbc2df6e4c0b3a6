"""To which of two requests a response belongs that came to both."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, ScoreRequest
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.openai.response_ids import ResponseIdTracker
from tests.backends.openai.lying_server import MODEL, Liar
from tests.backends.openai.raw_server import Reply

FIRST, SECOND = GenerateRequest("first"), GenerateRequest("second")


def seen() -> ResponseIdTracker:
    found = ResponseIdTracker()
    found.unique = True
    return found


def test_a_copy_for_a_later_request_leaves_the_first_alone() -> None:
    answers = seen()
    answers.check({"id": "1"}, request=FIRST, sent=time.monotonic())
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=SECOND, sent=time.monotonic())
    assert answers.ambiguous == []


def test_of_two_requests_under_way_the_first_is_ambiguous() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, request=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=SECOND, sent=both)
    assert answers.ambiguous == [FIRST]


def test_a_request_given_its_own_answer_twice_is_not_ambiguous() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, request=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=FIRST, sent=both)
    assert answers.ambiguous == []


def test_a_copy_of_a_long_list_differs_from_another_list() -> None:
    def answer(last: float) -> dict[str, object]:
        return {"id": "1", "created": 5, "choices": [{"logprobs": {"top_logprobs": [{"a": -1.0, "b": last}] * 500}}]}

    answers = seen()
    answers.check(answer(-2.0))
    answers.check(answer(-3.0))
    answers.check({**answer(-2.0), "created": 6})
    with pytest.raises(BackendError, match="given before"):
        answers.check(answer(-3.0))


def test_one_id_for_all_responses_counts_once() -> None:
    answers = ResponseIdTracker()
    for text in ("a", "b", "c", "d"):
        answers.check({"id": "cmpl", "choices": [{"text": text}]})
    assert answers.distinct == 1


def answers_of(found: ResponseIdTracker, server: str, ids: str, text: str = "a") -> None:
    for number, one in enumerate(ids):
        found.check({"id": one, "choices": [{"text": f"{text}{number}"}]}, server=server)


PROMPT = "Q: Who is it?\nA:"


REQUEST = ScoreRequest(PROMPT, (" Male", " Female"))


@pytest.fixture
async def liar() -> AsyncIterator[Liar]:
    async with Liar().running() as server:
        yield server


def backend_of(liar: Liar, folder: Path) -> OpenAIBackend:
    return OpenAIBackend(liar.base_url, model=MODEL, api_key_env=None, probe_folder=folder, timeout=5)


async def test_an_id_reused_for_another_response_is_accepted(liar: Liar, tmp_path: Path) -> None:
    """Ollama draws its answers' numbers from 999."""

    def ollama(sent: dict[str, Any], reply: Reply) -> None:
        reply.body["id"] = f"chatcmpl-{liar.requests * 7 % 23}"

    backend = backend_of(liar, tmp_path)
    assert (await backend.probe()).capabilities.unique_response_ids
    liar.lie = ollama
    answers = await backend.run([ScoreRequest(f"{n}. Who is it?\nA:", (" Male", " Female")) for n in range(30)])
    await backend.close()
    assert [a for a in answers if isinstance(a, BackendError)] == []


async def test_a_copy_of_an_earlier_answer_is_refused(liar: Liar, tmp_path: Path) -> None:
    backend = backend_of(liar, tmp_path)
    await backend.probe()
    first: list[str] = []

    def copied(sent: dict[str, Any], reply: Reply) -> None:
        first.append(json.dumps(reply.body))
        reply.body = json.loads(first[0])

    liar.lie = copied
    # The prompt alone is the first question of an echoed score, and all later ones get its answer.
    (answer,) = await backend.run([REQUEST])
    await backend.close()
    assert isinstance(answer, BackendError)
    assert (answer.kind, answer.retryable) == ("inconsistent", True)
    assert "given before" in answer.message
