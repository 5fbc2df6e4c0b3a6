"""How often a gate that looks every night raises a false alarm, and how soon it finds a real change.

    python -m tests.simulations.nights --sequences 300

Each sequence is one baseline and 60 nights of one figure. What varies by occupation and template is the same every
night; the noise of items and the shift of a run are new every time anything is asked.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from audit.analysis.estimators.design import Design
from audit.analysis.gate.same_items import noise_of
from audit.analysis.gate.sequence import Look, Noise, shows
from suites.base import MeasureSpec

ALPHA, MARGIN, NIGHTS = 0.05, 0.02, 60


@dataclass(frozen=True)
class Scenario:
    """A kind of figure, and what happens to it.

    ``change`` comes on night ``since``, and differs between occupations and templates by ``uneven`` each. ``noise``:
    of each item, anew in every run; ``shift``: of each run. ``runs`` a night; 1: the shift is not declared.
    """

    name: str
    occupations: int = 20
    templates: int = 7
    change: float = 0.0
    since: int = 30
    noise: float = 0.03
    uneven: float = 0.01
    shift: float = 0.0
    runs: int = 1


SCENARIOS = (
    Scenario("no change, 20x7"),
    Scenario("no change, 40x25", 40, 25),
    Scenario("at the margin's edge, 20x7", change=MARGIN, since=1, uneven=0.0),
    Scenario("at the margin's edge, 40x25", 40, 25, MARGIN, 1, uneven=0.0),
    Scenario("+.03 from night 30, 20x7", change=0.03),
    Scenario("+.03 from night 30, 20x15", 20, 15, 0.03),
    Scenario("+.03 from night 30, 40x25", 40, 25, 0.03),
    Scenario("each run shifts, 3 runs, no change", shift=0.01, runs=3),
    Scenario("each run shifts, 3 runs, at the edge", change=MARGIN, since=1, uneven=0.0, shift=0.01, runs=3),
    Scenario("each run shifts, 3 runs, +.06", change=0.06, shift=0.01, runs=3),
    Scenario("each run shifts, 1 run, no change", shift=0.01),
    Scenario("deterministic, +.03", change=0.03, noise=0.0),
)


def looks(scenario: Scenario, rng: np.random.Generator) -> Iterator[Look]:
    """The nights of one sequence."""
    shape = (scenario.occupations, scenario.templates)
    level = 0.3 + rng.normal(0, 0.1, shape)
    moved = scenario.change + rng.normal(0, scenario.uneven, (shape[0], 1)) + rng.normal(0, scenario.uneven, shape[1:])

    def ask(values: np.ndarray) -> list[np.ndarray]:
        return [
            (values + rng.normal(0, scenario.noise, shape) + rng.normal(0, scenario.shift)).ravel()
            for _ in range(scenario.runs)
        ]

    baseline, spec = ask(level), MeasureSpec("figure", "p")
    for number in range(1, NIGHTS + 1):
        tonight, noise = ask(level + moved if number >= scenario.since else level), Noise()
        if scenario.runs > 1:
            noise = Noise.of_runs([run.mean() for run in baseline], [run.mean() for run in tonight])
        elif scenario.noise:
            noise = noise_of(baseline[0], tonight[0], Design(level.size), spec)
        change = float(np.mean(tonight) - np.mean(baseline))
        yield Look(**asdict(noise), up=change, down=-math.inf, answers=str(number))


def first_alarm(scenario: Scenario, rng: np.random.Generator) -> int | None:
    """The first night of a sequence with an alarm; None if there is none."""
    so_far: list[Look] = []
    for number, look in enumerate(looks(scenario, rng), 1):
        so_far.append(look)
        if shows(so_far, MARGIN, ALPHA):
            return number
    return None


@dataclass(frozen=True)
class Outcome:
    """Shares of a scenario's sequences: with an alarm before the change, found after it; and the median delay."""

    false: float
    found: float
    median: float


def outcome(scenario: Scenario, sequences: int) -> Outcome:
    """What becomes of so many sequences."""
    since = scenario.since if scenario.change > MARGIN else NIGHTS + 1
    alarms = [first_alarm(scenario, np.random.default_rng([44, number])) for number in range(sequences)]
    after = [alarm - since + 1 for alarm in alarms if alarm is not None and alarm >= since]
    false = sum(alarm is not None and alarm < since for alarm in alarms) / sequences
    return Outcome(false, len(after) / sequences, float(np.median(after)) if after else float("nan"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=300)
    options = parser.parse_args()
    for scenario in SCENARIOS:
        found = outcome(scenario, options.sequences)
        print(
            f"{scenario.name:40} false {found.false:6.1%}  found {found.found:6.1%}  median {found.median:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
