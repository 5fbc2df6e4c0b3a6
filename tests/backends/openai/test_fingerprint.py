"""The fingerprint holds what may change an answer, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, Message, Sampling, ScoreRequest
from backends.errors import BackendError
from backends.http.usage import Usage
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import generate
from backends.openai.probe.report import ProbeReport
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.tokenizer import RemoteTokenizer
from tests.backends.openai.lying_server import MODEL, IdLiar, Liar
from tests.backends.openai.raw_server import Reply

#: Every field of the fingerprint that comes from the capabilities, another value for it, and why it is there.
HELD: dict[str, tuple[Any, str]] = {
    "text_route": ("echo", "another way to a number: exact by one route, a bound by another"),
    "chat_route": ("chat_first", "the same for chats"),
    "completions": (False, "a text is then asked as a user's turn of a chat: another prompt"),
    "family": ("vllm", "decides which options are sent, and whose tokens a continuation has"),
    "bos": (True, "the tokens of every prompt begin with another one"),
    "uncached": (True, "the server is asked without its cache, which moves its numbers"),
    "prefill": ("flags", "how an assistant prefill is sent"),
    "seed_works": (True, "whether a seed is sent: another text is drawn"),
    "answered_model": ("another", "the model's own name, more precise than the one that was asked for"),
    "largest_k": (5, "a shorter list bounds what a longer one gives exactly"),
    "largest_chat_k": (5, "the same for chats"),
    "identity": ("ids", "entries of one string may be several tokens, entries of one id may not"),
    "temperature": (1.0, "lists of some servers depend on the temperature that is sent"),
}
#: Every other field of the capabilities, another value for it, and why it is not there.
LEFT_OUT: dict[str, tuple[Any, str]] = {
    "chat": (False, "turns an answer of a chat into a refusal, never into another answer"),
    "takes_ids": (True, "decides the route, which is there; no route looks at it"),
    "draws_with_lists": (True, "how the token is drawn that comes with a list, which stays the same"),
    "draws_apart": (True, "a list's last entry is then never the drawn token: a bound may be tighter, and both hold"),
    "repeat_noise": (0.3, "measured anew by each probe, and never the same twice; it only widens bounds"),
    "choices": (100, "how many draws a request of a check gives; no answer is made from those"),
    "opened_unseen": (True, "where a cut answer may be a thought, it is no answer instead of one"),
    "unique_response_ids": (True, "repeated responses are refused; what is accepted stays the same"),
}
#: What is there in another form, and only where it is so: `test_parameters.py` and its neighbours.
IN_ANOTHER_FORM = {"refused", "limit_name", "reasons", "opened_before", "together", "responses", "answered_provider"}
#: Fields that say what the server is; no question depends on them.
OF_THE_SERVER = ("bos", "answered_model", "identity")
#: Uses every field: lists for texts and for chats.
BASE = ServerCapabilities(
    text_route="top_k", chat_route="chat_prefill", completions=True, chat=True, largest_k=20, largest_chat_k=20,
    identity="bytes", prefill="continued",
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
    api = ServerApi(client, "m", Usage())  # type: ignore[arg-type]
    api.configure(capabilities.model_copy(update={"answered_model": None}))
    family = capabilities.family
    tokenizer = RemoteTokenizer(client, "m", family) if family else None  # type: ignore[arg-type]
    asked, begun = (Message("user", "Who?"),), (Message("user", "Who?"), Message("assistant", "It was"))
    given: list[Any] = []
    for prompt in ("The nurse said that", asked, begun):
        routes = Routes(api, capabilities, tokenizer, None)
        for answer in (
            routes.score(ScoreRequest(prompt, (" she", " he"))),
            generate(api, capabilities, GenerateRequest(prompt, Sampling(temperature=1.0))),
        ):
            try:
                given.append(await answer)
            except BackendError as error:
                given.append(str(error))
    return [client.sent, given]


def without_sampling(sent: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in body.items() if name not in ("temperature", "top_p")} for _, body in sent]


def test_every_capability_is_held_or_left_out_for_a_reason() -> None:
    fields = set(ServerCapabilities.model_fields)
    assert set(HELD) | set(LEFT_OUT) | IN_ANOTHER_FORM == fields
    assert set(BASE.fingerprint()) == set(HELD)


@pytest.mark.parametrize("field", HELD)
async def test_a_held_field_may_change_an_answer(field: str) -> None:
    other = BASE.model_copy(update={field: HELD[field][0]})
    assert other.fingerprint() != BASE.fingerprint()
    assert (await answers(other) != await answers(BASE)) is (field not in OF_THE_SERVER), HELD[field][1]


@pytest.mark.parametrize("field", LEFT_OUT)
async def test_a_field_left_out_changes_no_answer(field: str) -> None:
    other = BASE.model_copy(update={field: LEFT_OUT[field][0]})
    assert other.fingerprint() == BASE.fingerprint()
    sent, given = await answers(BASE)
    sent_now, given_now = await answers(other)
    if field in ("repeat_noise", "draws_apart"):
        assert sent_now == sent
    elif field == "draws_with_lists":
        assert given_now == given
        assert without_sampling(sent_now) == without_sampling(sent)
    elif field == "chat":
        refused = [str(a).startswith("unsupported") for a in given_now]
        assert any(refused)
        assert [a for a, no in zip(given_now, refused, strict=True) if not no] == [
            a for a, no in zip(given, refused, strict=True) if not no
        ]
    else:
        assert (sent_now, given_now) == (sent, given), LEFT_OUT[field][1]


@pytest.mark.parametrize(
    ("routes", "unused"),
    [
        (("echo", None), {"largest_k", "largest_chat_k", "identity", "temperature"}),
        (("prompt_logprobs", "rendered"), {"largest_k", "largest_chat_k", "identity", "temperature"}),
        (("top_k", "rendered"), {"largest_chat_k"}),
        ((None, "chat_first"), {"largest_k"}),
    ],
)
async def test_what_these_routes_do_not_use_is_left_out(routes: Any, unused: set[str]) -> None:
    base = BASE.model_copy(update={"text_route": routes[0], "chat_route": routes[1]})
    assert set(HELD) - base.fingerprint().keys() == unused
    for field in unused:
        other = base.model_copy(update={field: HELD[field][0]})
        assert await answers(other) == await answers(base), field


def accepts_any_model(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    return server.honest(path, {**sent, "model": MODEL})


def refuses_n(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    return Reply({"error": {"message": "n must be 1"}}, 400) if "n" in sent else server.honest(path, sent)


def obeys_logit_bias(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    reply = server.honest(path, sent)
    if sent.get("logit_bias"):
        reply.choice["text"] = " banned"
    return reply


def answers_several_prompts(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    prompts = sent.get("prompt")
    if not isinstance(prompts, list) or not isinstance(prompts[0], str):
        return server.honest(path, sent)
    replies = [server.honest(path, {**sent, "prompt": prompt}) for prompt in prompts]
    choices = [{**reply.choice, "index": index} for index, reply in enumerate(replies)]
    return Reply({**replies[0].body, "choices": choices})


def echoes(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    return Liar.honest(server, path, sent) if sent.get("echo") else server.honest(path, sent)


def chooses_tokens(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    reply = server.honest(path, sent)
    if "logprob_token_ids" in sent:
        reply.choice["logprobs"]["top_logprobs"] = [{f"token_id:{sent['logprob_token_ids'][0]}": -3.0}]
    return reply


def counts_no_tokens(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    reply = server.honest(path, sent)
    if isinstance(reply.body, dict):
        reply.body.pop("usage", None)
    return reply


def has_one_response_id(server: IdLiar, path: str, sent: dict[str, Any]) -> Reply:
    reply = server.honest(path, sent)
    if "id" in reply.body:
        reply.body["id"] = "cmpl-0"
    return reply


class Variant(IdLiar):
    """`IdLiar`, but for one thing that the probe tries and that no route uses."""

    def __init__(self, vary: Callable[[IdLiar, str, dict[str, Any]], Reply]) -> None:
        super().__init__()
        self._vary = vary

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        return self._vary(self, path, sent)


async def probed(server: IdLiar, folder: Path) -> tuple[ProbeReport, dict[str, Any]]:
    async with server.running():
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        report, description = await backend.probe(), await backend.describe()
        await backend.close()
    return report, {**description.fingerprint, "base_url": ""}


@pytest.mark.parametrize(
    ("vary", "check"),
    [
        (accepts_any_model, "unknown model name"),
        (refuses_n, "n, several choices"),
        (obeys_logit_bias, "logit_bias"),
        (answers_several_prompts, "several prompts in one request"),
        (echoes, "echo"),
        (chooses_tokens, "logprob_token_ids"),
        (counts_no_tokens, "token counts"),
        (has_one_response_id, None),
    ],
)
async def test_an_unused_experiment_leaves_the_fingerprint(
    vary: Callable[[IdLiar, str, dict[str, Any]], Reply], check: str | None, tmp_path: Path
) -> None:
    report, fingerprint = await probed(IdLiar(), tmp_path / "a")
    varied, fingerprint_now = await probed(Variant(vary), tmp_path / "b")
    if check is None:
        assert report.capabilities.unique_response_ids
        assert not varied.capabilities.unique_response_ids
    else:
        then, now = ([(c.passed, c.message) for c in r.checks if c.name == check] for r in (report, varied))
        assert then != now
        assert len(now) == 1
    assert fingerprint_now == fingerprint


def test_earlier_fingerprints_differ_by_retired_fields_only() -> None:
    #: As version 0.1 wrote it.
    earlier = {
        "answered_model": "honest-1",
        "answers_numbered": True,
        "backend": "openai",
        "base_url": "http://127.0.0.1:8765/v1",
        "bos": False,
        "canary": "-11 -14 -13 -14",
        "chat": False,
        "chat_route": None,
        "checks": "echo: -; logit_bias: -; seeds: -; unknown model name: ok",
        "completions": True,
        "family": "vllm",
        "identity": "text",
        "largest_chat_k": 0,
        "largest_k": 20,
        "model": "honest-1",
        "prefill": None,
        "samples": None,
        "seed_works": False,
        "takes_ids": True,
        "temperature": 0.0,
        "text_route": "prompt_logprobs",
        "uncached": False,
    }
    for text_route in ("prompt_logprobs", "top_k_ids"):
        found = ServerCapabilities(
            text_route=text_route, completions=True, family="vllm", largest_k=20, identity="text", takes_ids=True,
            bos=False, unique_response_ids=True, answered_model="honest-1",
        )  # fmt: skip
        report = ProbeReport("http://127.0.0.1:8765/v1", "honest-1", found, (), (), "-11 -14 -13 -14")
        retired = report.retired_fields()
        kept = {name: value for name, value in earlier.items() if name not in retired}
        assert report.fingerprint(None) == {**kept, "text_route": text_route}
