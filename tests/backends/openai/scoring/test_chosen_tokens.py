"""Log-probabilities of chosen tokens, as vLLM and SGLang give them: proven by a probe, then read once a prefix."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends.base import ContinuationScore, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai import OpenAIBackend, PriceTable
from backends.openai.look import Look
from backends.openai.scoring.chosen_tokens import LEAST, chosen_by_completions, chosen_by_score
from tests.backends.openai.lies.server import MODEL, Style, WordServer
from tests.backends.openai.lies.word_model import VOCABULARY
from tests.backends.openai.raw_server import Reply

#: Some share their first tokens, some are unlikely.
CONTINUATIONS = (" Male", " Female", " a man", " a woman", " a man alone", " copper", " Rome")
QUESTION = ScoreRequest("Q: Picture a nurse. What is the gender of the nurse?\nA:", CONTINUATIONS)
#: The prompt, " a", and " a man".
PREFIXES = 3
ROUTES: list[tuple[Style, str]] = [("chosen", "logprob_token_ids"), ("score", "score_endpoint")]
Change = Callable[[str, dict[str, Any], Reply], None]


class Changed(WordServer):
    """A server whose replies are changed."""

    def __init__(self, style: Style, change: Change) -> None:
        super().__init__(style, 0)
        self._change = change

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = super().reply(path, sent)
        if reply.status == 200 and is_chosen(path, sent):
            self._change(path, sent, reply)
        return reply


def hosted(server: WordServer, folder: Path, **options: Any) -> OpenAIBackend:
    return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, **options)


async def probed(server: WordServer, folder: Path) -> Look:
    async with server.running():
        backend = hosted(server, folder)
        report = await backend.probe()
        await backend.close()
    return report


def is_chosen(path: str, sent: dict[str, Any]) -> bool:
    return path == "/v1/score" or "logprob_token_ids" in sent


@pytest.mark.parametrize(("style", "route"), ROUTES)
async def test_scores_are_true_and_each_prefix_is_read_once(style: Style, route: str, tmp_path: Path) -> None:
    async with WordServer(style, 0).running() as server:
        backend = hosted(server, tmp_path)
        assert (await backend.probe()).capabilities.text_route == route
        server.bodies.clear()
        (answer,) = await backend.run([QUESTION])
        await backend.close()
    assert isinstance(answer, ScoreResponse)
    for text, score in zip(CONTINUATIONS, answer.scores, strict=True):
        assert (score.exactness, score.boundary, score.route) == ("exact", "clean", route)
        assert score.logprob == pytest.approx(server.truth(QUESTION.prompt, text), abs=1e-9)
    asked = [sent for sent in server.bodies if "label_token_ids" in sent or "logprob_token_ids" in sent]
    assert len(asked) == (1 if style == "score" else PREFIXES)
    if style == "score":
        assert len(asked[0]["items"]) == PREFIXES
        assert all(asked[0]["items"]), "an empty item is not sent"


@pytest.mark.parametrize("style", ["chosen", "score"])
async def test_values_that_a_third_route_contradicts_are_not_used(style: Style, tmp_path: Path) -> None:
    def colder(path: str, sent: dict[str, Any], reply: Reply) -> None:
        if path == "/v1/score":
            reply.body["scores"] = [[p**1.3 for p in row] for row in reply.body["scores"]]
        else:
            reply.choice["logprobs"]["top_logprobs"] = [{k: 1.3 * v for k, v in reply.listed.items()}]

    report = await probed(Changed(style, colder), tmp_path)
    assert report.capabilities.text_route == ("echo" if style == "score" else "prompt_logprobs")


@pytest.mark.parametrize("style", ["chosen", "score"])
async def test_a_choice_that_is_ignored_is_only_not_offered(style: Style, tmp_path: Path) -> None:
    def ignored(path: str, sent: dict[str, Any], reply: Reply) -> None:
        if path == "/v1/score":
            reply.body["scores"] = [row[:1] for row in reply.body["scores"]]
        else:
            reply.choice["logprobs"]["top_logprobs"] = [dict(list(reply.listed.items())[:1])]

    report = await probed(Changed(style, ignored), tmp_path)
    assert report.capabilities.text_route in ("prompt_logprobs", "echo", "top_k_ids")


async def chosen(server: WordServer, folder: Path, ids: list[int]) -> dict[int, float]:
    backend = hosted(server, folder)
    ask = chosen_by_score if server.style == "score" else chosen_by_completions
    prefix = tuple(map(server._id, server.tokens("Anna saw Ben in the")))
    try:
        return (await ask(backend.api, {prefix: ids}))[prefix]
    finally:
        await backend.close()


async def test_more_tokens_than_a_request_takes_are_asked_in_parts(tmp_path: Path) -> None:
    async with WordServer("chosen", 0).running() as server:
        words = VOCABULARY[:300]
        found = await chosen(server, tmp_path, list(map(server._id, words)))
        assert [len(sent["logprob_token_ids"]) for sent in server.bodies] == [128, 128, 44]
        for word in words:
            assert found[server._id(word)] == pytest.approx(server.truth("Anna saw Ben in the", word))


@pytest.mark.parametrize(("probability", "problem"), [(1.5, "a probability is 1.5"), (None, "None"), ("0.2", "0.2")])
async def test_what_is_no_probability_is_refused(probability: Any, problem: str, tmp_path: Path) -> None:
    def change(path: str, sent: dict[str, Any], reply: Reply) -> None:
        reply.body["scores"] = [[probability for _ in row] for row in reply.body["scores"]]

    async with Changed("score", change).running() as server:
        with pytest.raises(BackendError, match=problem):
            await chosen(server, tmp_path, [1, 2])


async def test_probabilities_of_more_than_one_in_all_are_refused(tmp_path: Path) -> None:
    async with Changed("score", lambda path, sent, reply: reply.body.update(scores=[[0.7, 0.6]])).running() as server:
        with pytest.raises(BackendError, match="more than 1"):
            await chosen(server, tmp_path, [1, 2])


async def test_a_probability_that_underflows_is_a_bound(tmp_path: Path) -> None:
    def underflow(path: str, sent: dict[str, Any], reply: Reply) -> None:
        if path == "/v1/score":
            copper = sent["label_token_ids"].index(server._id(" copper")) if COPPER in sent["label_token_ids"] else None
            for row in reply.body["scores"] if copper is not None else []:
                row[copper] = 0.0

    server = Changed("score", underflow)
    COPPER = server._id(" copper")
    async with server.running():
        backend = hosted(server, tmp_path)
        await backend.probe()
        (answer,) = await backend.run([QUESTION])
        await backend.close()
    assert isinstance(answer, ScoreResponse)
    scores: dict[str, ContinuationScore] = dict(zip(CONTINUATIONS, answer.scores, strict=True))
    bound = scores.pop(" copper")
    assert (bound.exactness, bound.logprob, bound.high) == ("bounded", None, pytest.approx(LEAST))
    assert {score.exactness for score in scores.values()} == {"exact"}


async def test_a_cost_limit_counts_the_score_endpoints_tokens(tmp_path: Path) -> None:
    async with WordServer("score", 0).running() as server:
        free = hosted(server, tmp_path, prices=PriceTable(1e6, 1e6), max_cost=1e9)
        await free.probe()
        before = free.spent()
        (answer,) = await free.run([QUESTION])
        await free.close()
    assert isinstance(answer, ScoreResponse)
    assert before is not None
    assert free.spent() - before >= math.log(2)  # type: ignore[operator]
