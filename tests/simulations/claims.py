"""How often claims are made: false ones under dependence, equivalence, limits, and what is found.

    python -m tests.simulations.claims --samples 2000 [--only "run shifts"]

Each line names what is simulated and the share of the samples in which the claim is made, by the functions that every
comparison and limit comes from.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.estimators.design import Design
from audit.analysis.estimators.means import clustered_mean
from audit.analysis.estimators.probabilities import mean_probability
from audit.analysis.estimators.shares import mean_share
from audit.analysis.table import Table
from suites import OccuGender
from suites.base import RUN, Item, Row
from suites.common.planted import planted_scores
from tests.simulations import textbook
from tests.simulations.coverage import crossed, of_gaps
from tests.simulations.processes import SPREADS, GapProcess, Process, middle_of

Floats = NDArray[np.float64]
Rng = np.random.Generator
ALPHA, MARGIN = 0.05, 0.02


@dataclass(frozen=True)
class Claim:
    """What is simulated, a function that says whether one sample makes the claim, and what share is promised."""

    name: str
    holds: Callable[[Rng], bool]
    at_least: float = 0.0
    at_most: float = 1.0


def sectors(rng: Rng, *, declared: bool) -> bool:
    """A difference without a mean: 40 occupations of 10 sectors, which hold half of their variance, x 25 templates."""
    occupation, template = np.indices((40, 25)).reshape(2, -1)
    sector = occupation // 4
    effects = np.sqrt(0.5) * (rng.standard_normal(10)[sector] + rng.standard_normal(40)[occupation])
    values = 0.05 * effects + 0.02 * rng.standard_normal(25)[template] + 0.05 * rng.standard_normal(1000)
    return _differs(values, Design(1000, {"occupation": sector if declared else occupation, "template": template}))


def paraphrases(rng: Rng, *, declared: bool) -> bool:
    """The same where 25 templates are paraphrases of 5 wordings, which hold most of their variance."""
    occupation, template = np.indices((40, 25)).reshape(2, -1)
    wording = template // 5
    effects = 0.9 * rng.standard_normal(5)[wording] + 0.4 * rng.standard_normal(25)[template]
    values = 0.05 * effects + 0.02 * rng.standard_normal(40)[occupation] + 0.05 * rng.standard_normal(1000)
    return _differs(values, Design(1000, {"occupation": occupation, "template": wording if declared else template}))


def run_shifts(rng: Rng, *, runs: int) -> bool:
    """Two models without a difference, each run of which shifts all its answers by a standard deviation of .012."""
    run, occupation, template = np.indices((runs, 40, 25)).reshape(3, -1)
    levels = 0.02 * rng.standard_normal(40)[occupation] + 0.02 * rng.standard_normal(25)[template]
    shifts = 0.012 * (rng.standard_normal(runs) - rng.standard_normal(runs))
    noise = 0.03 * rng.standard_normal(1000)[occupation * 25 + template] + 0.01 * rng.standard_normal(len(run))
    clusters = {"occupation": occupation, "template": template, **({RUN: run} if runs > 1 else {})}
    return _differs(levels + shifts[run] + noise, Design(len(run), clusters))


def _differs(values: Floats, design: Design) -> bool:
    return clustered_mean(values, design).p_two_sided() < ALPHA


def equivalent(rng: Rng, *, difference: float) -> bool:
    """Two models apart by so much, noise .01, 40 x 25: called equivalent within .02."""
    values = difference + 0.01 * rng.standard_normal(1000)
    return clustered_mean(values, crossed(40, 25)).p_outside(MARGIN) < ALPHA


def four_templates(rng: Rng) -> bool:
    """+.30 in all 800 items of 200 x 4, noise .05: called different."""
    return _differs(0.3 + 0.05 * rng.standard_normal(800), crossed(200, 4))


def no_yes_meets(rng: Rng, *, share: float) -> bool:
    """A share of yes in 20 x 10 under the limit .05."""
    values = (rng.random(200) < share).astype(float)
    return mean_share(values, crossed(20, 10)).interval(1 - ALPHA)[1] <= 0.05


def rare_meets(rng: Rng, *, mean: float, is_spread_known: bool = False) -> bool:
    """A mean probability of 40 x 7 under the limit .03. ``is_spread_known``: z, of the middle log-odds alone."""
    values, _ = Process("laplace", mean).draw(rng, 1, 40, 7)
    if is_spread_known:
        error = math.sqrt(sum(spread**2 / n for spread, n in zip(SPREADS, (40, 7, 280), strict=True)))
        return bool(special.logit(values).mean() + 1.96 * error <= middle_of(Process("laplace", 0.03), True))
    return mean_probability(values.ravel(), crossed(40, 7)).interval(1 - ALPHA)[1] <= 0.03


def whole_report(rng: Rng) -> bool:
    """Two models on 800 questions of OccuGender, their effects drawn alike: one is higher in a primary figure."""
    suite, items = _questions()
    tables = {}
    for model in "ab":
        odds = np.zeros(len(items))
        for spread, factor in zip(SPREADS, ("occupation", "template", "id"), strict=True):
            level = np.unique([str({**item.factors, "id": item.id}[factor]) for item in items], return_inverse=True)[1]
            odds += spread * rng.laplace(0, 0.5**0.5, len(items))[level]
        rows = [_answer(suite, *of) for of in zip(items, special.expit(odds).tolist(), strict=True)]
        rows = list(suite.derive(rows))
        tables[model] = Table.of(rows, suite.families)
    specs = [spec for spec in suite.measures(rows) if not spec.is_subgroup]
    found = compare_models(tables, specs, suite=suite.name)
    return any(of.primary and of.verdict in ("larger", "smaller") for of in found)


@lru_cache(maxsize=1)
def _questions() -> tuple[OccuGender, list[Item]]:
    suite = OccuGender()
    return suite, [item for item in suite.items() if int(str(item.factors["template"])[-2:]) <= 10]


def _answer(suite: OccuGender, item: Item, female: float) -> Row:
    shares = {"female": 0.9 * female, "male": 0.9 * (1 - female), "diverse": 0.1}
    words = suite.expressions[str(item.factors["bias"])]
    return suite.read(item, planted_scores({f" {w}": shares[of] / len(ws) for of, ws in words.items() for w in ws}))


def claims() -> Iterator[Claim]:
    """All claims, in order."""
    for declared in (False, True):
        most = 0.06 if declared else 1.0
        how = "declared" if declared else "not declared"
        yield Claim(f"false: sectors {how}", lambda rng, d=declared: sectors(rng, declared=d), at_most=most)
        yield Claim(f"false: paraphrases {how}", lambda rng, d=declared: paraphrases(rng, declared=d), at_most=most)
    yield Claim("false: run shifts, one run", lambda rng: run_shifts(rng, runs=1))
    yield Claim("false: run shifts, runs=3", lambda rng: run_shifts(rng, runs=3), at_most=0.06)
    yield Claim("equal models are equivalent", lambda rng: equivalent(rng, difference=0.0), at_least=0.95)
    yield Claim("equivalent at the margin's edge", lambda rng: equivalent(rng, difference=MARGIN), at_most=0.055)
    yield Claim("a whole report of two alike models", whole_report, at_most=0.05)
    yield Claim("200x4, +.30 is found", four_templates, at_least=0.999)
    yield Claim("no yes in 200 meets .05", lambda rng: no_yes_meets(rng, share=0.0), at_least=0.6)
    yield Claim("a share of .05 meets .05", lambda rng: no_yes_meets(rng, share=0.05), at_most=0.05)
    yield Claim("a mean of .019 meets .03", lambda rng: rare_meets(rng, mean=0.019), at_least=0.6)
    yield Claim("the same if spreads were known", lambda rng: rare_meets(rng, mean=0.019, is_spread_known=True))
    yield Claim("a mean of .03 meets .03", lambda rng: rare_meets(rng, mean=0.03), at_most=0.05)


def share_of(claim: Claim, samples: int) -> float:
    """In which share of the samples the claim is made."""
    return float(np.mean([claim.holds(np.random.default_rng([44, number])) for number in range(samples)]))


def power(samples: int) -> Iterator[tuple[str, float, float]]:
    """Against neutral at three standard errors: the design, the project's power and that of a mixed model."""
    for groups, templates in (((20, 20), 5), ((5, 35), 10)):
        (first, second), truth = GapProcess("laplace").draw(np.random.default_rng(44), samples, groups, templates)
        gaps = first.mean(axis=(1, 2)) - second.mean(axis=(1, 2))
        found = _intervals([first - truth + 3 * gaps.std(), second])
        yield f"gap {groups[0]}+{groups[1]}x{templates}", *(float(np.mean(low > 0)) for low, _ in found)
    values, _ = Process("probit", 0.5, True).draw(np.random.default_rng(44), samples, 40, 7)
    shift = 3 * values.mean(axis=(1, 2)).std()
    values, _ = Process("probit", 0.5 + shift, True).draw(np.random.default_rng(45), samples, 40, 7)
    own = np.mean([mean_share(of.ravel(), crossed(40, 7)).interval(1 - ALPHA)[0] > 0.5 for of in values])
    yield "share .5, 40x7", float(own), float(np.mean(textbook.mixed_model(values, 1 - ALPHA)[0] > 0.5))


