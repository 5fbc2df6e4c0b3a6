"""The fingerprint holds what may change an answer, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import GenerateRequest, Message, Sampling, ScoreRequest
from backends.errors import BackendError
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import generate
from backends.openai.scoring import RemoteTokenizer, score
from tests.backends.openai.direct_routes import api_of

#: Every field of the fingerprint that comes from the capabilities, another value for it, and why it is there.
HELD: dict[str, tuple[Any, str]] = {
    "text_route": ("echo", "another way to a number: exact by one route, a bound by another"),
    "chat_route": ("chat_first", "the same for chats"),
    "completions": (False, "a text is then asked as a user's turn of a chat: another prompt"),
    "family": ("vllm", "decides which options are sent, and whose tokens a continuation has"),
    "prefill": ("flags", "how an assistant prefill is sent"),
    "seed_works": (True, "whether a seed is sent: another text is drawn"),
    "answered_model": ("another", "the model's own name, more precise than the one that was asked for"),
    "largest_k": (5, "a shorter list bounds what a longer one gives exactly"),
    "largest_chat_k": (5, "the same for chats"),
    "temperature": (1.0, "lists of some servers depend on the temperature that is sent"),
}
#: Every other field: it is measured anew by each look, serves estimates and checks, or refuses what is not answered.
LEFT_OUT: dict[str, Any] = {
    "chat": False, "repeat_noise": 0.3, "choices": 100, "unique_response_ids": True,
    "tokens_per_piece": 0.3, "template_tokens": 9.0, "answer_tokens": 9.0,
}  # fmt: skip
#: What is there in another form, and only where it is so: `test_parameters.py` and its neighbours.
IN_ANOTHER_FORM = {"refused", "limit_name", "reasons", "opened_before", "min_tokens", "answered_provider"}
#: Fields that say what the server is; no question depends on them.
OF_THE_SERVER = ("answered_model",)
#: Uses every field: lists for texts and for chats.
BASE = ServerCapabilities(
    text_route="top_k", chat_route="chat_prefill", completions=True, chat=True, largest_k=20, largest_chat_k=20,
    prefill="continued",
)  # fmt: skip


class Recorder:
    """Stands for the HTTP client: keeps what is sent, and gives one response to everything."""

    base_url = "http://127.0.0.1/v1"

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def post(self, path: str, payload: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.sent.append((path, payload))
        entry = {"token": " she", "bytes": list(b" she"), "logprob": -1.0}
        logprobs = {"content": [{**entry, "top_logprobs": [entry]}]}
        message = {"role": "assistant", "content": " she"}
        choice = {"index": 0, "text": " she", "message": message, "logprobs": logprobs, "finish_reason": "stop"}
        return {"choices": [choice]}


async def answers(capabilities: ServerCapabilities) -> list[Any]:
    """What is sent for texts and chats, scored and generated, and what is answered."""
    client = Recorder()
    api = api_of(client.base_url, capabilities.model_copy(update={"answered_model": None}))
    api.client = client  # type: ignore[assignment]
    family = capabilities.family
    tokenizer = RemoteTokenizer(client, "m", family) if family else None  # type: ignore[arg-type]
    asked, begun = (Message("user", "Who?"),), (Message("user", "Who?"), Message("assistant", "It was"))
    given: list[Any] = []
    for prompt in ("The nurse said that", asked, begun):
        for answer in (
            score(api, ScoreRequest(prompt, (" she", " he")), tokenizer),
            generate(api, GenerateRequest(prompt, Sampling(temperature=1.0))),
        ):
            try:
                given.append(await answer)
            except BackendError as error:
                given.append(str(error))
    return [client.sent, given]


def test_every_capability_is_held_or_left_out_for_a_reason() -> None:
    fields = set(ServerCapabilities.model_fields)
    assert set(HELD) | set(LEFT_OUT) | IN_ANOTHER_FORM == fields
    assert set(BASE.fingerprint()) == {*HELD, "refused", "provider"}


@pytest.mark.parametrize("field", HELD)
async def test_a_held_field_may_change_an_answer(field: str) -> None:
    other = BASE.model_copy(update={field: HELD[field][0]})
    assert other.fingerprint() != BASE.fingerprint()
    assert (await answers(other) != await answers(BASE)) is (field not in OF_THE_SERVER), HELD[field][1]


@pytest.mark.parametrize("field", LEFT_OUT)
async def test_a_field_left_out_changes_no_answer(field: str) -> None:
    other = BASE.model_copy(update={field: LEFT_OUT[field]})
    assert other.fingerprint() == BASE.fingerprint()
    sent, given = await answers(BASE)
    sent_now, given_now = await answers(other)
    if field == "repeat_noise":  # it widens bounds alone
        assert sent_now == sent
    else:
        answered = [pair for pair in zip(given_now, given, strict=True) if not str(pair[0]).startswith("unsupported")]
        assert answered
        assert all(now == before for now, before in answered)
        assert field == "chat" or sent_now == sent
