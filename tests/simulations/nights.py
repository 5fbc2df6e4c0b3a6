"""How often a gate that looks every night raises a false alarm, and how soon it finds a real shift.

    python -m tests.simulations.nights --sequences 400

Each sequence is one baseline and a number of nights. What varies by occupation and template, and the baseline's own
noise, are the same every night; sampling noise is new. A night may repeat the one before.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from audit.analysis.comparing.differences import paired_differences
from audit.analysis.comparing.paired import PairedDifference
from audit.analysis.decisions import Claim, decide
from audit.analysis.estimators import Estimate, ValueKind, mean_of_kind, unseen_share, with_unseen_share
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


def scores(shift: float, *, since: int = 1, nightly: float = 0.03, templates: int = TEMPLATES) -> Start:
    """Continuous scores, whose true mean is ``shift`` above the baseline's from night ``since`` on."""

    def start(rng: np.random.Generator) -> tuple[Values, Callable[[int], Values]]:
        shape = (OCCUPATIONS, templates)
        level = 0.25 + rng.normal(0, 0.05, shape)
        moved = rng.normal(0, 0.01, (OCCUPATIONS, 1)) + rng.normal(0, 0.01, (1, templates))
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


@dataclass(frozen=True)
class Limited:
    """A figure of items that are others every night, and its true value: the limit is "at most" that.

    ``draw``: values (occupations, templates, k) of a night in k sequences. ``is_same``: every night asks the same
    templates.
    """

    shape: tuple[int, int]
    draw: Callable[[np.random.Generator, tuple[int, int, int]], Values]
    truth: float
    kind: ValueKind
    is_same: bool = False


def _smooth(rng: np.random.Generator, shape: tuple[int, int, int]) -> Values:
    o, t, k = shape
    return 0.25 + rng.normal(0, 0.05, (o, 1, k)) + rng.normal(0, 0.05, (1, t, k)) + rng.normal(0, 0.05, shape)


def _same_templates(rng: np.random.Generator, shape: tuple[int, int, int]) -> Values:
    o, t, k = shape
    of_templates = np.random.default_rng(11).normal(0, 0.05, (1, t, k))
    return 0.25 + rng.normal(0, 0.05, (o, 1, k)) + of_templates + rng.normal(0, 0.05, shape)


def _gap(share: float) -> Callable[[np.random.Generator, tuple[int, int, int]], Values]:
    """This share of the occupations has a gap of -0.9, the others of 0.9."""

    def draw(rng: np.random.Generator, shape: tuple[int, int, int]) -> Values:
        own = np.where(rng.random((shape[0], 1, shape[2])) < share, -0.9, 0.9)
        return np.clip(own + rng.normal(0, 0.03, shape), -1, 1)

    return draw


def _logits(rng: np.random.Generator, shape: tuple[int, int, int]) -> Values:
    own = np.where(rng.random((shape[0], 1, shape[2])) < 0.1, -3.0, 2.5)
    return special.expit(own + rng.normal(0, 0.3, (1, *shape[1:])) + rng.normal(0, 0.3, shape))


def _yes_no(rng: np.random.Generator, shape: tuple[int, int, int]) -> Values:
    return (rng.random(shape) < rng.beta(0.9, 0.1, (shape[0], 1, shape[2]))).astype(float)


_GAPS, _SHARES = ValueKind(-1.0, 1.0), ValueKind(0.0, 1.0, is_probability=True)
SMOOTH = Limited((OCCUPATIONS, TEMPLATES), _smooth, 0.25, _GAPS)
SAME_TEMPLATES = Limited((OCCUPATIONS, 25), _same_templates, 0.25, _GAPS, is_same=True)
#: Mean of expit(centre + normal of variance 0.18).
_OF_LOGITS = 0.1 * 0.0518 + 0.9 * 0.9190
#: A few occupations lie far from the others.
FAR_APART = {
    "smooth": SMOOTH,
    "smooth, the same 25 templates": SAME_TEMPLATES,
    "gap, 10 % of occupations reversed": Limited((OCCUPATIONS, TEMPLATES), _gap(0.1), 0.72, _GAPS),
    "gap, 10 % reversed, 60 x 1": Limited((60, 1), _gap(0.1), 0.72, _GAPS),
    "gap, 2 % reversed, 140 x 1": Limited((140, 1), _gap(0.02), 0.864, _GAPS),
    "probabilities, 10 % reversed": Limited((OCCUPATIONS, TEMPLATES), _logits, _OF_LOGITS, _SHARES),
    "yes or no, alike within occupations": Limited(
        (OCCUPATIONS, TEMPLATES), _yes_no, 0.9, ValueKind(0.0, 1.0, is_count=True, is_probability=True)
    ),
}


