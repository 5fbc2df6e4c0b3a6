"""The size of lie about audited words that a run's draws would not show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backends.openai.probe.calibration import Place, audited_bound
from backends.openai.probe.own_questions import ALONE, TWICE
from backends.openai.probe.unseen_words import draws_compared

LEVEL, RUNS = 1e-5, 60


def _places(probability: float, true: float, n: int, seed: int) -> list[Place]:
    """Lists that give the audited word this probability, and draws that give it the true one."""
    listed = {" Male": probability, " Female": probability / 3, " the": 0.9 - 4 / 3 * probability}
    draws = np.random.default_rng(seed).random(n)
    return [Place(listed, (" Male" if draw < true else " the",), {" Male"}) for draw in draws]


def _found(probability: float, true: float, n: int) -> float:
    runs = [audited_bound(_places(probability, true, n, seed), noise=0.0) <= LEVEL for seed in range(RUNS)]
    return sum(runs) / RUNS


@pytest.mark.parametrize(("probability", "n"), [(0.3, 200), (0.1, 400)])
def test_a_lie_of_the_stated_size_is_seen_and_a_small_one_not(probability: float, n: int) -> None:
    compared = draws_compared(_places(probability, probability, n, 1), noise=0.0, level=LEVEL)
    assert compared is not None
    assert compared.draws == n
    assert compared.probability == pytest.approx(probability)
    factor = compared.unseen_factor
    assert factor is not None
    assert _found(probability, probability / factor, n) >= 0.95
    assert _found(probability, min(probability * factor, 0.89), n) >= 0.95
    assert _found(probability, probability / factor**0.5, n) < 0.5


def test_few_draws_show_no_factor() -> None:
    compared = draws_compared(_places(0.05, 0.05, 20, 1), noise=0.0, level=LEVEL)
    assert compared is not None
    assert compared.unseen_factor is None


def test_draws_without_audited_words_show_nothing() -> None:
    assert draws_compared([Place({" the": 0.5}, (" the",))], noise=0.0, level=LEVEL) is None


def _row(n: int, kind: str, level: float) -> str:
    """A row of the documented table."""
    factors = []
    for probability in (0.3, 0.1, 0.03):
        compared = draws_compared(_places(probability, probability, n, 1), noise=0.0, level=level)
        assert compared is not None
        factors.append(f"{compared.unseen_factor:.2g}" if compared.unseen_factor else "none")
    return f"  | {n:,} {kind} | {' | '.join(factors)} |"


def test_the_documented_factors_are_those_computed() -> None:
    rows = [_row(n, "beside lists", ALONE) for n in (2000, 1000, 500, 200, 60)]
    rows += [_row(n, "without lists", TWICE) for n in (3000, 1000)]
    written = Path("backends/openai/QUIRKS.md").read_text()
    assert all(row in written for row in rows), "\n".join(rows)
