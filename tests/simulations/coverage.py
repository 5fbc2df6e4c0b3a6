"""How often the project's intervals hold what is known, and how wide they are beside textbook ones.

    python -m tests.simulations.coverage --samples 2000 [--only 20x10] [--json FILE]

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
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """A row of the table."""

    cell: str
    holds: float
    worst: float
    worst_process: str
    width: float
    best: str
    best_holds: float
    best_width: float
    beside: float
    is_met: bool
    is_strained: bool

    def __str__(self) -> str:
        worst = f"{self.worst:6.1%} ({self.worst_process})"
        best = f"{self.best}, {self.best_holds:.1%}, {self.best_width:.2f}"
        verdict = "" if self.is_met else "  MISSED"
        return f"{self.cell:34} {self.holds:6.1%} {worst:26} {self.width:5.2f} {self.beside:5.2f}  {best}{verdict}"


def line_of(cell: Cell, samples: int, project: Callable[[Any, float], Ends]) -> Line:
    """A cell's row of the table."""
    found = measure(cell, samples, project)
    own, best = found["project"], best_honest(found)
    beside = own.width / found[best].width
    is_met = own.holds >= HONEST and beside <= WIDEST
    return Line(
        cell.name,
        own.holds,
        own.worst,
        own.worst_process,
        own.width,
        best,
        found[best].holds,
        found[best].width,
        beside,
        is_met,
        cell.is_strained,
    )


def table(samples: int, only: Sequence[str] = ()) -> Iterator[Line]:
    """The rows of the table, of the cells whose names contain one of ``only`` if any are given."""
    from tests.simulations.estimated import INTERVALS

    for cell in cells():
        if not only or any(part in cell.name for part in only):
            yield line_of(cell, samples, INTERVALS[cell.kind])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--only", action="append", default=[], help="a part of a cell's name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    started, lines = time.monotonic(), []
    print(f"{'cell':34} {'holds':6} {'worst process':26} {'width':5} {'beside':5}  best honest textbook method")
    for line in table(options.samples, options.only):
        lines.append(line)
        print(line, flush=True)
        print(f"  {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    for name, of in (("cells", False), ("strained lines", True)):
        own = [line for line in lines if line.is_strained == of]
        if own:
            met, worst = sum(line.is_met for line in own), min(line.holds for line in own)
            print(f"{met} of {len(own)} {name} are met; the worst holds the truth in {worst:.1%}")
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))


if __name__ == "__main__":
    main()
