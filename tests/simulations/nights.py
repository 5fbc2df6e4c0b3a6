"""How often a gate that looks every night raises a false alarm, and how soon it finds a real shift.

    python -m tests.simulations.nights --sequences 400

Each sequence is one baseline and a number of nights. What varies by occupation and template, and the baseline's own
noise, are the same every night; sampling noise is new. A night may repeat the one before.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.decisions import Claim, decide
from audit.analysis.estimators import ValueKind, mean_of_kind
from audit.analysis.gate.changes import Change, sums_of
from audit.analysis.gate.limits import limit_verdict
from audit.analysis.gate.over_nights import share_of_look
from audit.analysis.rows.table import Quantity, RowTable
from audit.results import FigureName
from suites.base import IdentifiedInterval, MeasureSpec, Row

ALPHA, MARGIN = 0.05, 0.02
OCCUPATIONS, TEMPLATES = 20, 7
GAP = MeasureSpec("gap", "p", clusters=("occupation", "template"), neutral=0.0, kind="difference", range=(-1.0, 1.0))
PICKS = MeasureSpec("picks", "p", neutral=0.0, kind="share", unit="share")

Values = np.ndarray
#: From a generator of random numbers: the baseline's items, and night → that night's items.
Start = Callable[[np.random.Generator], tuple[Values, Callable[[int], Values]]]


@dataclass(frozen=True)
class Scenario:
    """A kind of figure, and what happens to it."""

    name: str
    spec: MeasureSpec
    start: Start


def scores(shift: float, *, since: int = 1, nightly: float = 0.03) -> Start:
    """Continuous scores, whose true mean is ``shift`` above the baseline's from night ``since`` on."""

    def start(rng: np.random.Generator) -> tuple[Values, Callable[[int], Values]]:
        shape = (OCCUPATIONS, TEMPLATES)
        level = 0.25 + rng.normal(0, 0.05, shape)
        moved = rng.normal(0, 0.01, (OCCUPATIONS, 1)) + rng.normal(0, 0.01, (1, TEMPLATES))
        before = level + rng.normal(0, nightly, shape)

        def night(number: int) -> Values:
            change = shift + moved if number >= since else 0.0
            return level + change + rng.normal(0, nightly, shape)

        return before, night

    return start


def picks(shift: float, *, items: int = 200, share: float = 0.3) -> Start:
    """Sampled answers of yes or no, drawn anew every night."""

    def start(rng: np.random.Generator) -> tuple[Values, Callable[[int], Values]]:
        own = rng.beta(share * 4, (1 - share) * 4, (items, 1))

        def draw(by: float) -> Values:
            return (rng.random((items, 1)) < np.clip(own + by, 0, 1)).astype(float)

        return draw(0.0), lambda number: draw(shift)

    return start


def rows_of(values: Values) -> list[Row]:
    """One row for each (occupation, template)."""
    return [
        Row(f"{o}/{t}", {"occupation": o, "template": t}, {"p": IdentifiedInterval.exact(float(v))})
        for (o, t), v in np.ndenumerate(values)
    ]


def tables_of(nights: Sequence[Values]) -> Iterator[RowTable]:
    """A table for each night: the first from rows, the others put their values in its place, which is faster."""
    first = RowTable(rows_of(nights[0]))
    for values in nights:
        table, column = copy.copy(first), values.ravel()
        table._quantities, table._has = {"p": Quantity(column, column, column)}, {}
        yield table


def changes(scenario: Scenario, nights: int, rng: np.random.Generator) -> Iterator[Change]:
    """The gate's view of each night against one baseline."""
    before, night = scenario.start(rng)
    tables = list(tables_of([before, *map(night, range(1, nights + 1))]))
    pairs = [(0, k) for k in range(1, nights + 1)]
    sums = sums_of(tables, scenario.spec, pairs)
    for difference, total in zip(paired_differences(tables, [scenario.spec], pairs), sums, strict=True):
        difference.margin = MARGIN
        yield Change(FigureName("s", scenario.spec.measure, {}, "m"), scenario.spec.neutral, difference, total)


def is_alarm(difference: PairedDifference, claims: Sequence[Claim], share: float) -> bool:
    """Whether a night's look with this share of the error says that the figure regressed."""
    (decision,) = decide([(difference, [claim.in_look(share) for claim in claims])], ALPHA)
    return decision.outcome == "regressed"


def log_evidence(distances: Values) -> Values:
    """Log of a mixture martingale over the nights, as if their errors were independent: for comparison only.

    ``distances``: each night's change above the margin, in standard errors. A positive normal mixture with unit
    variance (Robbins 1970, Ann. Math. Stat. 41(5)).
    """
    nights = np.arange(1, len(distances) + 1)
    total = np.maximum(np.cumsum(distances), 0.0)
    return total**2 / (2 * (1 + nights)) - np.log1p(nights) / 2


#: By a fixed test every night, by multiplying the nights' evidence, and by sharing the error over the looks.
METHODS = ("fixed", "multiplied", "shared")


