"""How many items a run asks until its gate's question is decided, and how often it decides wrongly.

    python -m tests.simulations.until_decided --runs 400

A baseline of 40 occupations × 25 templates, and a run that asks in a balanced random order. What changed varies from
item to item, and with occupations and templates; the true mean change is planted. The whole sample's standard error
is a tenth of the margin, more or less.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.decisions import decide
from audit.analysis.gate.changes import Change, sums_of
from audit.analysis.rows.table import Levels, RowTable, item_index
from audit.collect import InterimLook, Sample, assign_looks, plan_looks
from audit.results import FigureName
from backends.base import GenerateRequest
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row

ALPHA, MARGIN = 0.05, 0.02
MOST = 0.0  # `largest_change`: these processes have no kinds of templates that a sample could lack
OCCUPATIONS, TEMPLATES = 40, 25
GAP = MeasureSpec("gap", "p", clusters=("occupation", "template"), neutral=0.0, kind="difference")

Values = np.ndarray


@dataclass(frozen=True)
class Process:
    """What changes from the baseline to the run: (generator, true mean) → changes (occupations, templates)."""

    name: str
    changes: Callable[[np.random.Generator, float], Values]


def smooth(rng: np.random.Generator, mean: float) -> Values:
    """Normal effects of occupations and templates, and heavy-tailed ones of items."""
    effects = rng.normal(0, 0.004, (OCCUPATIONS, 1)) + rng.normal(0, 0.004, (1, TEMPLATES))
    return mean + effects + 0.03 * rng.standard_t(5, (OCCUPATIONS, TEMPLATES))


def skewed(rng: np.random.Generator, mean: float) -> Values:
    """Most items move a little, some a lot, all the same way."""
    return mean + 0.04 * (rng.exponential(1.0, (OCCUPATIONS, TEMPLATES)) - 1.0) + rng.normal(0, 0.004, (1, TEMPLATES))


PROCESSES = (Process("smooth", smooth), Process("skewed", skewed))


def items() -> list[Item]:
    """The questions: occupations of two groups, each in every template."""
    return [
        Item(f"{o}/{t}", GenerateRequest(""), {"occupation": o, "template": t, "group": o % 2})
        for o, t in itertools.product(range(OCCUPATIONS), range(TEMPLATES))
    ]


def rows_of(values: Values, questions: list[Item]) -> list[Row]:
    """The rows of a run that answered all questions."""
    return [
        Row(item.id, item.factors, {"p": IdentifiedInterval.exact(float(value))})
        for item, value in zip(questions, values.ravel(), strict=True)
    ]


def look_by_look(process: Process, mean: float, seed: int) -> Iterator[tuple[InterimLook, int, str | None]]:
    """Each look of one run with the items asked so far and what the gate says, None while it is inconclusive."""
    rng, questions = np.random.default_rng(seed), items()
    before = 0.25 + rng.normal(0, 0.1, (OCCUPATIONS, TEMPLATES))
    now = rows_of(before + process.changes(rng, mean), questions)
    baseline = rows_of(before, questions)
    looks = plan_looks([len(questions)])
    by = assign_looks(*Sample(questions, ("template", "group"), seed, (), GAP.clusters).order(), looks)
    for look in looks:
        asked = [number <= look.number for number in by]
        of_run = [list(itertools.compress(rows, asked)) for rows in (baseline, now)]
        index, levels = item_index(of_run), Levels()
        tables = [RowTable(rows, index, levels) for rows in of_run]
        (difference,) = paired_differences(tables, [GAP], [(0, 1)])
        difference.margin = MARGIN
        difference.allow_unseen(MOST)
        (total,) = sums_of(tables, GAP, [(0, 1)])
        change = Change(FigureName("s", GAP.measure, {}, "m"), GAP.neutral, difference, total)
        claims = change.claims(ALPHA * look.error)
        (decision,) = decide([(difference, claims)], ALPHA * look.error)
        yield look, sum(asked), decision.outcome


def until_decided(process: Process, mean: float, seed: int) -> tuple[int, str]:
    """The items that a run asks, and its decision."""
    for look, asked, outcome in look_by_look(process, mean, seed):
        if outcome is not None or look.items == 1.0:
            return asked, outcome or "inconclusive"
    raise AssertionError("the last look is at all items")


def simulate(process: Process, mean: float, runs: int) -> tuple[float, Counter[str]]:
    """Mean share of the items that were asked, and the decisions."""
    found = [until_decided(process, mean, seed) for seed in range(runs)]
    return float(np.mean([asked for asked, _ in found])) / (OCCUPATIONS * TEMPLATES), Counter(o for _, o in found)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    options = parser.parse_args()
    print(f"{options.runs} runs each: share of the items asked, and decisions")
    for process, margins in itertools.product(PROCESSES, (0.0, 0.5, 1.0, 2.0)):
        share, decisions = simulate(process, margins * MARGIN, options.runs)
        said = ", ".join(f"{outcome} {count / options.runs:.1%}" for outcome, count in decisions.most_common())
        print(f"  {process.name:8} change of {margins:g} margins: asked {share:6.1%}; {said}", flush=True)


if __name__ == "__main__":
    main()
