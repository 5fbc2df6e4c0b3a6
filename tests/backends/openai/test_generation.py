"""Sampling means the same on every server, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling
from backends.errors import BackendError
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import generate, sampling_options, seed_of
from backends.reading.reasoning import UnfinishedThoughtError


def test_each_servers_own_filters_are_switched_off() -> None:
    request = GenerateRequest("x", Sampling(temperature=0.7, max_tokens=9, stop=("\n",)))
    llama = sampling_options(request, "llama.cpp")
    assert (llama["top_k"], llama["min_p"], llama["repeat_penalty"]) == (0, 0.0, 1.0)
    assert llama["samplers"] == ["penalties", "temperature", "top_k", "top_p"]
    vllm = sampling_options(request, "vllm")
    assert (vllm["top_k"], vllm["min_p"], vllm["repetition_penalty"]) == (0, 0.0, 1.0)
    plain = sampling_options(request, None)
    assert plain == {"max_tokens": 9, "temperature": 0.7, "top_p": 1.0, "stop": ["\n"]}


@pytest.mark.parametrize("prompt", ["é" * 50_000, (Message("user", "é" * 30_000), Message("assistant", "é" * 20_000))])
def test_a_repetition_penalty_covers_all_tokens_cheaply(prompt: Any) -> None:
    def options(penalty: float) -> dict[str, Any]:
        sampling = Sampling(max_tokens=2000, repetition_penalty=penalty)
        return sampling_options(GenerateRequest(prompt, sampling), "llama.cpp")

    # A token is at least a byte; llama.cpp allocates 4 bytes for each token of this count.
    assert 100_000 + 2000 < options(1.1)["repeat_last_n"] < 2**20
    assert "repeat_last_n" not in options(1.0)


@pytest.mark.parametrize(
    ("sampling", "family"),
    [
        (Sampling(temperature=1, top_k=5), None),
        (Sampling(temperature=1, repetition_penalty=1.1), None),
        (Sampling(temperature=0.7, top_p=0.9), "llama-cpp-python"),
    ],
)
def test_what_a_server_cannot_do_exactly_is_unsupported(sampling: Sampling, family: str | None) -> None:
    with pytest.raises(BackendError) as caught:
        sampling_options(GenerateRequest("x", sampling), family)
    assert caught.value.kind == "unsupported"


class OneAnswer:
    """A server's chat endpoint that gives this one choice."""

    def __init__(self, reason: str, **message: Any) -> None:
        self.choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}

    def found_to_be(self, **found: Any) -> OneAnswer:
        self.found = ServerCapabilities(chat=True, **found)
        return self

    async def chat(self, messages: Any, **options: Any) -> dict[str, Any]:
        return {"choices": [self.choice]}


async def asked(server: OneAnswer, prefill: str | None = None) -> GenerateResponse:
    turns = (Message("user", "x"), Message("assistant", "{")) if prefill else (Message("user", "x"),)
    return await generate(server.found_to_be(prefill=prefill), GenerateRequest(turns))  # type: ignore[arg-type]


@pytest.mark.parametrize("prefill", [None, "continued"])
async def test_a_refusal_is_an_answer_with_the_refusal_as_its_text(prefill: str | None) -> None:
    server = OneAnswer("stop", content=None, refusal="I'm sorry, I can't help with that.")
    assert (await asked(server, prefill)).text == "I'm sorry, I can't help with that."


@pytest.mark.parametrize("message", [{"content": None}, {"content": ""}, {}, {"content": "She was"}])
async def test_what_a_content_filter_stopped_is_refused_for_good(message: dict[str, Any]) -> None:
    with pytest.raises(BackendError) as caught:
        await asked(OneAnswer("content_filter", **message))
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)
    assert "content filter" in caught.value.message


async def of_reasoner(text: str, *, tokens: int) -> GenerateResponse:
    request = GenerateRequest((Message("user", "x"),), Sampling(max_tokens=tokens))
    return await generate(OneAnswer("length", content=text).found_to_be(reasons=True), request)  # type: ignore[arg-type]


async def test_an_answer_that_a_thought_cut_short_is_no_answer() -> None:
    """ "Fem" would count as an answer that names nobody, and short words would seem likelier than long ones."""
    with pytest.raises(UnfinishedThoughtError):
        await of_reasoner("Fem", tokens=12)
    assert (await of_reasoner("a text as long as it was to be", tokens=12)).finish_reason == "length"


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize(
    ("reason", "thought"), [("length", {}), ("length", {"reasoning": "Hm."}), ("stop", {"reasoning_content": "Hm."})]
)
async def test_a_thought_alone_is_no_answer(reason: str, thought: dict[str, str], content: str | None) -> None:
    """An empty text would be rated, and count as an answer that names nobody (ollama/ollama #15288)."""
    with pytest.raises(UnfinishedThoughtError):
        await asked(OneAnswer(reason, content=content, **thought))


async def test_an_echoed_stop_string_is_cut_off() -> None:
    request = GenerateRequest((Message("user", "x"),), Sampling(stop=("\n", "Q:")))
    server = OneAnswer("stop", content="(a)\n(b) is wrong")
    answer = await generate(server.found_to_be(), request)  # type: ignore[arg-type]
    assert (answer.text, answer.finish_reason) == ("(a)", "stop")


@pytest.mark.parametrize(
    ("said", "reason"), [("end_turn", "stop"), ("STOP", "stop"), ("MAX_TOKENS", "length"), ("model_length", "length")]
)
async def test_other_names_of_an_end_are_known(said: str, reason: str) -> None:
    assert (await asked(OneAnswer(said, content="Male"))).finish_reason == reason


async def test_an_answer_in_parts_is_read() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Female"}]
    answer = await asked(OneAnswer("stop", content=parts))
    assert (answer.text, answer.thought) == ("Female", "Hm.")


async def test_an_answer_without_text_or_refusal_is_malformed() -> None:
    with pytest.raises(BackendError) as caught:
        await asked(OneAnswer("stop", content=None, refusal=None))
    assert (caught.value.kind, caught.value.retryable) == ("malformed", True)


def test_each_prompt_seed_and_repeat_draws_with_its_own_seed() -> None:
    seeds = {seed_of(GenerateRequest(p, seed=s, repeat=r)) for p in "xyz" for s in range(30) for r in range(30)}
    assert len(seeds) == 2700
    assert seed_of(GenerateRequest("x", seed=1, repeat=2)) == seed_of(GenerateRequest("x", seed=1, repeat=2))
    assert all(0 <= seed < 2**31 for seed in seeds)