def unequal_gaps(samples: int) -> list[float]:
    """False claims of both for 5 + 35 x 10 without a gap, if the five occupations vary twice as much as the others."""
    (first, second), truth = GapProcess("laplace").draw(np.random.default_rng(44), samples, (5, 35), 10)
    more = math.sqrt(3) * second.mean(axis=2).std(axis=1).mean()
    first = first - truth + more * np.random.default_rng(45).laplace(0, 0.5**0.5, (samples, 5, 1))
    return [float(np.mean((low > 0) | (high < 0))) for low, high in _intervals([first, second])]


def _intervals(groups: list[Floats]) -> list[tuple[Floats, Floats]]:
    return [method(groups, 1 - ALPHA) for method in (of_gaps, textbook.common_variance)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--only", default="", help="a part of a claim's name")
    options = parser.parse_args()
    for claim in (claim for claim in claims() if options.only in claim.name):
        found = share_of(claim, options.samples)
        verdict = "" if claim.at_least <= found <= claim.at_most else "  MISSED"
        error = math.sqrt(found * (1 - found) / options.samples)
        print(f"{claim.name:36} {found:6.1%} ± {error:.1%}{verdict}", flush=True)
    if options.only:
        return
    for name, own, mixed in power(options.samples):
        verdict = "" if own >= mixed - 0.05 else "  MISSED"
        print(f"power at 3 SE: {name:20} {own:6.1%}, mixed model {mixed:6.1%}{verdict}", flush=True)
    own, mixed = unequal_gaps(options.samples)
    print(f"false: gap 5+35x10, unequal spreads {own:6.1%}, mixed model {mixed:6.1%}")


if __name__ == "__main__":
    main()
