"""How wide the interval of a gap is, against the narrowest that could hold.

    python -m tests.simulations.gap_width

Two groups of occupations × 25 templates, all effects normal. The narrowest is Student's with the true standard error
and its true degrees of freedom, or, if the variances were known, the normal one.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from scipy import stats

from audit.analysis.estimators import Strata, ValueKind, mean_of_kind
from tests.audit.analysis.designs import grid

TEMPLATES, GAP = 25, 0.1
#: Standard deviations between occupations, templates and items.
SPREADS = ((0.05, 0.1, 0.1), (0.1, 0.1, 0.1), (0.1, 0.05, 0.1), (0.1, 0.02, 0.1))


class Width(NamedTuple):
    """Mean width of the interval as a multiple of Student's and of the normal one; and how often it holds the gap."""

    of_student: float
    of_normal: float
    holds: float


def width(sizes: tuple[int, int], spread: tuple[float, float, float], draws: int) -> Width:
    """The width with groups of these sizes. A template's effect is the same in both."""
    rng, n = np.random.default_rng(0), sum(sizes)
    occupation, template = grid(n, TEMPLATES)
    strata = Strata(np.repeat([0, 1], sizes)[occupation], np.array([0.5, 0.5]))
    own, of_template, of_item = spread
    values = GAP + rng.normal(0, own, (n, draws))[occupation] + rng.normal(0, of_template, (TEMPLATES, draws))[template]
    values += rng.normal(0, of_item, values.shape)
    low, high = mean_of_kind(values, [occupation, template], ValueKind(-1.0, 1.0), strata).interval(0.95)
    items = sum(0.25 * of_item**2 / (size * TEMPLATES) for size in sizes)
    squares = [(0.25 * (own**2 + of_item**2 / TEMPLATES) / size, size - 1) for size in sizes]
    squares += [(of_template**2 / TEMPLATES + items, TEMPLATES - 1), (-items, (n - 2) * (TEMPLATES - 1))]
    variance = sum(square for square, _ in squares)
    df = variance**2 / sum(square**2 / of for square, of in squares)
    mean = float((high - low).mean())
    quantiles = (float(stats.t.ppf(0.975, df)), float(stats.norm.ppf(0.975)))
    student, normal = (mean / (2 * quantile * variance**0.5) for quantile in quantiles)
    return Width(student, normal, float(((low <= GAP) & (high >= GAP)).mean()))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1500)
    draws = parser.parse_args().draws
    print("Groups, spread of occupations, templates, items: times Student's width, times the normal one, holds the gap")
    for sizes in ((20, 20), (8, 20)):
        for spread in SPREADS:
            found = width(sizes, spread, draws)
            shares = f"{found.of_student:7.2f}{found.of_normal:7.2f}{found.holds:8.1%}"
            print(f"  {sizes[0]:2} + {sizes[1]} {spread!s:18}{shares}", flush=True)


if __name__ == "__main__":
    main()
