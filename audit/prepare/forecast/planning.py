"""What differences an audit's items detect, how many items a given difference takes, and what these cost.

One formula (`audit.analysis.power`) from the variance components of an earlier run, or of models that differ as usual.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from audit.analysis.power import Planned
from audit.collect.sample import items_behind, leading_specs, levels_behind, sample_of
from audit.config import AuditConfig
from audit.prepare.forecast.estimate import dry_run_audit
from audit.prepare.resolve import suite_items
from audit.results import AuditResult, FigureName, VarianceComponents, where_key
from audit.store import Store
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec, Suite

#: Chance of even one false claim among a suite's primary figures and pairs of models.
ALPHA = 0.05
#: Standard deviation, as a part of the range of values, of what two models differ by between the levels of a factor,
#: and between combinations: as for SmolLM2-135M and Gemma 3 270M in `OccuGender` (0.16 to 0.18 of a gap, -1 to 1).
_USUAL = 0.085
#: Sizes of a sample that are tried, as parts of the suite; and how many times a suite's levels at most.
_PARTS, _MOST_TIMES = 20, 10_000.0


class FigurePlan(BaseModel):
    """What one primary mean's items detect, and how many a difference takes.

    Attributes
    ----------
    basis : str
        What the variances are of.
    alpha : float
        Level of the test: Bonferroni's share of 5 % for one of the suite's primary figures and one pair of models.
    levels, items
        The levels of each sampled factor (or of its family), and the items, of what is asked.
    detects : float
        The smallest difference that these detect with 80 % power; inf if none that the figure can have.
    limit : int or None
        The suite's items that detect the given difference: what ``limit`` then is. None without one, or if all the
        suite's items are too few.
    needed : dict
        Where they are: the levels of each factor that detect it. Empty otherwise.
    """

    suite: str
    figure: str
    basis: str
    alpha: float
    levels: dict[str, int]
    items: int
    detects: float
    limit: int | None = None
    needed: dict[str, int] = {}


class ModelCost(BaseModel):
    """What the planned items cost for one model, with at most as many follow-ups as there may be.

    ``seconds`` is None if unknown, ``cost`` if there are no prices.
    """

    model: str
    requests: int
    seconds: float | None
    cost: float | None


class SamplePlan(BaseModel):
    """The items that detect a difference of ``detect``, by figure, and the cost of the most that a suite needs.

    Without ``detect``: what all of the suites' items detect, and their cost.
    """

    detect: float | None
    run_id: str
    figures: list[FigurePlan]
    costs: list[ModelCost]


class _Figure(NamedTuple):
    suite: str
    of: Suite
    spec: MeasureSpec
    alpha: float


async def plan_audit(audit: AuditConfig, detect: float | None = None, run_id: str = "last") -> SamplePlan:
    """The items that detect a difference of ``detect`` in each primary mean; without it, what all items detect.

    Raises
    ------
    ConfigError
        If ``detect`` is not above 0, or the store has no run with variance components of the audit's suites.
    """
    if detect is not None and not detect > 0:
        raise ConfigError("--detect", detect, "no difference", "Give a number above 0, e.g. 0.02")
    if not audit.db.exists():
        raise ConfigError("db", str(audit.db), "no such store", "Run the audit with --limit first: that is the pilot")
    with Store.open(audit.db, read_only=True) as store:
        pilot = store.runs.finished_result(store.runs.find(run_id))
    found = _by_figure(pilot)
    figures = []
    for one in _primary_means(audit):
        if components := found.get((one.suite, one.spec.measure, where_key(one.spec.where))):
            figures.append(_planned(one, list(one.of.items()), components, audit.seed, detect))
    if not figures:
        raise ConfigError(
            "--run", pilot.run_id, "holds no variance components of this audit's suites", "Run it once more"
        )
    return SamplePlan(detect=detect, run_id=pilot.run_id, figures=figures, costs=await _costs(audit, figures))


def sample_power(audit: AuditConfig) -> list[FigurePlan]:
    """For each primary mean, the smallest difference that the audit's items can detect."""
    found: Mapping[Any, list[VarianceComponents]] = {}
    if audit.db.exists():
        with Store.open(audit.db, read_only=True) as store:
            results = (store.runs.result(run.id) for run in store.runs.all())
            last = next((result for result in results if result is not None and result.components), None)
            found = {} if last is None else _by_figure(last)
    asked = {name: suite_items(name, suite, audit)[0] for name, suite in audit.suites.items()}
    return [
        _planned(
            one, asked[one.suite], found.get((one.suite, one.spec.measure, where_key(one.spec.where)), []), 0, None
        )
        for one in _primary_means(audit)
    ]


def _by_figure(result: AuditResult) -> dict[Any, list[VarianceComponents]]:
    found: dict[Any, list[VarianceComponents]] = {}
    for one in result.components:
        found.setdefault((one.suite, one.measure, where_key(one.where)), []).append(one)
    return found


