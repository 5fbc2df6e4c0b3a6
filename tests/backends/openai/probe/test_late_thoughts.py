"""A model that thinks before some answers only, none of them in its probe: its cut thoughts are no other answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from backends.base import Message, ScoreRequest, ScoreResponse
from backends.errors import UncheckedError
from backends.openai import OpenAIBackend
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import MODEL, Manner, StrictServer, refusal, varied

_PLAIN = Manner({"logprobs": (400, "logprobs is not supported for this model")})


class LateThinker(StrictServer):
    """Thinks before half of its answers to the audited questions; its template opens the thought.

    ``refuses``: it does not think, and says at length that it will not answer.
    """

    refuses = False
    #: What it says to questions with room for a thought, in place of an answer.
    with_room: Reply | None = None
    #: The first of the questions that it refuses.
    refused_from = 10**6
    #: A thought that does not end in the room that it gets.
    endless = ""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        room = sent.get("max_tokens") or sent.get("max_completion_tokens") or 0
        if self.with_room is not None and room >= 1024 and "Question" in str(sent.get("messages")):
            return self.with_room
        if f"Question {self.refused_from}:" in str(sent.get("messages")):
            return refusal(400, "it cannot be said")
        reply = super().reply(path, sent)
        if reply.status != 200 or "Question" not in str(sent.get("messages")):
            return reply
        thought = "I cannot say which it is of the two, as nobody does. " * 2
        for choice in reply.body["choices"]:
            if self._random.random() < 0.5:
                said = thought if self.refuses else f"{thought}</think>{choice['message']['content']}"
                if self.endless and room > 1024:
                    said = self.endless * room
                limit = 4 * (sent.get("max_tokens") or sent["max_completion_tokens"])
                choice["message"]["content"] = said[:limit]
                choice["finish_reason"] = "length" if len(said) > limit else "stop"
        return reply


def answers_to(question: str) -> Mapping[str, float]:
    if "Question" in question:
        return {"Female": 0.6, "Male": 0.4}
    return {word: 0.6**place for place, word in enumerate(varied(question))}  # fewer of them where it is colder


async def audited(server: LateThinker, folder: Path, number: int, **options: Any) -> OpenAIBackend:
    backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder, samples=10, **options)
    await backend.describe()
    for at in range(number):
        await backend.run([ScoreRequest((Message("user", f"Question {at}: male or female?"),), ("Male", "Female"))])
    try:
        await backend.verify_identity()
    finally:
        await backend.close()
    return backend


async def test_thoughts_that_the_probe_did_not_see_are_found(tmp_path: Path) -> None:
    async with LateThinker(_PLAIN, answers_to).running() as server:
        first = await audited(server, tmp_path, 12)
        again = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, samples=10)
        description = await again.describe()
        (scored,) = await again.run([ScoreRequest((Message("user", "Question 1?"),), ("Male", "Female"))])
        await again.close()
    assert first.unverified_since is not None
    assert "thinks before some answers" in first.unverified_reason
    assert description.fingerprint["default_reasoning_tokens"] == 4096
    low, high = zip(*((one.low, one.high) for one in scored.scores), strict=True)  # type: ignore[union-attr]
    assert all(one is not None for one in low)
    assert max(high) < 0


@pytest.mark.parametrize("answers", [12])
async def test_long_refusals_are_no_thoughts(answers: int, tmp_path: Path) -> None:
    async with LateThinker(_PLAIN, answers_to).running() as server:
        server.refuses = True
        backend = await audited(server, tmp_path, answers)
    assert backend.unverified_since is None


async def test_thoughts_that_could_not_be_looked_for_are_told(tmp_path: Path) -> None:
    async with LateThinker(_PLAIN, answers_to).running() as server:
        server.with_room = refusal(400, "max_tokens must be at most 512")
        with pytest.raises(UncheckedError, match=r"12 of 12 .* at most 512"):
            await audited(server, tmp_path, 20)


async def test_late_thoughts_without_an_end_are_no_answers(tmp_path: Path) -> None:
    async with LateThinker(_PLAIN, answers_to).running() as server:
        await audited(server, tmp_path, 12)
        server.endless = "I cannot say. "
        again = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, samples=10)
        (scored,) = await again.run([ScoreRequest((Message("user", "Question 1?"),), ("Male", "Female"))])
        await again.close()
    assert isinstance(scored, ScoreResponse), scored
    assert {score.exactness for score in scored.scores} == {"bounded"}
    assert all(score.high > -0.9 for score in scored.scores), "about half of the draws are open"


async def test_a_last_request_that_fails_leaves_no_check_out(tmp_path: Path) -> None:
    async with LateThinker(_PLAIN, answers_to).running() as server:
        server.refused_from = 12
        backend = await audited(server, tmp_path, 13, canary_every=12)
    assert backend.unverified_since is not None, "the canary was asked before the last request, which failed"