def limit_alarms(limited: Limited, above: float, *, sequences: int, nights: int, seed: int = 7) -> Values:
    """The first night (sequences,) on which "at most the truth" counts as broken over all nights, 0 for none.

    ``above``: how far the figure lies above its limit. Occupations and, unless ``fixed``, templates are others every
    night, and the model is the same: each look is at the night's answers, and at those of all nights so far.
    """
    rng = np.random.default_rng(seed)
    o, t = limited.shape
    clusters = [codes.ravel() for codes in np.indices((o, t))]
    bounds, first = (None, limited.truth - above), np.zeros(sequences, dtype=int)
    values: list[Values] = []
    for number in range(1, nights + 1):
        values.append(limited.draw(rng, (o, t, sequences)).reshape(o * t, sequences))
        at = 1 - ALPHA / 2 * share_of_look(number)
        for pool, alpha in {1: (1 - at) / 2, number: ALPHA / 4 * share_of_look(1)}.items():
            night = np.repeat(np.arange(pool), o * t)
            anew = (o, 0) if limited.is_same else (o, t)
            of_pool = [np.tile(codes, pool) + night * size for codes, size in zip(clusters, anew, strict=True)]
            estimate = mean_of_kind(np.concatenate(values[-pool:]), of_pool, limited.kind)
            share = unseen_share([(1.0, n * pool) for n in anew if n > 1], alpha)
            is_broken = _breaks(estimate, bounds, at, share, limited.kind)
            first[(first == 0) & is_broken] = number
    return first


def _breaks(
    estimate: Estimate, bounds: tuple[float | None, float | None], confidence: float, share: float, kind: ValueKind
) -> Values:
    """Whether each column breaks the limit whatever this share of the figure is, of kinds that were not drawn."""
    ends = np.column_stack(estimate.interval(confidence)), np.column_stack(estimate.interval_of_sample(confidence))
    limits = (kind.least, kind.most)
    return np.array(
        [
            limit_verdict(bounds, tuple(whole), with_unseen_share(tuple(sampled), share, limits)) == "broken"
            for whole, sampled in zip(*(end.tolist() for end in ends), strict=True)
        ]
    )


def same_items_alarms(above: float, nights: int, rng: np.random.Generator) -> list[int]:
    """The first night on which a limit counts as broken, by a fixed test and over all nights; 0 for none.

    ``above``: how far the figure lies above its limit. Every night asks the same occupations and templates.
    """
    values = _smooth(rng, (OCCUPATIONS, TEMPLATES, 1)) + above + rng.normal(0, 0.05, (OCCUPATIONS, TEMPLATES, nights))
    clusters = [codes.ravel() for codes in np.indices((OCCUPATIONS, TEMPLATES))]
    estimate = mean_of_kind(values.reshape(-1, nights), clusters, _GAPS)
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


def simulate_limits(above: float, sequences: int, nights: int) -> Values:
    """First alarms (sequences, 2) of `same_items_alarms`."""
    return np.array([same_items_alarms(above, nights, np.random.default_rng([7, n])) for n in range(sequences)])


NO_CHANGE = [
    Scenario("scores, no change", GAP, scores(0.0)),
    Scenario("scores, at the margin", GAP, scores(MARGIN)),
    Scenario("sampled yes or no, no change", PICKS, picks(0.0)),
    Scenario("sampled yes or no, at the margin", PICKS, picks(MARGIN)),
]
SHIFTED_AT = 31


def shifted(shift: float, templates: int = TEMPLATES) -> Scenario:
    """No change until a shift that stays."""
    name = f"shift of {shift:g} from night {SHIFTED_AT} on, {templates} templates"
    return Scenario(name, GAP, scores(shift, since=SHIFTED_AT, templates=templates))


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
    shares = (simulate_limits(0.0, options.sequences, options.nights) > 0).mean(axis=0)
    print(f"  {'the same items every night':36}" + "".join(f"{share:12.1%}" for share in shares), flush=True)
    for name, limited in FAR_APART.items():
        first = limit_alarms(limited, 0.0, sequences=options.sequences, nights=options.nights)
        print(f"  {'new items, ' + name:48}{(first > 0).mean():12.1%}", flush=True)
    for name, limited in (("new templates", SMOOTH), ("the same 25 templates", SAME_TEMPLATES)):
        for above in (0.06, 0.1):
            found = limit_alarms(limited, above, sequences=options.sequences, nights=options.nights).astype(float)
            found[found == 0] = np.inf
            median, most = (np.quantile(found, q, method="higher") for q in (0.5, 0.95))
            print(
                f"  {name}, above by {above:<19g}{median:6.0f}{most:6.0f} nights: median, and of 95 in 100", flush=True
            )
    print("Nights from a shift to the alarm, error shared over the looks: median, and of 95 in 100")
    for templates, shift in itertools.product((TEMPLATES, 15), (0.04, 0.05, 0.06)):
        scenario = shifted(shift, templates)
        found = waits(simulate(scenario, options.sequences, options.nights)[:, 2])
        median, most = (np.quantile(found, q, method="higher") for q in (0.5, 0.95))
        print(f"  {scenario.name:48}{median:6.0f}{most:6.0f}", flush=True)


if __name__ == "__main__":
    main()
