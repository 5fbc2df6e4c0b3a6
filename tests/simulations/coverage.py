"""How often the project's intervals hold what is known, and how wide they are beside textbook ones.

    python -m tests.simulations.coverage --samples 2000 [--only 20x10]

A cell is a design (occupations x templates) and a kind of figure; its samples come in equal parts from each of its
processes (`processes`). Two processes are lines of their own and no part of a cell, since no textbook method is honest
there: log-odds of exponential effects, for probabilities; one occupation that always says yes, for yes/no. Of a line

* *holds* is the share of its samples whose interval holds the true value, and the worst process by name;
* *width* is the mean width over 2 · 1.96 times the true standard error of the plain mean;
* *beside* is that width over the one of the best honest textbook method: the narrowest of `textbook` that holds the
  truth in 93 % of the same samples; the one that does so most often where none does.

A cell is met if it holds in 93 % or more and is at most 1.15 times as wide. What is compared is fixed here, and
so is the seed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.analysis.estimators.design import Design
from audit.analysis.estimators.estimate import Estimate
from audit.analysis.estimators.means import clustered_mean
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import mean_share
from tests.simulations import textbook
from tests.simulations.processes import GapProcess, Process

Floats = NDArray[np.float64]
Ends = tuple[Floats, Floats]

SEED, CONFIDENCE, HONEST, WIDEST = 44, 0.95, 0.93, 1.15
#: Occupations x templates.
DESIGNS = ((40, 25), (20, 10), (20, 5), (40, 7), (40, 1))
#: Occupations of the two groups, templates.
GAP_DESIGNS = (((20, 20), 25), ((8, 20), 25), ((20, 20), 5))
PROBABILITY_EFFECTS = ("laplace", "t", "logistic", "unequal groups")
SHARE_EFFECTS = ("probit", "laplace", "logistic", "unequal groups")
GAP_EFFECTS = (*PROBABILITY_EFFECTS, "exponential")
#: Lines of their own.
STRAINED = {"probability": "exponential", "share": "always yes"}


# -- the project's intervals, through the functions that every figure comes from ----------------


def crossed(occupations: int, templates: int) -> Design:
    """The design of one sample of a mean, its items in order of occupations. One template stands for itself."""
    codes = np.indices((occupations, templates)).reshape(2, -1)
    return Design(codes.shape[1], {"occupation": codes[0], "template": codes[1]})


def grouped(groups: tuple[int, int], templates: int) -> Design:
    """The design of one sample of a gap: twice the mean of the first group and minus the second."""
    occupations, template = np.indices((sum(groups), templates)).reshape(2, -1)
    strata = (occupations >= groups[0]).astype(np.intp)
    clusters = {"occupation": occupations, "template": template}
    return Design(len(occupations), clusters, strata, np.array([0.5, 0.5]))


def of_means(estimate: Callable[[Floats, Design], Estimate]) -> Callable[[Any, float], tuple[Floats, Floats]]:
    """Intervals of the means of samples (samples, occupations, templates)."""

    def intervals(samples: Floats, confidence: float) -> tuple[Floats, Floats]:
        design = crossed(*samples.shape[1:])
        return ends(estimate(values, design).interval(confidence) for values in samples.reshape(len(samples), -1))

    return intervals


def of_gaps(samples: Any, confidence: float) -> tuple[Floats, Floats]:
    """Intervals of the gaps between two groups (samples, occupations, templates)."""
    first, second = samples
    design = grouped((first.shape[1], second.shape[1]), first.shape[2])
    values = np.concatenate([2 * first, -2 * second], axis=1).reshape(len(first), -1)
    return ends(clustered_mean(of_sample, design).interval(confidence) for of_sample in values)


def ends(intervals: Any) -> tuple[Floats, Floats]:
    """Lower and upper ends (samples,)."""
    low, high = np.array(list(intervals)).T
    return low, high


INTERVALS: dict[str, Callable[[Any, float], tuple[Floats, Floats]]] = {
    "probability": of_means(mean_probability),
    "share": of_means(mean_share),
    "gap": of_gaps,
}


# -- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """Samples of one process, the truth, and the plain means, whose deviation is the true standard error."""

    samples: Any
    truth: float
    means: Floats


@dataclass(frozen=True)
class Cell:
    """A design and a kind of figure: ``kind`` is "probability", "share" or "gap". ``is_strained``: not a cell."""

    name: str
    kind: str
    methods: Mapping[str, Callable[[Any, float], Ends]]
    processes: Mapping[str, Callable[[np.random.Generator, int], Drawn]]
    is_strained: bool = False


def cells() -> Iterator[Cell]:
    """The lines of the table, in order."""
    for design in DESIGNS:
        for mean in (0.3, 0.02):
            yield from _of_design("probability", mean, design, PROBABILITY_EFFECTS)
        for mean in (0.5, 0.1, 0.05):
            yield from _of_design("share", mean, design, SHARE_EFFECTS)
    for groups, templates in GAP_DESIGNS:
        of_effects = {name: _gaps(GapProcess(name), groups, templates) for name in GAP_EFFECTS}
        yield Cell(f"gap, {groups[0]}+{groups[1]}x{templates}", "gap", textbook.FOR_GAPS, of_effects)


def _of_design(kind: str, mean: float, design: tuple[int, int], effects: Sequence[str]) -> Iterator[Cell]:
    is_binary, strained = kind == "share", STRAINED[kind]
    name = f"{'yes/no' if is_binary else kind} {mean:g}, {design[0]}x{design[1]}"
    methods = textbook.FOR_SHARES if is_binary else textbook.FOR_PROBABILITIES
    yield Cell(name, kind, methods, {effect: _means(Process(effect, mean, is_binary), design) for effect in effects})
    yield Cell(
        f"{name}, {strained}", kind, methods, {strained: _means(Process(strained, mean, is_binary), design)}, True
    )


def _means(process: Process, design: tuple[int, int]) -> Callable[[np.random.Generator, int], Drawn]:
    def draw(rng: np.random.Generator, samples: int) -> Drawn:
        values, truth = process.draw(rng, samples, *design)
        return Drawn(values, truth, values.mean(axis=(1, 2)))

    return draw


def _gaps(process: GapProcess, groups: tuple[int, int], templates: int) -> Callable[[np.random.Generator, int], Drawn]:
    def draw(rng: np.random.Generator, samples: int) -> Drawn:
        (first, second), truth = process.draw(rng, samples, groups, templates)
        return Drawn([first, second], truth, first.mean(axis=(1, 2)) - second.mean(axis=(1, 2)))

    return draw


@dataclass(frozen=True)
class Found:
    """What a cell of the table shows of one method: shares of the samples, widths as multiples of the ideal one."""

    holds: float
    worst: float
    worst_process: str
    width: float


def measure(cell: Cell, samples: int, project: Callable[[Any, float], Ends]) -> dict[str, Found]:
    """Coverage and width of the cell's methods and of the project's ("project")."""
    methods = {**cell.methods, "project": project}
    covered: dict[str, dict[str, float]] = {name: {} for name in methods}
    widths: dict[str, list[float]] = {name: [] for name in methods}
    for number, (process, draw) in enumerate(cell.processes.items()):
        seed = [SEED, number, *cell.name.encode()]
        drawn = draw(np.random.default_rng(seed), math.ceil(samples / len(cell.processes)))
        ideal = 2 * 1.96 * drawn.means.std()
        for name, method in methods.items():
            low, high = method(drawn.samples, CONFIDENCE)
            covered[name][process] = float(((low <= drawn.truth) & (drawn.truth <= high)).mean())
            widths[name].append(float((high - low).mean() / ideal))
    return {
        name: Found(
            float(np.mean(list(of.values()))),
            min(of.values()),
            min(of, key=of.__getitem__),
            float(np.mean(widths[name])),
        )
        for name, of in covered.items()
    }


def best_honest(found: Mapping[str, Found]) -> str:
    """The narrowest textbook method that holds the truth often enough; else the one that does so most often."""
    textbooks = {name: one for name, one in found.items() if name != "project"}
    honest = {name: one for name, one in textbooks.items() if one.holds >= HONEST}
    if honest:
        return min(honest, key=lambda name: honest[name].width)
    return max(textbooks, key=lambda name: textbooks[name].holds)


@dataclass(frozen=True)
class Line:
    """A row of the table: the project's figures, and those of the best honest textbook method."""

    cell: Cell
    own: Found
    best_name: str
    best: Found

    @property
    def beside(self) -> float:
        """The project's width over that of the best method."""
        return self.own.width / self.best.width

    @property
    def is_met(self) -> bool:
        """Whether the cell is honest and narrow."""
        return self.own.holds >= HONEST and self.beside <= WIDEST

    def __str__(self) -> str:
        own, verdict = self.own, "" if self.is_met else "  MISSED"
        worst = f"{own.worst:6.1%} ({own.worst_process})"
        best = f"{self.best_name}, {self.best.holds:.1%}, {self.best.width:.2f}"
        return f"{self.cell.name:34} {own.holds:6.1%} {worst:26} {own.width:5.2f} {self.beside:5.2f}  {best}{verdict}"


def line_of(cell: Cell, samples: int, project: Callable[[Any, float], Ends]) -> Line:
    """A cell's row of the table."""
    found = measure(cell, samples, project)
    best = best_honest(found)
    return Line(cell, found["project"], best, found[best])


def table(samples: int, only: Sequence[str] = ()) -> Iterator[Line]:
    """The rows of the table, of the cells whose names contain one of ``only`` if any are given."""
    for cell in cells():
        if not only or any(part in cell.name for part in only):
            yield line_of(cell, samples, INTERVALS[cell.kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--only", action="append", default=[], help="a part of a cell's name")
    options = parser.parse_args()
    print(f"{'cell':34} {'holds':6} {'worst process':26} {'width':5} {'beside':5}  best honest textbook method")
    lines = []
    for line in table(options.samples, options.only):
        lines.append(line)
        print(line, flush=True)
    for name, of in (("cells", False), ("strained lines", True)):
        if own := [line for line in lines if line.cell.is_strained == of]:
            met, worst = sum(line.is_met for line in own), min(line.own.holds for line in own)
            print(f"{met} of {len(own)} {name} are met; the worst holds the truth in {worst:.1%}")


if __name__ == "__main__":
    main()