def first_alarms(scenario: Scenario, nights: int, rng: np.random.Generator) -> list[int]:
    """The first night with an alarm by each of the methods, 0 for none."""
    alarms: list[list[bool]] = [[], [], []]
    distances = []
    for night, change in enumerate(changes(scenario, nights, rng), 1):
        claims = change.claims(ALPHA)
        alarms[0].append(is_alarm(change.difference, claims, 1.0))
        alarms[2].append(is_alarm(change.difference, claims, share_of_look(night)))
        low, high = change.difference.interval(0.6827)
        distances.append(((low + high) / 2 - MARGIN) / max((high - low) / 2, 1e-9))
    alarms[1] = (log_evidence(np.array(distances)) >= np.log(1 / (ALPHA / 2))).tolist()
    return [of_method.index(True) + 1 if any(of_method) else 0 for of_method in alarms]


def simulate(scenario: Scenario, sequences: int, nights: int, seed: int = 0) -> Values:
    """First alarms (sequences, methods): of each baseline, followed by ``nights`` nights."""
    return np.array([first_alarms(scenario, nights, np.random.default_rng([seed, n])) for n in range(sequences)])


def broken_limits(above: float, nights: int, rng: np.random.Generator, *, anew: bool) -> list[int]:
    """The first night on which a limit counts as broken, by a fixed test and over all nights; 0 for none.

    ``above``: how far the figure lies above its limit. ``anew``: each night asks occupations and templates of its own.
    """
    drawn = nights if anew else 1
    shared = rng.normal(0, 0.05, (OCCUPATIONS, 1, drawn)) + rng.normal(0, 0.05, (1, TEMPLATES, drawn))
    values = 0.25 + above + shared + rng.normal(0, 0.05, (OCCUPATIONS, TEMPLATES, nights))
    clusters = [codes.ravel() for codes in np.indices((OCCUPATIONS, TEMPLATES))]
    estimate = mean_of_kind(values.reshape(-1, nights), clusters, ValueKind(-1.0, 1.0))
    alarms = []
    for shares in (np.ones(nights), np.array([share_of_look(look) for look in range(1, nights + 1)])):
        ends = [
            (estimate.interval(level), estimate.interval_of_sample(level)) for level in (1 - ALPHA * shares).tolist()
        ]
        verdicts = [
            limit_verdict((None, 0.25), *((float(low[k]), float(high[k])) for low, high in intervals))
            for k, intervals in enumerate(ends)
        ]
        alarms.append(verdicts.index("broken") + 1 if "broken" in verdicts else 0)
    return alarms


def simulate_limits(above: float, sequences: int, nights: int, *, anew: bool) -> Values:
    """First alarms (sequences, 2) of `broken_limits`."""
    return np.array([broken_limits(above, nights, np.random.default_rng([7, n]), anew=anew) for n in range(sequences)])


NO_CHANGE = [
    Scenario("scores, no change", GAP, scores(0.0)),
    Scenario("scores, at the margin", GAP, scores(MARGIN)),
    Scenario("sampled yes or no, no change", PICKS, picks(0.0)),
    Scenario("sampled yes or no, at the margin", PICKS, picks(MARGIN)),
]
SHIFTED_AT = 31


def shifted(shift: float) -> Scenario:
    """No change until a shift that stays."""
    return Scenario(f"shift of {shift:g} from night {SHIFTED_AT} on", GAP, scores(shift, since=SHIFTED_AT))


def waits(first: Values) -> Values:
    """Nights from the shift to the alarm, inf where there is none."""
    return np.where(first >= SHIFTED_AT, first - SHIFTED_AT + 1.0, np.inf)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=400)
    parser.add_argument("--nights", type=int, default=100)
    options = parser.parse_args()
    print(f"{options.sequences} baselines, {options.nights} nights each. At least one alarm, by method")
    print(f"  {'':36}" + "".join(f"{method:>12}" for method in METHODS))
    for scenario in NO_CHANGE:
        shares = (simulate(scenario, options.sequences, options.nights) > 0).mean(axis=0)
        print(f"  {scenario.name:36}" + "".join(f"{share:12.1%}" for share in shares), flush=True)
    print("A limit that the figure just keeps, called broken on some night: by a fixed test, over all nights")
    for name, anew in (("the same items every night", False), ("new items every night", True)):
        shares = (simulate_limits(0.0, options.sequences, options.nights, anew=anew) > 0).mean(axis=0)
        print(f"  {name:36}" + "".join(f"{share:12.1%}" for share in shares), flush=True)
    for above in (0.04, 0.06, 0.1):
        found = simulate_limits(above, options.sequences, options.nights, anew=True)[:, 1].astype(float)
        found[found == 0] = np.inf
        median, most = (np.quantile(found, q, method="higher") for q in (0.5, 0.95))
        print(f"  above by {above:<27g}{median:6.0f}{most:6.0f} nights: median, and of 95 in 100", flush=True)
    print("Nights from a shift to the alarm, error shared over the looks: median, and of 95 in 100")
    for shift in (0.04, 0.05, 0.06):
        scenario = shifted(shift)
        found = waits(simulate(scenario, options.sequences, options.nights)[:, 2])
        median, most = (np.quantile(found, q, method="higher") for q in (0.5, 0.95))
        print(f"  {scenario.name:36}{median:6.0f}{most:6.0f}", flush=True)


if __name__ == "__main__":
    main()
