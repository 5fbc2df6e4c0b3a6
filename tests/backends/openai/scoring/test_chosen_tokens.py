"""Log-probabilities of chosen tokens, as vLLM gives them: proven by a look, then read once a prefix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.base import ScoreRequest, ScoreResponse
from backends.openai import OpenAIBackend
from backends.openai.scoring.given_tokens import chosen_tokens
from tests.backends.openai.lies.server import MODEL, Style, WordServer
from tests.backends.openai.lies.word_model import VOCABULARY
from tests.backends.openai.raw_server import Reply

#: Some share their first tokens, some are unlikely.
CONTINUATIONS = (" Male", " Female", " a man", " a woman", " a man alone", " copper", " Rome")
QUESTION = ScoreRequest("Q: Picture a nurse. What is the gender of the nurse?\nA:", CONTINUATIONS)
#: The prompt, " a", and " a man".
PREFIXES = 3
Change = Callable[[dict[str, float]], dict[str, float]]


class Changed(WordServer):
    """A server whose chosen values are changed."""

    def __init__(self, change: Change) -> None:
        super().__init__("chosen", 0)
        self._change = change

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, sent)
        if reply.status == 200 and "logprob_token_ids" in sent:
            reply.choice["logprobs"]["top_logprobs"] = [self._change(reply.listed)]
        return reply


def hosted(server: WordServer, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, **options)


async def test_scores_are_true_and_each_prefix_is_read_once(tmp_path: Path) -> None:
    async with WordServer("chosen", 0).running() as server:
        backend = hosted(server, tmp_path)
        assert (await backend.probe()).capabilities.text_route == "logprob_token_ids"
        server.bodies.clear()
        (answer,) = await backend.run([QUESTION])
        await backend.close()
    assert isinstance(answer, ScoreResponse)
    for text, score in zip(CONTINUATIONS, answer.scores, strict=True):
        assert (score.exactness, score.boundary, score.route) == ("exact", "clean", "logprob_token_ids")
        assert score.logprob == pytest.approx(server.truth(QUESTION.prompt, text), abs=1e-9)
    assert len([sent for sent in server.bodies if "logprob_token_ids" in sent]) == PREFIXES


@pytest.mark.parametrize(
    "change",
    [lambda listed: {word: 1.3 * value for word, value in listed.items()}, lambda listed: dict([*listed.items()][:1])],
    ids=["contradicted by lists", "ignored"],
)
async def test_chosen_values_that_do_not_fit_are_not_used(change: Change, tmp_path: Path) -> None:
    async with Changed(change).running() as server:
        backend = hosted(server, tmp_path)
        look = await backend.probe()
        await backend.close()
    assert look.capabilities.text_route == "prompt_logprobs"


async def chosen(server: WordServer, folder: Path, ids: list[int]) -> dict[int, float]:
    backend = hosted(server, folder)
    prefix = tuple(map(server._id, server.tokens("Anna saw Ben in the")))
    try:
        return (await chosen_tokens(backend.api, {prefix: ids}))[prefix]
    finally:
        await backend.close()


async def test_more_tokens_than_a_request_takes_are_asked_in_parts(tmp_path: Path) -> None:
    async with WordServer("chosen", 0).running() as server:
        words = VOCABULARY[:300]
        found = await chosen(server, tmp_path, list(map(server._id, words)))
        assert [len(sent["logprob_token_ids"]) for sent in server.bodies] == [128, 128, 44]
        for word in words:
            assert found[server._id(word)] == pytest.approx(server.truth("Anna saw Ben in the", word))


@pytest.mark.parametrize(("style", "route"), [("ids", "prompt_logprobs"), ("chosen", "logprob_token_ids")])
async def test_a_token_across_the_prompts_end_is_bounded(style: Style, route: str, tmp_path: Path) -> None:
    """ "ill" + "ness" are one token: the rows do not say how likely it is given its start."""
    async with WordServer(style, 0).running() as server:
        backend = hosted(server, tmp_path)
        (answer,) = await backend.run([ScoreRequest("She has an ill", ("ness",))])
        await backend.close()
    assert isinstance(answer, ScoreResponse), answer
    (score,) = answer.scores
    assert (score.boundary, score.exactness, score.logprob, score.route) == ("straddled", "bounded", None, route)
