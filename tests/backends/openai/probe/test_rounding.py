"""Rounded log-probabilities are found, whatever the grid; honest ones are not accused."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from backends.openai.probe.rounding import rounding, rounding_of_words


def lists(seed: int, logits: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> np.ndarray:
    raw = logits(np.random.default_rng(seed).normal(0, 3, (10, 400)).astype(np.float32))
    values = raw - np.log(np.exp(raw).sum(1, keepdims=True))
    return -np.sort(-values, axis=1)[:, :20]


def bfloat16(values: np.ndarray) -> np.ndarray:
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


COARSE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "an eighth": (lambda v: np.round(v * 8) / 8, "0.125 nats"),
    "0.15, off zero": (lambda v: np.round(v / 0.15 + 0.5) * 0.15 - 0.075, "0.15 nats"),
    "decibels": (lambda v: np.round(v / math.log(10) * 10) * math.log(10) / 10, "0.23 nats"),
    "0.1": (lambda v: np.round(v, 1), "0.1 nats"),
    "bfloat16": (bfloat16, "8 bits"),
    "two digits": (np.vectorize(lambda x: float(f"{x:.2g}")), "nats|digits"),
    "probabilities": (lambda v: np.log(np.maximum(np.round(np.exp(v), 3), 5e-4)), "3 decimals"),
}


@pytest.mark.parametrize("name", COARSE)
def test_coarse_values_are_named(name: str) -> None:
    coarse, says = COARSE[name]
    assert re.search(says, rounding(np.vectorize(float)(coarse(lists(1))).tolist()))


def test_a_step_of_each_lists_own_is_named() -> None:
    steps = np.linspace(0.06, 0.19, 10)[:, None]
    assert "each list separately" in rounding((np.round(lists(1) / steps) * steps).tolist())


def test_few_values_in_all_lists_are_named() -> None:
    # Three bits of mantissa leave some 20 values: too few to show the grid on which they lie.
    mantissas, exponents = np.frexp(lists(1)[:7])
    assert "share" in rounding(np.ldexp(np.round(mantissas * 16) / 16, exponents).tolist())


def test_honest_16_bit_logits_of_any_size_are_not_accused() -> None:
    for seed, (offset, spread) in enumerate(itertools.product((0, 10, 30, 60, 120), (0.2, 0.5, 1.0))):
        assert not rounding(lists(seed, lambda x, o=offset, s=spread: bfloat16(o + s * x)).tolist())  # type: ignore[misc]


def test_honest_values_are_not_accused() -> None:
    for seed in range(200):
        values = lists(seed)
        assert not rounding(values.tolist())
        assert not rounding(np.round(values, 4).tolist())
        assert not rounding(lists(seed, bfloat16).tolist())


def words_of(values: np.ndarray, steps: np.ndarray | None) -> list[dict[str, float]]:
    """Lists of the likeliest 20 words; each word's value on a grid of its own, if there are steps."""
    told = values if steps is None else np.round(values / steps) * steps
    return [{str(at): row[at] for at in np.argsort(-row)[:20]} for row in told]


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_words_on_grids_of_their_own_are_found(seed: int, rounds: bool) -> None:
    random = np.random.default_rng(seed)
    logits = (random.normal(0, 2, 400) + random.normal(0, 1, (10, 400))).astype(np.float32)
    values = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    found = rounding_of_words(words_of(values, random.uniform(0.1, 0.4, 400) if rounds else None))
    assert bool(found) == rounds
    assert not rounding_of_words(words_of(bfloat16(logits) - np.log(np.exp(logits).sum(1, keepdims=True)), None))
