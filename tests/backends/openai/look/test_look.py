"""The look before the first question: short, right about honest servers however odd, and kept for a day."""

from __future__ import annotations

import json

import numpy as np
import pytest

from audit import Audit
from backends.base import GenerateRequest, Message, Sampling
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.openai.look import MOST_REQUESTS
from suites import OccuGender
from tests.backends.openai.lies.catalogue import normalised
from tests.backends.openai.lies.server import MODEL, STYLES, Lie, WordServer
from tests.backends.openai.lies.trial import ask_directly, run_trial, trial
from tests.backends.openai.look.odd import ODD, TEXTS_ALONE, LlamaCppPython, Refusing

ROUTES = {
    "echo": ("echo", None),
    "ids": ("prompt_logprobs", None),
    "lists": ("top_k", None),
    "whole": ("top_k_ids", None),
    "chat": (None, "chat_first"),
    "drawn": (None, None),
}


def backend_of(server, folder, **options) -> OpenAIBackend:
    backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, **options)
    ask_directly(backend, server)
    return backend


async def looked(server, folder, **options):
    backend, said = backend_of(server, folder, **options), []
    try:
        return await backend.probe(say=said.append), said
    finally:
        await backend.close()


@pytest.mark.parametrize("style", STYLES)
async def test_a_look_is_short_and_finds_the_route(style, tmp_path):
    async with WordServer(style, 0).running() as server:
        look, said = await looked(server, tmp_path)
        assert server.requests == look.requests <= MOST_REQUESTS
        again, _ = await looked(server, tmp_path)
        assert (server.requests, again) == (look.requests, look)
    assert look.capabilities.routes == ROUTES[style]
    assert said[0].endswith(f"request 1 of at most {MOST_REQUESTS}\r")
    assert said[-3:] == list(look.lines)
    assert look.prompts > 1 or style == "drawn"


async def test_lists_are_as_long_as_a_refusal_says(tmp_path):
    server = ODD["five listed"]("chat", 0)
    server.refuses = lambda sent: "top_logprobs must be at most 7" * (sent.get("top_logprobs", 0) > 7)
    async with server.running():
        look, _ = await looked(server, tmp_path)
    assert look.capabilities.largest_chat_k == 7


async def test_a_server_that_is_down_is_told_in_few_requests(tmp_path):
    server = Refusing("lists", 0, lambda sent: "Loading model")
    server.status = 503
    async with server.running():
        with pytest.raises(BackendError, match="Loading model"):
            await looked(server, tmp_path)
        assert server.requests <= MOST_REQUESTS


async def test_another_model_a_day_later_has_another_identity(tmp_path):
    found = []
    for seed in (0, 0, 2):
        server = WordServer("lists", seed)
        async with server.running():
            backend = OpenAIBackend("http://one/v1", model=MODEL, api_key_env=None, probe_folder=tmp_path)
            ask_directly(backend, server)
            found.append((await backend.probe()).identity)
            await backend.close()
        for file in tmp_path.glob("*.json"):
            file.write_text(json.dumps({**json.loads(file.read_text()), "at": 0}))
    first, same, other = found
    assert first == same != other
    assert "after another" in other


@pytest.mark.parametrize("style", ["lists", "chat"])
@pytest.mark.parametrize("odd", ODD)
async def test_an_honest_odd_server_is_read_and_read_right(odd, style):
    for seed in (0, 1):
        outcome = await trial(ODD[odd](style, seed), n=16)
        assert outcome.ended == "complete", outcome
        assert outcome.look_requests <= MOST_REQUESTS
        assert outcome.errors
        assert outcome.is_true or outcome.size <= outcome.noise, outcome.size


async def test_draws_that_contradict_their_lists_are_noticed():
    def says(reply, asked):
        for choice in reply.body["choices"] if asked.probed and asked.sent.get("temperature") == 1 else ():
            for token in choice["logprobs"]["content"]:
                token["logprob"] -= 1.0

    outcome = await trial(WordServer("chat", 0, Lie(says=says)), n=24)
    assert "drawn answers cannot be true" in outcome.ended


async def test_a_question_moves_as_far_as_its_farthest_word_beside_draws():
    def says(reply, asked):
        for choice in reply.body["choices"] if asked.probed and asked.sent.get("temperature") == 1 else ():
            for token in choice["logprobs"]["content"]:
                for word in token["top_logprobs"][::2]:
                    word["logprob"] -= 0.1
                    token["logprob"] -= 0.1 * (word["token"] == token["token"])

    outcome = await trial(WordServer("chat", 0, Lie(says=says)), n=24)
    assert (outcome.ended, outcome.noise) == ("complete", pytest.approx(0.1))


@pytest.mark.parametrize("style", ["lists", "chat"])
async def test_lists_of_one_word_at_temperature_0_are_asked_for_at_1(style, tmp_path):
    """As llama.cpp gave them; the likeliest word of a sure model moves by little then."""

    def lists(values, asked):
        values = normalised(4 * values)
        return values if asked.sent.get("temperature") else np.where(values == values.max(), 0.0, -9999.0)

    def says(reply, asked):
        found = [choice["logprobs"] or {} for choice in reply.body["choices"]]
        for top in [one for of in found for one in of.get("top_logprobs") or ()]:
            for word in [word for word, value in top.items() if value < -1000]:
                del top[word]
        for token in [one for of in found for one in of.get("content") or ()]:
            token["top_logprobs"] = [one for one in token["top_logprobs"] if one["logprob"] > -1000]

    for seed in (0, 3):
        async with WordServer(style, seed, Lie(lists=lists, says=says)).running() as server:
            look, _ = await looked(server, tmp_path / str(seed))
        assert look.capabilities.temperature == 1.0


async def test_a_server_without_lists_says_what_still_works(tmp_path):
    async with TEXTS_ALONE["at least 16 tokens, no lists"]("chat", 0).running() as server:
        backend = backend_of(server, tmp_path)
        described = await backend.describe()
        (answer,) = await backend.run([GenerateRequest((Message("user", "Hm?"),), Sampling(max_tokens=16))])
        await backend.close()
    assert described.capabilities == {"generate", "chat"}
    assert "no fewer than 16 tokens" in described.absent["score"]
    assert "Suites that read texts" in described.absent["score"]
    assert not isinstance(answer, BackendError)


@pytest.mark.parametrize("style", STYLES)
def test_no_score_of_an_honest_server_is_false(style):
    for seed in (0, 1):
        outcome = run_trial("honest", style, seed, n=12)
        assert outcome.ended == "complete"
        assert outcome.is_true


async def test_the_checks_of_a_slow_server_are_few(tmp_path):
    """llama-cpp-python sorts its vocabulary for each listed word: the audit's own lists are most of them."""
    async with LlamaCppPython().running() as server:
        backend = backend_of(server, tmp_path)
        described = await backend.describe()
        assert described.fingerprint["family"] == "llama-cpp-python"
        server.bodies.clear()
        server.listed = 0
        audit = Audit(models={"m": backend}, suites=[OccuGender()], limit=40, small_sample=True, db=tmp_path / "a.db")
        result = await audit.run()
    assert result.models[0].asked == 40
    own = {body["prompt"] for body in server.bodies if body.get("logprobs", 0) > 100}  # those of the checks are shorter
    assert server.listed <= 1.3 * len(own)