def _primary_means(audit: AuditConfig) -> Iterator[_Figure]:
    pairs = max(1, math.comb(len(audit.models), 2))
    for name, suite in audit.suites.items():
        primary = [spec for spec in leading_specs(suite) if spec.primary]
        for spec in primary:
            if spec.estimator == "mean":
                yield _Figure(name, suite, spec, ALPHA / (len(primary) * pairs))


def _planned(
    one: _Figure, items: Sequence[Item], components: Sequence[VarianceComponents], seed: int, detect: float | None
) -> FigurePlan:
    """The plan of a figure; ``items`` are those that are asked, or all where a difference is to be detected."""
    planned, basis = _variances(one, items, components)
    levels, n = levels_behind(items, one.spec, one.of.families), len(items_behind(items, one.spec))
    finds, (low, high) = planned.detects(levels, n, one.alpha), one.spec.limits
    if finds > high - low:  # no two models differ by so much
        finds = math.inf
    plan = FigurePlan(
        suite=one.suite,
        figure=str(FigureName(one.suite, one.spec.measure, one.spec.where, labels=one.of.shown.level_labels)),
        basis=basis,
        alpha=one.alpha,
        levels=levels,
        items=n,
        detects=finds,
        limit=len(items) if detect is None else None,
    )
    if detect is None:
        return plan
    if finds <= detect:
        return plan.model_copy(update={"limit": _fewest(one, items, planned, seed, detect)})
    times = _times(planned, levels, n, one.alpha, detect)
    return plan.model_copy(
        update={"needed": {name: math.ceil(times * of) for name, of in levels.items()} if times else {}}
    )


def _variances(one: _Figure, items: Sequence[Item], components: Sequence[VarianceComponents]) -> tuple[Planned, str]:
    """The variances of the least precise difference: of a pair of models, or else of two unrelated ones.

    Models that gave the same answers throughout say nothing of how others differ.
    """
    components = [found for found in components if any(found.in_figure.values())]
    pairs = [found for found in components if found.against is not None]
    candidates = [(Planned.of(found, 1.0 if pairs else 2.0), found) for found in pairs or components]
    if candidates:
        planned, found = max(candidates, key=lambda pair: pair[0].detects(pair[1].levels, pair[1].n_items, one.alpha))
        if found.against is not None:
            return planned, f"between {found.against} and {found.model}, item by item"
        return planned, f"between two models like {found.model} with unrelated answers: the worst case"
    low, high = one.spec.limits
    width = high - low if math.isfinite(high - low) else math.nan
    variance = (_USUAL * width) ** 2
    of_item = (width / 2) ** 2 if one.spec.from_counts else variance
    factors = levels_behind(items, one.spec, one.of.families)
    return Planned(dict.fromkeys(factors, variance), of_item), ""


def _fewest(one: _Figure, items: Sequence[Item], planned: Planned, seed: int, detect: float) -> int:
    """The size of the smallest sample that detects it, in steps of a twentieth of the suite."""
    sample = sample_of(one.of, items, seed)
    for part in range(1, _PARTS):
        taken = sample.take(max(math.ceil(len(items) * part / _PARTS), min(sample.smallest, len(items))))
        levels = levels_behind(taken, one.spec, one.of.families)
        if planned.detects(levels, len(items_behind(taken, one.spec)), one.alpha) <= detect:
            return len(taken)
    return len(items)


def _times(planned: Planned, levels: Mapping[str, int], n: int, alpha: float, detect: float) -> float | None:
    """How many times as many levels of each factor detect it; None if no number does."""

    def finds(times: float) -> bool:
        more = {name: times * of for name, of in levels.items()}
        return planned.detects(more, n * times ** max(len(levels), 1), alpha) <= detect

    if not finds(_MOST_TIMES):
        return None
    low, high = 1.0, _MOST_TIMES
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if finds(middle) else (middle, high)
    return high


async def _costs(audit: AuditConfig, figures: Sequence[FigurePlan]) -> list[ModelCost]:
    """The cost of the most items that each suite needs, with follow-ups, at the speed of the store."""
    wanted: dict[str, int] = {}
    for one in figures:
        wanted[one.suite] = max(wanted.get(one.suite, 0), one.limit or one.items)
    with tempfile.TemporaryDirectory() as folder:
        asked = audit.only(suites=list(wanted), db=Path(folder, "empty.db"))
        estimate = await dry_run_audit(asked, timed_by=audit.db)
    found = []
    for model in estimate.models:
        part = min(sum(wanted.values()) / model.items, 1.0)
        requests = math.ceil(part * (model.requests + model.follow_ups))
        seconds, cost = (None if whole is None else part * whole for whole in (model.seconds, model.cost))
        found.append(ModelCost(model=model.model, requests=requests, seconds=seconds, cost=cost))
    return found
