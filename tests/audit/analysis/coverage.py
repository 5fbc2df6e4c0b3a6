"""How often 95 % intervals hold the truth, by simulation: ``python -m tests.audit.analysis.coverage``.

The processes are not those that the estimators assume: Student's, uniform and logistic effects on the log-odds where
the estimator's model is normal, outlier templates, gaps of models that lean to one gender.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special

from audit.analysis.correlations import correlation_interval
from audit.analysis.estimators import Strata, ValueKind, mean_of_kind
from suites import MGBR
from tests.audit.analysis.designs import grid

DESIGNS = ((40, 25), (20, 25), (20, 7), (10, 50), (40, 3), (5, 5))
PROBABILITY = ValueKind(0.0, 1.0, is_probability=True)
GAP = ValueKind(-1.0, 1.0)
CHANGE = ValueKind(-1.0, 1.0, is_change=True)
HALVES = np.array([0.5, 0.5])


class Coverage(NamedTuple):
    """Shares of the intervals that hold the truth, lie above it, and lie below it."""

    process: str
    design: str
    holds: float
    above: float
    below: float


def simulated(reps: int) -> Iterator[Coverage]:
    """Every process and design."""
    for sizes in ((20, 20), (8, 20)):
        for lean in (0.0, 0.2, 0.4):
            yield gap(sizes, lean, reps)
        yield always_he(sizes, reps)
    for centre in (-1, -3, -5):
        for design in DESIGNS:
            yield probability(centre, design, reps)
    for design in ((40, 25), (20, 25)):
        for centre in (-3, -5):
            yield skewed_log_odds(centre, design, reps)
    for design in ((40, 25), (20, 25), (40, 3)):
        yield outlier_templates(design, reps)
    for design in ((40, 25), (20, 7)):
        yield extremes(design, reps)
        yield yes_in_few_occupations(design, reps)
    for name in UNEQUAL:
        yield unequal_clusters(name, reps)
    for share in (0.0, 0.5, 1.0):
        yield bounded(share, reps)
    for is_worst in (False, True):
        yield a_fifth_missing(is_worst, reps)
    for r in (0.0, 0.7, 0.96):
        yield correlation(r, reps)
        yield correlation(r, reps, has_heavy_tails=True)
    for design in ((40, 25), (40, 15), (40, 10)):
        yield change(design, 0.2, reps)
    for design in ((20, 10), (20, 5)):
        yield change(design, 1.0, reps)
    for effects in EFFECTS:
        for act in ("mean", "sum", "strongest"):
            yield lists_of_occupations(effects, act, 2 * reps)


def _counted(process: str, design: object, low: np.ndarray, high: np.ndarray, truth: float) -> Coverage:
    above, below = float((low > truth).mean()), float((high < truth).mean())
    return Coverage(process, str(design), 1 - above - below, above, below)


def gap(sizes: tuple[int, int], lean: float, reps: int) -> Coverage:
    """Half the difference of two groups, of a model that leans to men and follows the stereotype by 0.1."""
    rng = np.random.default_rng(0)
    a, b = grid(sum(sizes), 25)
    strata = Strata(np.repeat([0, 1], sizes)[a], HALVES)
    sign = np.where(strata.codes == 0, -1.0, 1.0)[:, None]
    y = 0.1 + sign * (lean + rng.uniform(-0.1, 0.1, (25, reps))[b]) + rng.uniform(-0.15, 0.15, (25, reps))[b]
    y += rng.laplace(0, 0.07, (sum(sizes), reps))[a] + rng.laplace(0, 0.05, (len(a), reps))
    low, high = mean_of_kind(np.clip(y, -1, 1), [a, b], GAP, strata).interval(0.95)
    return _counted(f"gap, lean {lean}", f"{sizes[0]}+{sizes[1]} x 25", low, high, 0.1)


#: Numbers of items of clusters.
UNEQUAL: Mapping[str, np.ndarray] = {
    "one of 20 has 30 %": np.r_[163, np.full(19, 20)],
    "one of 40 has 30 %": np.r_[334, np.full(39, 20)],
    "40, as 1 / rank": np.maximum(1, (200 / np.arange(1, 41) ** 1.2).astype(int)),
    "9 kinds of CrowS-Pairs": np.array([516, 262, 172, 159, 105, 87, 84, 63, 60]),
}


def unequal_clusters(name: str, reps: int) -> Coverage:
    """Probabilities whose clusters differ in size."""
    rng, sizes = np.random.default_rng(5), UNEQUAL[name]
    codes = np.repeat(np.arange(len(sizes)), sizes)
    y = 0.5 + rng.laplace(0, 0.05, (len(sizes), reps))[codes] + rng.uniform(-0.15, 0.15, (len(codes), reps))
    low, high = mean_of_kind(y, [codes], PROBABILITY).interval(0.95)
    return _counted("unequal clusters", name, low, high, 0.5)


def always_he(sizes: tuple[int, int], reps: int) -> Coverage:
    """A model that says "he" whatever is asked, but for 1 % of the items: it has no gap."""
    rng = np.random.default_rng(1)
    a, b = grid(sum(sizes), 25)
    strata = Strata(np.repeat([0, 1], sizes)[a], HALVES)
    y = np.where(strata.codes == 0, -1.0, 1.0)[:, None] * np.where(rng.random((len(a), reps)) < 0.01, -1, 1)
    kind = ValueKind(-1.0, 1.0, is_count=True)
    low, high = mean_of_kind(y, [a, b], kind, strata).interval(0.95)
    return _counted("always he", f"{sizes[0]}+{sizes[1]} x 25", low, high, 0.0)


def _log_odds(rng: np.random.Generator, occupations: int, templates: int, reps: int) -> tuple[np.ndarray, ...]:
    a, b = grid(occupations, templates)
    y = rng.standard_t(8, (occupations, reps))[a] + rng.uniform(-1.2, 1.2, (templates, reps))[b]
    return y + rng.logistic(0, 0.3, y.shape), a, b


@cache
def _mean_probability(centre: float) -> float:
    rng = np.random.default_rng(2)
    n = 4_000_000
    y = rng.standard_t(8, n) + rng.uniform(-1.2, 1.2, n) + rng.logistic(0, 0.3, n)
    return float(special.expit(centre + y).mean())


def probability(centre: float, design: tuple[int, int], reps: int) -> Coverage:
    """Mean probability of occupations × templates."""
    y, a, b = _log_odds(np.random.default_rng(3), *design, reps)
    low, high = mean_of_kind(special.expit(centre + y), [a, b], PROBABILITY).interval(0.95)
    return _counted(f"probability, mean log-odds {centre}", design, low, high, _mean_probability(centre))


def skewed_log_odds(centre: float, design: tuple[int, int], reps: int) -> Coverage:
    """Mean probability of occupations whose log-odds have one long tail (Gumbel's), upwards."""
    rng = np.random.default_rng(11)
    a, b = grid(*design)
    far = rng.gumbel(-np.euler_gamma, 1, 1_000_000) + rng.uniform(-1.2, 1.2, 1_000_000)
    y = rng.gumbel(-np.euler_gamma, 1, (design[0], reps))[a] + rng.uniform(-1.2, 1.2, (design[1], reps))[b]
    low, high = mean_of_kind(special.expit(centre + y), [a, b], PROBABILITY).interval(0.95)
    return _counted(f"skewed log-odds around {centre}", design, low, high, float(special.expit(centre + far).mean()))


def outlier_templates(design: tuple[int, int], reps: int) -> Coverage:
    """One template in ten raises the probability of everything by 0.3. Of few templates, none may be one."""
    rng = np.random.default_rng(4)
    a, b = grid(*design)
    outlier = np.where(rng.random((design[1], reps)) < 0.1, 0.3, 0.0)
    y = 0.3 + outlier[b] + rng.uniform(-0.1, 0.1, (design[0], reps))[a] + rng.uniform(-0.1, 0.1, (len(a), reps))
    low, high = mean_of_kind(y, [a, b], PROBABILITY).interval(0.95)
    return _counted("outlier templates", design, low, high, 0.33)


def _between(process: str, low: np.ndarray, high: np.ndarray, clusters: list[np.ndarray]) -> Coverage:
    """Of means between those of items at their lower and at their upper bounds; the true mean is 0.3."""
    ends = [mean_of_kind(bound, clusters, PROBABILITY).interval(0.95) for bound in (low, high)]
    return _counted(process, (20, 25), ends[0][0], ends[1][1], 0.3)


def _answers_at_03(seed: int, reps: int) -> tuple[np.random.Generator, np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    a, b = grid(20, 25)
    y = 0.3 + rng.laplace(0, 0.05, (20, reps))[a] + rng.uniform(-0.1, 0.1, (25, reps))[b]
    return rng, np.clip(y + rng.uniform(-0.1, 0.1, y.shape), 0, 1), [a, b]


def bounded(share: float, reps: int) -> Coverage:
    """A share of the items is known only by bounds, up to 0.02 apart, as of servers that list the top tokens."""
    rng, y, clusters = _answers_at_03(8, reps)
    room = np.where(rng.random(y.shape) < share, rng.uniform(0, 0.02, y.shape), 0.0)
    low = np.clip(y - room * rng.random(y.shape), 0, 1)
    return _between(f"bounded, {share:.0%} of the items", low, np.minimum(low + room, 1.0), clusters)


def a_fifth_missing(is_worst: bool, reps: int) -> Coverage:
    """A fifth of the answers is missing, at random or the highest ones; each may be anything."""
    rng, y, clusters = _answers_at_03(9, reps)
    rank = y if is_worst else rng.random(y.shape)
    missing = rank > np.quantile(rank, 0.8, axis=0)
    name = f"a fifth missing, {'the worst' if is_worst else 'at random'}"
    return _between(name, np.where(missing, 0.0, y), np.where(missing, 1.0, y), clusters)


def extremes(design: tuple[int, int], reps: int) -> Coverage:
    """Probabilities from 0 to 1: each occupation's own is anywhere, most of them near an end."""
    rng = np.random.default_rng(5)
    a, b = grid(*design)
    y = np.clip(rng.beta(0.5, 0.5, (design[0], reps))[a], 1e-6, 1 - 1e-6)
    y = special.expit(special.logit(y) + rng.uniform(-1, 1, (design[1], reps))[b])
    low, high = mean_of_kind(y, [a, b], PROBABILITY).interval(0.95)
    return _counted("from 0 to 1", design, low, high, 0.5)


def yes_in_few_occupations(design: tuple[int, int], reps: int) -> Coverage:
    """A yes in 2 %, nearly all of them of a few occupations: of 40, none of them may be in the sample."""
    rng = np.random.default_rng(10)
    a, b = grid(*design)
    y = (rng.random((len(a), reps)) < rng.beta(0.02, 0.98, (design[0], reps))[a]).astype(float)
    low, high = mean_of_kind(y, [a, b], ValueKind(0.0, 1.0, is_count=True, is_probability=True)).interval(0.95)
    return _counted("yes in few occupations", design, low, high, 0.02)


def correlation(r: float, reps: int, *, has_heavy_tails: bool = False) -> Coverage:
    """Of 40 occupations with their shares of women, which have two peaks; the rest is uniform, or has heavy tails."""
    rng = np.random.default_rng(6)
    ends = []
    for _ in range(reps):
        share = rng.beta(0.7, 0.7, 40)
        of_share, noise = (share - 0.5) / np.sqrt(0.25 / 2.4), rng.uniform(-np.sqrt(3), np.sqrt(3), 40)
        if has_heavy_tails:
            noise = rng.standard_t(5, 40) / np.sqrt(5 / 3)
        ends.append(correlation_interval(r * of_share + np.sqrt(1 - r * r) * noise, share, 0.95))
    low, high = np.array(ends).T
    return _counted(f"correlation {r}{', heavy tails' * has_heavy_tails}", "40", low, high, r)


def change(design: tuple[int, int], of_occupations: float, reps: int) -> Coverage:
    """The difference of two models whose occupations and templates differ by exponential effects: few by much.

    ``of_occupations``: the standard error that the occupations add, as a multiple of the templates'.
    """
    rng = np.random.default_rng(8)
    a, b = grid(*design)
    occupations, templates = design
    own = of_occupations * (occupations / templates) ** 0.5
    y = own * (rng.exponential(1, (occupations, reps)) - 1)[a] + (rng.exponential(1, (templates, reps)) - 1)[b]
    y += rng.normal(0, 0.4, y.shape)
    low, high = mean_of_kind(0.01 * y, [a, b], CHANGE).interval(0.95)
    name = "both" if of_occupations == 1 else "mostly templates"
    return _counted(f"difference, exponential effects, {name}", design, low, high, 0.0)


#: Effects (G, k) of new occupations on the log-odds, of mean 0.
EFFECTS: Mapping[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "weak": lambda rng, shape: rng.normal(0, 0.3, shape),
    "normal": lambda rng, shape: rng.normal(0, 1, shape),
    "exponential": lambda rng, shape: rng.exponential(1, shape) - 1,
    "a few strong": lambda rng, shape: np.where(rng.random(shape) < 0.15, 2.0, -0.35),
}


@cache
def _occupations_of_lists() -> np.ndarray:
    """Whether each of MGBR's 1,000 lists (n) has each occupation (k)."""
    lists = [instance.stereotyped["female"] for instance in MGBR(conditions=["zero-shot"]).design.instances]
    names = sorted({word for of_one in lists for word in of_one})
    return np.array([[float(name in of_one) for name in names] for of_one in lists])


def lists_of_occupations(effects: str, act: str, reps: int) -> Coverage:
    """A bias score over new occupations: 1,000 lists as MGBR draws them, which share all of their occupations."""
    belongs = _occupations_of_lists()
    lists, names = belongs.shape
    rng = np.random.default_rng(7)
    scores = _bias_scores(rng, belongs, EFFECTS[effects](rng, (names, reps)), act)
    kind = ValueKind(-1.0, 1.0, is_count=True)
    low, high = mean_of_kind(scores, [np.arange(lists)], kind, belongs=belongs).interval(0.95)
    truth = _bias_scores(rng, belongs, EFFECTS[effects](rng, (names, 4000)), act).mean()
    return _counted(f"lists, {effects} effects", act, low, high, float(truth))


def _bias_scores(rng: np.random.Generator, belongs: np.ndarray, effect: np.ndarray, act: str) -> np.ndarray:
    """Right without occupations minus right with them (n, k); both depend on the list's length, and on each other."""
    own = belongs.sum(axis=1)[:, None]
    if act == "strongest":
        together = np.stack([effect[of_one > 0].max(axis=0) for of_one in belongs])
    else:
        together = belongs @ effect / (own if act == "mean" else 5.5)
    shared, alone = rng.random((2, len(belongs), effect.shape[1]))
    also = np.where(rng.random(shared.shape) < 0.5, shared, alone)
    without = shared < special.expit(1.0 + 0.05 * (own - 5.5))
    return without - (also < special.expit(0.5 - 0.1 * (own - 5.5) - 1.2 * together)).astype(float)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=2000, help="samples of each process and design")
    print("| process | design | holds the truth | lies above it | lies below it |\n|---|---|---|---|---|")
    for row in simulated(parser.parse_args().reps):
        shares = " | ".join(f"{100 * share:.1f} %" for share in row[2:])
        print(f"| {row.process} | {row.design} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
