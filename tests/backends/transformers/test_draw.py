"""The draw of texts on transformers against the arithmetic of whole numbers, and against the softmax."""

import numpy as np
import pytest

from backends.base import Sampling

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from backends.transformers.draw import KeyedDraw, squares  # noqa: E402

KEYS = [3, 0x9E3779B97F4A7C15, 2**64 - 1]


def by_whole_numbers(key: int, step: int, token: int) -> int:
    """Squares of Widynski (2020), in Python's integers."""
    most, key = 2**64 - 1, key | 1
    first = ((step << 24) + token) * key & most
    second = (first + key) & most
    bits = first
    for added in (first, second, first):
        bits = (bits * bits + added) & most
        bits = (bits >> 32 | bits << 32) & most
    return (bits * bits + second & most) >> 32


def test_bits_are_those_of_squares() -> None:
    keys = KeyedDraw(Sampling(temperature=1.0), KEYS, 0, torch.device("cpu"))._keys
    for step in (0, 5, 100_000):
        expected = [[by_whole_numbers(key, step, token) for token in range(50)] for key in KEYS]
        assert squares(keys, step, 50).tolist() == expected


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(temperature=0.5), 6),
        (Sampling(temperature=1.0, top_k=3), 3),
        (Sampling(temperature=2.0, top_p=0.5), 2),
    ],
)
def test_tokens_are_drawn_from_the_softmax(sampling: Sampling, kept: int) -> None:
    """By the chi-squared statistic of 60,000 draws; its 0.9999 quantile at 5 degrees of freedom is 25.7."""
    logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])
    rows, steps = 2000, 30
    keys = np.random.SeedSequence(1).generate_state(rows, np.uint64).tolist()
    draw = KeyedDraw(sampling, keys, 4, torch.device("cpu"))
    counts = torch.zeros(6)
    for step in range(steps):
        scores = draw(torch.zeros((rows, 4 + step), dtype=torch.long), logits.expand(rows, 6).clone())
        counts += torch.bincount(scores.argmax(-1), minlength=6)
    weights = (logits / sampling.temperature).softmax(-1)
    weights[kept:] = 0
    expected = weights / weights.sum() * rows * steps
    assert not counts[kept:].any()
    assert float(((counts - expected)[:kept] ** 2 / expected[:kept]).sum()) < 25.7


def test_a_small_change_of_logits_seldom_changes_the_token() -> None:
    """No more often than twice the distance of the two softmaxes, as the Gumbel-max coupling has it."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 500, generator=generator)
    moved = logits + 0.02 * torch.randn(1, 500, generator=generator)
    keys = np.random.SeedSequence(2).generate_state(4000, np.uint64).tolist()
    draw = KeyedDraw(Sampling(temperature=1.0), keys, 1, torch.device("cpu"))
    ids = torch.zeros((4000, 1), dtype=torch.long)
    first, second = (draw(ids, one.expand(4000, 500).clone()).argmax(-1) for one in (logits, moved))
    distance = float((logits.softmax(-1) - moved.softmax(-1)).abs().sum())  # twice the total variation
    assert 0 < float((first != second).double().mean()) < distance + 5 * (distance / 4000) ** 0.5
