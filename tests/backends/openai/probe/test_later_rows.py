"""Later tokens of continuations against the lists after the same text."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.base import ContinuationScore, ScoreRequest, ScoreResponse, TokenLogprob
from backends.openai import OpenAIBackend
from backends.openai.probe.later_rows import later_rows
from backends.openai.probe.session import ProbeSession
from tests.backends.openai.lies.server import MODEL, WordServer

PROMPT, CONTINUATION, LIKELY = "Q: Which days are there?\nA:", " Monday, Tuesday", (" Monday", ",", " Tuesday")


async def _found(
    tokens: tuple[str, ...], moved: float, folder: Path, questions: int = 12, true_questions: int = 0
) -> tuple[str, int]:
    """What is said of scores whose tokens after the first are ``moved`` nats up, and the requests that it took.

    The first ``true_questions`` have true scores.
    """
    async with WordServer("echo", seed=0).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=folder)
        session = ProbeSession(backend._api)
        session.update(largest_k=20, completions=True, text_route="echo")
        asked = []
        for at in range(questions):
            prompt = f"{at} {PROMPT}"
            scored, start = [], 0
            for number, token in enumerate(tokens):
                true = server.truth(prompt + CONTINUATION[:start], token) if token in LIKELY else -1.0
                value = true + moved * (number > 0 and at >= true_questions)
                scored.append(TokenLogprob(token, start, start + len(token), min(value, 0.0)))
                start += len(token)
            response = ScoreResponse((ContinuationScore.exact(scored, route="echo"),))
            asked.append((ScoreRequest(prompt, (CONTINUATION,)), response))
        said = await later_rows(session, asked)
        await backend.close()
    return said, server.requests


async def test_true_later_tokens_are_not_doubted(tmp_path: Path) -> None:
    assert await _found(LIKELY, 0.0, tmp_path) == ("", 20)


@pytest.mark.parametrize("moved", [-0.5, -3.0])
async def test_false_later_tokens_are_named(moved: float, tmp_path: Path) -> None:
    said, _ = await _found(LIKELY, moved, tmp_path)
    assert "of 10 continuations have other values than the server lists there" in said


async def test_one_false_token_has_ten_others_compared(tmp_path: Path) -> None:
    # A false comma is too unlikely to be seen, and the two later tokens are compared in turn: of the last two of the
    # first ten questions, which alone are false, one shows it, and five of the ten that follow.
    said, requests = await _found(LIKELY, -3.0, tmp_path, questions=24, true_questions=8)
    assert "the later tokens of 6 of 20 continuations" in said
    assert requests == 40


async def test_a_cut_that_gives_other_tokens_is_not_compared(tmp_path: Path) -> None:
    said, requests = await _found((" Monday,", " Tuesday"), -3.0, tmp_path)
    assert (said, requests) == ("", 10)  # the echoes alone
