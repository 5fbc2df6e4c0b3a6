"""Comparisons in which a few levels lie far apart: how often the interval misses, and whether the report warns of it.

    python -m tests.simulations.few_levels --draws 300

The sample may hold none of these levels. No interval made from it alone can then hold the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.comparing.comparisons import compare_models
from suites.base import MeasureSpec
from tests.simulations.decisions import grid

DESIGNS = ((40, 25), (20, 25), (10, 50), (20, 7))
Values = np.ndarray
#: (generator, occupations, templates, draws) → the values of two models (occupations, templates, draws).
Process = Callable[[np.random.Generator, int, int, int], tuple[Values, Values]]


class Warned(NamedTuple):
    """Shares of the comparisons: whose interval holds the truth, whose interval with room for kinds not asked does, and
    that miss it without a sentence that says why; and that are said to rest on few levels."""

    holds: float
    holds_with_room: float
    missed_unsaid: float
    is_of_few: float


def _effects(rng: np.random.Generator, o: int, t: int, draws: int) -> Values:
    parts = rng.normal(0, 0.05, (o, 1, draws)) + rng.normal(0, 0.03, (1, t, draws))
    return parts + rng.normal(0, 0.1, (o, t, draws))


def smooth(rng: np.random.Generator, o: int, t: int, draws: int) -> tuple[Values, Values]:
    """Nothing lies far apart."""
    before = np.full((o, t, draws), 0.5)
    return before, before + _effects(rng, o, t, draws)


def outlier_templates(rng: np.random.Generator, o: int, t: int, draws: int) -> tuple[Values, Values]:
    """One template in ten is higher by 0.5, the others lower: no difference on the whole."""
    before = np.full((o, t, draws), 0.3)
    far = np.where(rng.random((1, t, draws)) < 0.1, 0.5, 0.0) - 0.05
    return before, np.clip(before + far + _effects(rng, o, t, draws) / 2, 0, 1)


def outlier_occupations(rng: np.random.Generator, o: int, t: int, draws: int) -> tuple[Values, Values]:
    """One occupation in 20 is higher by 0.5, the others lower: no difference on the whole."""
    before = np.full((o, t, draws), 0.3)
    far = np.where(rng.random((o, 1, draws)) < 0.05, 0.5, 0.0) - 0.025
    return before, np.clip(before + far + _effects(rng, o, t, draws) / 2, 0, 1)


def near_an_end(rng: np.random.Generator, o: int, t: int, draws: int) -> tuple[Values, Values]:
    """Shares near 0.02 whose log-odds are as skewed as exponential effects: both models alike on the whole."""

    def odds() -> Values:
        return rng.exponential(1, (o, 1, draws)) - 6 + rng.uniform(-1.2, 1.2, (1, t, draws)) + np.zeros((o, t, draws))

    return special.expit(odds()), special.expit(odds())


PROCESSES: Mapping[str, Process] = {
    "nothing far apart": smooth,
    "templates by 0.5": outlier_templates,
    "occupations by 0.5": outlier_occupations,
    "near an end of the scale": near_an_end,
}


def warned(process: Process, design: tuple[int, int], draws: int) -> Warned:
    """What of a process's comparisons holds the truth, which is 0, and what is said of the others."""
    a, b = process(np.random.default_rng(0), *design, draws)
    specs = [
        MeasureSpec("p", f"q{draw}", clusters=("occupation", "template"), kind="probability") for draw in range(draws)
    ]
    found = compare_models({"a": grid(a), "b": grid(b)}, specs, suite="s")
    missed = [c for c in found if not _holds(c.low, c.high)]
    return Warned(
        1 - len(missed) / draws,
        sum(_holds(c.unseen_low, c.unseen_high) for c in found) / draws,
        sum(not (c.is_of_few or c.is_of_kinds_asked) for c in missed) / draws,
        sum(c.is_of_few for c in found) / draws,
    )


def _holds(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low <= 0 <= high


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=300)
    draws = parser.parse_args().draws
    print("The interval holds the truth; with room for kinds not asked; misses it unsaid; said to rest on few levels")
    for design in DESIGNS:
        for name, process in PROCESSES.items():
            shares = "".join(f"{share:9.1%}" for share in warned(process, design, draws))
            print(f"  {design[0]:2} × {design[1]:2} {name:26}{shares}", flush=True)


if __name__ == "__main__":
    main()
