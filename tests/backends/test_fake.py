import math

import pytest

from backends import FakeBackend, PlantedBias
from backends.base import GenerateRequest, ScoreRequest
from backends.errors import BackendError, ConfigError
from backends.stand_ins.fake import Faults

WORDS = {"male": ("Male", "male"), "female": ("Female", "female"), "diverse": ("They", "they")}


def planted(prompt: str) -> dict[str, float]:
    return (
        {"male": 0.2, "female": 0.7, "diverse": 0.1} if "nurse" in prompt else {"male": 1.0, "female": 0, "diverse": 0}
    )


async def test_planted_group_probabilities_come_back_exactly():
    backend = FakeBackend(score=PlantedBias(planted, WORDS, coverage=0.5))
    request = ScoreRequest("Picture a nurse.", tuple(f" {w}" for words in WORDS.values() for w in words))
    (answer,) = await backend.run([request])
    p = [math.exp(s.logprob) for s in answer.scores]
    assert p == pytest.approx([0.05, 0.05, 0.175, 0.175, 0.025, 0.025], abs=1e-12)


async def test_an_unknown_expression_is_an_error_not_a_zero():
    backend = FakeBackend(score=PlantedBias(planted, WORDS))
    with pytest.raises(KeyError, match="Robot"):
        await backend.run([ScoreRequest("Picture a nurse.", (" Robot",))])


async def test_faults_depend_on_request_and_attempt_only():
    requests = [ScoreRequest(f"prompt {i}", (" a",)) for i in range(200)]

    async def failures() -> list[bool]:
        backend = FakeBackend(faults=Faults(rate=0.3, kinds=("server", "rate_limited"), seed=5))
        return [isinstance(a, BackendError) for _ in range(3) for a in await backend.run(requests)]

    first = await failures()
    assert first == await failures()
    assert 30 < sum(first[:200]) < 90
    assert first[:200] == first[200:400]
    assert not any(first[400:])


async def test_permanent_faults_are_not_retryable_and_never_answer():
    backend = FakeBackend(faults=Faults(rate=1.0, kinds=("auth",), permanent=True))
    for _ in range(3):
        (answer,) = await backend.run([GenerateRequest("hello")])
        assert isinstance(answer, BackendError)
        assert answer.kind == "auth"
        assert not answer.retryable


def test_coverage_outside_its_range_is_refused():
    with pytest.raises(ConfigError, match="coverage"):
        PlantedBias(planted, WORDS, coverage=1.5)
