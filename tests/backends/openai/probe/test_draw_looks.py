"""Draws that do not fit are made anew: how often, what is compared, and what is believed then."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from backends.openai.probe.calibration import Place
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
