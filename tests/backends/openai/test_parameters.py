"""What a model of chats takes is found by experiment; errors keep their meaning; a thought is no answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai.api import without_system
from tests.backends.openai.raw_server import Reply, backend_of
from tests.backends.openai.strict_server import (
    DEPRECATED,
    INLINE,
    O_SERIES,
    OPENED,
    SILENT,
    THINKING,
    Manner,
    StrictServer,
    refusal,
    varied,
)

_ASKED = GenerateRequest((Message("user", "Male or female?"),), Sampling(max_tokens=16))


@pytest.mark.parametrize("manner", [O_SERIES, DEPRECATED, SILENT], ids=["o-series", "deprecated", "silent"])
async def test_a_strict_model_writes_texts(manner: Manner, tmp_path: Path) -> None:
    async with StrictServer(manner, varied).running() as server:
        backend = backend_of(server, tmp_path)
        description = await backend.describe()
        answer, *_ = await backend.run([_ASKED])
        probed = len(server.bodies)
        again = backend_of(server, tmp_path)
        assert (await again.describe()).fingerprint == description.fingerprint
        second, *_ = await again.run([_ASKED])
        await backend.close()
        await again.close()
        refused = [body for body in server.bodies[probed:] if set(body) & set(manner.refuses)]
    assert description.capabilities == {"generate", "chat"}
    assert isinstance(answer, GenerateResponse), answer
    assert isinstance(second, GenerateResponse), second
    assert answer.finish_reason == "stop"
    assert "no temperature" in " ".join(description.statements)
    assert not refused, "what was found is not tried again"


class OpenRangeServer(StrictServer):
    """Takes temperatures above 0 alone, and draws at 0.25 where none is sent, as MiniMax's range (0, 1] has it."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if sent.get("temperature") == 0:
            return refusal(400, "invalid params: temperature must be in (0, 1]")
        return super().reply(path, {"temperature": 0.25, **sent})


def _four_to_one(question: str) -> Mapping[str, float]:
    if question == "Male or female?":
        return {"Male": 0.8, "Female": 0.2}
    return {word: 0.8**place for place, word in enumerate(varied(question))}  # fewer of them where it is colder


async def test_a_range_without_temperature_0_draws_at_1(tmp_path: Path) -> None:
    manner = Manner({"logprobs": (400, "logprobs is not supported for this model")})
    async with OpenRangeServer(manner, _four_to_one).running() as server:
        backend = backend_of(server, tmp_path, samples=100)
        description = await backend.describe()
        asked = ScoreRequest((Message("user", "Male or female?"),), ("Male", "Female"))
        scored, *_ = await backend.run([asked])
        greedy = GenerateRequest(_ASKED.prompt, Sampling(temperature=0.0, max_tokens=16))
        written, *_ = await backend.run([greedy])
        await backend.close()
    assert isinstance(scored, ScoreResponse), scored
    assert isinstance(written, GenerateResponse), written
    assert 0.65 < math.exp(scored.scores[0].logprob or -99) < 0.92
    assert "no temperature of 0" in " ".join(description.statements)
    assert description.fingerprint["refused"] == "temperature 0"


@pytest.mark.parametrize(("letters", "is_scored"), [(varied, True), (lambda _: {"a1b2": 1.0}, False)])
async def test_a_sure_model_is_no_cache(letters: Any, is_scored: bool, tmp_path: Path) -> None:
    """It begins each story alike, but no model that draws gives the same random letters three times."""
    manner = Manner({"logprobs": (400, "logprobs is not supported for this model")})

    def answers(question: str) -> Mapping[str, float]:
        return letters(question) if "random" in question else {"Once upon a time": 1.0}  # type: ignore[no-any-return]

    async with StrictServer(manner, answers, most_choices=1).running() as server:
        backend = backend_of(server, tmp_path, samples=8)
        description = await backend.describe()
        await backend.close()
    assert ("score" in description.capabilities) is is_scored
    assert is_scored or "all the same" in description.absent["score"]


class FilteringServer(StrictServer):
    """Its content filter stops every tenth answer to the question."""

    def _choice(self, index: int, question: str, limit: int, temperature: float) -> dict[str, Any] | None:
        choice = super()._choice(index, question, limit, temperature)
        if choice is not None and question == "Male or female?" and index % 10 == 9:
            choice = {**choice, "message": {"role": "assistant", "content": ""}, "finish_reason": "content_filter"}
        return choice


async def test_a_filtered_draw_leaves_its_share_open(tmp_path: Path) -> None:
    manner = Manner({"logprobs": (400, "logprobs is not supported for this model")})
    async with FilteringServer(manner, _four_to_one).running() as server:
        backend = backend_of(server, tmp_path, samples=20)
        scored, *_ = await backend.run([ScoreRequest((Message("user", "Male or female?"),), ("Male", "Female"))])
        await backend.close()
    assert isinstance(scored, ScoreResponse), scored
    male, female = scored.scores
    assert male.exactness == "bounded"
    assert math.exp(male.high) + math.exp(female.low or -99) == pytest.approx(1.0)
    assert math.exp(male.high) - math.exp(male.low or -99) == pytest.approx(0.1)


async def test_a_top_p_that_is_refused_is_not_left_out(tmp_path: Path) -> None:
    async with StrictServer(O_SERIES, varied).running() as server:
        backend = backend_of(server, tmp_path)
        answer, *_ = await backend.run([GenerateRequest(_ASKED.prompt, Sampling(temperature=1.0, top_p=0.5))])
        await backend.close()
    assert isinstance(answer, BackendError)
    assert "top_p" in answer.message


def test_a_system_message_begins_the_next_users_turn() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
    assert without_system(turns) == [{"role": "user", "content": "Be brief.\n\nWho?"}]
    assert without_system(turns[1:]) == turns[1:]


@pytest.mark.parametrize("manner", [O_SERIES, THINKING, INLINE, OPENED], ids=lambda manner: manner.thinks)
async def test_a_thought_is_no_part_of_the_answer_and_alone_is_none(manner: Manner, tmp_path: Path) -> None:
    async with StrictServer(manner, lambda _: {"Female": 1.0}).running() as server:
        backend = backend_of(server, tmp_path, reasoning_tokens=64)
        fingerprint = (await backend.describe()).fingerprint
        answer, *_ = await backend.run([_ASKED])
        server.thought_tokens = 500
        cut, *_ = await backend.run([GenerateRequest((Message("user", "Which?"),), Sampling(max_tokens=16))])
        await backend.close()
    assert fingerprint["reasoning_tokens"] == 64
    assert isinstance(answer, GenerateResponse), answer
    assert answer.text == "Female"
    assert ("I consider" in answer.thought) is (manner.thinks != "hidden")
    assert answer.thought_tokens == (40 if manner.thinks in ("hidden", "field") else 0)
    assert isinstance(cut, BackendError), cut
    assert (cut.kind, cut.retryable) == ("unsupported", False)
    assert "reasoning_tokens" in cut.hint
