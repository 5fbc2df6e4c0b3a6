"""Draws that do not fit are made anew: how often, what is compared, and what is believed then."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.calibration import Place
from backends.openai.probe.experiments import draws
from backends.openai.probe.experiments.draws import Levels, Look, compare_draws
from backends.openai.probe.session import ProbeSession


def looks(values: Sequence[float]) -> tuple[Look, list[int]]:
    """Looks with one set of a place each, whose tests give these p-values; how many places each compared."""
    left, compared = [*values], list[int]()

    async def draw() -> list[list[Place]]:
        return [[Place({"a": 0.5}, ("a",))]]

    def test(places: Sequence[Place], *, noise: float) -> float:
        compared.append(len(places))
        return left.pop(0)

    return Look(draw, (test,)), compared


@pytest.mark.parametrize(
    ("values", "fits", "places"),
    [
        ([0.02], True, [1]),
        ([0.019, 0.5, 0.5, 0.5], True, [1, 1, 2, 3]),
        ([0.019, 0.0015], False, [1, 1]),
        ([0.001, 0.3, 0.002, 0.0015], False, [1, 1, 2, 3]),  # its draws fit once, as a lie of a tenth may
    ],
)
async def test_fresh_draws_are_compared_together(values: list[float], fits: bool, places: list[int]) -> None:
    look, compared = looks(values)
    session = cast(ProbeSession, SimpleNamespace(capabilities=SimpleNamespace(repeat_noise=0.0)))
    found, fit, message = await compare_draws(session, (look, look))
    assert (fit, compared) == (fits, places)
    assert len(found) == places[-1]
    assert message.endswith(f"p = {values[-1]:.2g} that they come from the lists")


def test_a_true_list_is_refused_once_in_10000_at_most() -> None:
    levels = Levels()  # fresh looks share theirs (Bonferroni), and do not depend on the first
    assert levels.at_once + levels.first * levels.fresh == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("warm", "cold", "passed"),
    [  # after each of three prompts
        (2, 2, None),  # an honest model with peaked answers
        (1, 1, False),  # copies
        (5, 4, False),
        (5, 3, True),
        (20, 20, False),
    ],
)
async def test_few_distinct_answers_say_nothing_of_temperature(
    warm: int, cold: int, passed: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drawn(session: ProbeSession, asked: str, n: int, temperature: float = 1.0) -> list[str]:
        different = warm if temperature == 1 else cold
        return [f"answer {at % different}" for at in range(n)]

    recorded = list[bool | None]()
    distrusted = list[str]()
    session = SimpleNamespace(
        capabilities=ServerCapabilities(completions=True),
        record=lambda name, outcome: recorded.append(outcome.passed),
        distrust=lambda kind, reason: distrusted.append(reason),
    )
    monkeypatch.setattr(draws, "drawn", drawn)
    await draws.variety(cast("ProbeSession", session))
    assert recorded == [passed]
    assert bool(distrusted) == (passed is False)
