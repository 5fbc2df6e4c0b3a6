"""The test of drawn words: how often it wrongs a true server, and what it sees."""

from __future__ import annotations

import numpy as np
import pytest

from backends.openai.look.draw_test import LEVEL, Place, surprise

WORDS = [f"w{at}" for at in range(40)]


def places(rng, n: int, draws: int, *, drawn_at: float = 1.0, listed: int = 20) -> list[Place]:
    """Places of a model whose draws have the temperature ``drawn_at``; its lists have 1."""
    found = []
    for _ in range(n):
        logits = rng.normal(0, 2, len(WORDS))
        chances, other = (np.exp(x) / np.exp(x).sum() for x in (logits, logits / drawn_at))
        kept = np.argsort(-chances)[:listed]
        drawn = rng.choice(WORDS, size=draws, p=other)
        found.append(Place({WORDS[i]: float(chances[i]) for i in kept}, tuple(map(str, drawn))))
    return found


@pytest.mark.parametrize("draws", [1, 20])
def test_a_true_server_is_almost_never_wronged(draws):
    rng = np.random.default_rng(draws)
    chances = [surprise(places(rng, 12, draws))[0] for _ in range(400)]
    assert min(chances) > LEVEL
    assert np.mean(np.array(chances) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_exchanged_words_are_seen_although_the_likelihood_is_the_same():
    rng = np.random.default_rng(3)
    listed, drawn = {"a": 0.4, "b": 0.3, "c": 0.2}, rng.choice(["b", "a", "c", "d"], (60, 20), p=[0.4, 0.3, 0.2, 0.1])
    found = [Place(listed, tuple(map(str, words))) for words in drawn]
    assert surprise(found)[0] < LEVEL
