"""Servers that refuse in the middle of a run what they accepted in its probe."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from audit.report.figures import Figures
from audit.report.phrases.next_steps import next_steps
from backends.base import Message, ScoreRequest, ScoreResponse
from backends.http.usage import PriceTable
from backends.openai import OpenAIBackend
from backends.openai.protocol.parameters import refuses_a_parameter
from suites import OccuGender
from tests.backends.openai.probe.test_late_thoughts import answers_to
from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import MODEL, O_SERIES, Manner, StrictServer, refusal

_NO_LISTS = Manner({"logprobs": (400, "logprobs is not supported for this model")})
ASKED = [ScoreRequest((Message("user", f"Question {at}?"),), ("Male", "Female")) for at in range(12)]


class Fickle(StrictServer):
    """``minded``: from now on it takes neither several answers a request nor the limit's old name."""

    minded = False

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.minded and sent.get("n", 1) > 1:
            return refusal(400, "n must be 1")
        if self.minded and "max_tokens" in sent:
            return refusal(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return super().reply(path, sent)


async def test_what_is_refused_from_some_time_on_loses_no_question(tmp_path: Path) -> None:
    async with Fickle(_NO_LISTS, answers_to).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, samples=6)
        await backend.describe()
        server.minded, server.pause = True, 0.01
        before = server.requests
        answers = [answer for (answer,) in await asyncio.gather(*(backend.run([request]) for request in ASKED))]
        sent = server.requests - before
        await backend.close()
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    assert [score.samples for answer in answers for score in answer.scores] == [6] * 24  # type: ignore[union-attr]
    assert sent <= 12 * 6 + 3 * 8, "those in flight at its first refusals are sent again, and no more"


class Cooling(StrictServer):
    """From its 60th request on, it takes no temperature."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if self.requests > 60 and "temperature" in sent:
            return refusal(400, "Unsupported value: 'temperature' does not support this value with this model.")
        return super().reply(path, sent)


async def test_a_run_after_a_refusal_in_mid_run_is_advised(tmp_path: Path) -> None:
    async with Cooling(_NO_LISTS, answers_to).running() as server:
        backend = OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, samples=6)
        suite = OccuGender(("explicit",), prompt_format="chat")
        audit = Audit({"m": backend}, [suite], db=tmp_path / "a.db", out=tmp_path / "o", limit=100)
        first = await audit.run()
        asked = server.requests
        again = await audit.run()
    problems = " ".join(first.problems)
    assert not first.complete
    assert "refuses what it took before: HTTP 400: Unsupported value: 'temperature'" in problems
    assert "run the same command again to ask them" in problems
    assert any("it asks only what is unanswered" in step for step in next_steps(Figures(first)))
    assert asked < 60 + 60, "nobody asks all the rest in vain"
    assert again.complete
    assert "temperature" not in " ".join(again.problems)


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("`temperature` is deprecated for this model.", True),
        ("Unsupported parameter: 'stop' is not supported with this model.", True),
        ("extra fields not permitted: seed", True),
        ("Your request was stopped by our content policy; stop sending such texts.", False),
        ("max_tokens must be at least 1", False),
        ("Invalid value for 'messages': too many images", False),
        ("The provider returned an error", False),
    ],
)
def test_a_refused_parameter_is_named_as_wrong(message: str, refused: bool) -> None:
    body = {"model": "m", "messages": [], "temperature": 1.0, "stop": ["x"], "seed": 1, "max_tokens": 8, "provider": {}}
    assert refuses_a_parameter(message, body) == refused


class ThinksLong(StrictServer):
    """Its thoughts use up the limit in a third of its answers: 400, for all answers of the request."""

    def _choice(self, index: int, question: str, limit: int, temperature: float) -> dict[str, Any] | None:
        is_long = "Question" in question and self._random.random() < 1 / 3
        return None if is_long else super()._choice(index, question, limit, temperature)


async def test_thoughts_that_use_up_the_limit_leave_the_other_draws(tmp_path: Path) -> None:
    async with ThinksLong(O_SERIES, answers_to).running() as server:
        prices = PriceTable(prompt=0, completion=1e6)
        backend = OpenAIBackend(
            server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path, samples=12, prices=prices
        )
        await backend.describe()
        server.charged, before = 0, backend.spent() or 0.0
        answers = [(await backend.run([request]))[0] for request in ASKED[:6]]
        spent = (backend.spent() or 0.0) - before
        await backend.close()
        assert spent >= server.charged > 0
    assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
    scores = [score for answer in answers for score in answer.scores]  # type: ignore[union-attr]
    assert {score.exactness for score in scores} == {"bounded"}
    counted = sum(math.exp(score.low) for score in scores if score.low is not None) / len(answers)
    assert 0.4 < counted < 0.9, "two thirds of the answers are known"
