"""Sample size: from a pilot's variance components to a design that detects a given difference, and its cost."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from audit.analysis.components import Components
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.power import Design, smallest_found, with_pilot_error
from audit.collect import items_behind, leading_specs, levels_behind, levels_by_stratum
from audit.config import AuditConfig
from audit.prepare.forecast.designs import ALPHA, basis_of, by_figure, found_with, is_flat, thinned
from audit.prepare.forecast.estimate import ModelEstimate, dry_run_audit
from audit.results import AuditResult, FigureName, VarianceComponents, where_key
from audit.store import Store
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec

#: The range of designs that is searched: levels of a factor, and draws per question.
_LEAST_LEVELS, _MOST_LEVELS = 5, 100_000
_DRAWS = (1, 2, 4, 8, 16)


class FigurePlan(BaseModel):
    """The design that one figure needs.

    Attributes
    ----------
    basis : str
        Whose variance components the plan rests on.
    alpha : float
        Level of the test: Bonferroni's share of 5 % for one of the suite's primary figures and one pair of models,
        which is what Holm's correction demands of the first claim.
    minimum_detectable_effect : float
        The smallest difference that the pilot's own design detects with 80 % power at ``alpha``; inf if none. By the
        components as they were estimated; where a difference was given, by those that the design rests on, so that
        what detects it is what the plan needs.
    whole_suite : float, optional
        The same for all of the suite's items. None if the components are not of factors that the items have.
    levels, draws : optional
        A small design that detects the given difference, allowing for the estimation error of the components
        (`audit.analysis.power`), with strata (the levels of ``stratum``) of equal size, unless it ``is_whole_suite``.
        None if no design does, or where no difference was given.
    items : int, optional
        The figure's items for each model in that design, or all that the suite has where no difference was given.
    limit : int, optional
        The suite's items that hold so many of this figure: what ``limit`` then is, while all its figures are asked.
    available, fewest : dict
        The levels that the suite has, and those of the stratum that has fewest: a design within these is preferred.
    lacking : dict
        How many levels of each factor the design needs beyond those that the suite has.
    pilot_too_small : bool
        Whether the pilot has fewer levels of a factor than decide anything: it then says nothing of how they vary, and
        no design is planned.
    alike : bool
        Whether the pilot's values, or differences of two models, do not differ: then nothing can be planned from them.
    """

    suite: str
    figure: str
    basis: str
    alpha: float
    pilot_levels: dict[str, int]
    minimum_detectable_effect: float
    whole_suite: float | None
    levels: dict[str, int] | None
    draws: int | None
    items: int | None
    limit: int | None
    stratum: str | None = None
    available: dict[str, int] = {}
    fewest: dict[str, int] = {}
    lacking: dict[str, int] = {}
    is_whole_suite: bool = False
    pilot_too_small: bool = False
    alike: bool = False


class ModelCost(BaseModel):
    """What the planned items cost for one model, with at most as many follow-ups as there may be.

    ``seconds`` is None if unknown, ``cost`` if there are no prices.
    """

    model: str
    requests: int
    seconds: float | None
    cost: float | None


class SamplePlan(BaseModel):
    """The designs that detect a difference of ``detect``, by figure, and the cost of the largest one of each suite.

    Without ``detect``: what all of the suites' items detect, and their cost. ``not_planned``: suites of which the pilot
    holds no variance components.
    """

    detect: float | None
    run_id: str
    figures: list[FigurePlan]
    costs: list[ModelCost]
    not_planned: list[str] = []


async def plan_audit(audit: AuditConfig, detect: float | None = None, run_id: str = "last") -> SamplePlan:
    """The designs that detect a difference of ``detect`` in each primary figure; without it, what all items detect.

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
    components = by_figure(pilot.components, audit)
    primaries = Counter(suite for suite, *_ in components)
    pairs = max(1, math.comb(len(audit.models), 2))
    for suite in primaries:
        compared = [one for one in pilot.comparisons if one.suite == suite and one.primary and one.p is not None]
        tested = {(one.measure, where_key(one.where)) for one in compared}
        own = sum(spec.primary for spec in leading_specs(audit.suites[suite]))  # a pilot that was stopped lacks some
        primaries[suite] = max(primaries[suite], len(tested), own)
    items = {name: list(audit.suites[name].items()) for name in primaries}
    figures = [
        _figure_plan(pilot, of_figure, detect, ALPHA / (primaries[suite] * pairs), items[suite])
        for (suite, *_), of_figure in components.items()
    ]
    if not figures:
        raise ConfigError(
            "--run", pilot.run_id, "holds no variance components of this audit's suites", "Run the audit once more"
        )
    return SamplePlan(
        detect=detect,
        run_id=pilot.run_id,
        figures=figures,
        costs=await _costs(audit, figures),
        not_planned=[name for name in audit.suites if name not in primaries],
    )


def _figure_plan(
    pilot: AuditResult,
    of_figure: Sequence[VarianceComponents],
    detect: float | None,
    alpha: float,
    all_items: Sequence[Item],
) -> FigurePlan:
    found, one, basis = basis_of(of_figure)
    place = one.suite, one.measure, where_key(one.where)
    spec = next((m.spec for m in pilot.measures if (m.suite, m.measure, where_key(m.where)) == place), None)
    is_count = spec is not None and spec.from_counts
    suite = _SuiteLevels.of(spec, all_items, one.levels)
    design, is_whole = None, False
    asked = Design(one.levels, uneven=one.uneven)
    too_small = asked.fewest < FEWEST_CLUSTERS
    of = found
    if detect is not None and not is_flat(found) and not too_small:
        of = careful = with_pilot_error(found, one.levels, detect, one.n_items, uneven=one.uneven)
        design = needed(careful, detect, alpha, is_count=is_count, available=suite.in_equal_groups)
        if design is not None:
            design = suite.even(design[0]), design[1]
            if suite.lacking(design[0]) and spec is not None:  # unequal groups may hold enough
                finds = found_with(spec, all_items, careful, alpha)
                is_whole = finds is not None and finds <= detect
                design = (suite.available, 1) if is_whole else design
    (info,) = [info for info in pilot.suites if info.name == one.suite]
    shared = None if spec is None else spec.membership
    if shared is not None:  # a membership has no variance component of its own
        basis += f"; for the same {shared}s, new ones take more"
    items = limit = None
    if design is not None and not is_whole:
        items = math.prod(design[0].values()) * design[1]
        limit = math.ceil(items * info.n_items / one.n_items)
    elif spec is not None and (is_whole or detect is None):
        items, limit = len(items_behind(all_items, spec)), len(all_items)
    return FigurePlan(
        suite=one.suite,
        figure=str(FigureName(one.suite, one.measure, one.where)),
        basis=basis,
        alpha=alpha,
        pilot_levels=one.levels,
        minimum_detectable_effect=math.inf
        if is_flat(found)
        else smallest_found(thinned(of, asked, one.n_items), asked, alpha=alpha, is_count=is_count),
        whole_suite=None if spec is None or too_small else found_with(spec, all_items, of, alpha),
        levels=None if design is None else design[0],
        draws=None if design is None else design[1],
        items=items,
        limit=limit,
        stratum=None if spec is None else spec.stratum,
        available=suite.available,
        fewest=suite.fewest,
        lacking={} if design is None or is_whole else suite.lacking(design[0]),
        is_whole_suite=is_whole,
        pilot_too_small=too_small,
        alike=is_flat(found),
    )


class _SuiteLevels(NamedTuple):
    """The levels that a suite has of each sampled factor, and of those that are nested in strata by stratum."""

    available: dict[str, int]
    nested: dict[str, list[int]]

    @classmethod
    def of(cls, spec: MeasureSpec | None, items: Sequence[Item], factors: Collection[str]) -> _SuiteLevels:
        if spec is None:
            return cls({}, {})
        behind, strata = levels_behind(items, spec), levels_by_stratum(items, spec)
        available = {name: behind[name] for name in factors if name in behind}
        return cls(available, {name: [*strata[name].values()] for name in available if None not in strata[name]})

    @property
    def fewest(self) -> dict[str, int]:
        """The levels of the smallest stratum, where strata have unequal numbers of them."""
        return {name: min(of) for name, of in self.nested.items() if len(set(of)) > 1}

    @property
    def in_equal_groups(self) -> dict[str, int]:
        """As many as all strata have equally many of."""
        return self.available | {name: min(of) * len(of) for name, of in self.nested.items()}

    def even(self, levels: Mapping[str, int]) -> dict[str, int]:
        """The levels, more where a factor's cannot be divided evenly over its strata."""
        parts = {name: len(self.nested.get(name, [n])) for name, n in levels.items()}
        return {name: math.ceil(n / parts[name]) * parts[name] for name, n in levels.items()}

    def lacking(self, levels: Mapping[str, int]) -> dict[str, int]:
        """How many more of each factor it takes for these levels, in strata of equal size."""
        more = {}
        for name, n in levels.items():
            have = self.nested.get(name, [self.available.get(name, n)])
            more[name] = sum(max(0, n // len(have) - own) for own in have)
        return {name: n for name, n in more.items() if n}


def needed(
    found: Components,
    detect: float,
    alpha: float = ALPHA,
    *,
    is_count: bool = False,
    available: Mapping[str, int] | None = None,
) -> tuple[dict[str, int], int] | None:
    """Levels of each factor and draws of each question that detect a difference of ``detect``; None if none do.

    Starts from the design with the fewest items by the formula, and enlarges it until the comparison's own test has
    the power too. A design within the ``available`` levels is preferred.
    """
    for most in ([dict(available)] if available else []) + [{}]:
        design = _by_formula(found, detect, alpha, most)
        while design is not None:
            levels, draws = design
            finds = smallest_found(found, Design(levels, draws), alpha=alpha, is_count=is_count)
            if finds <= detect:
                return design
            times = max(1.05, min(1.5, 1 + (finds / detect - 1) / 2))
            larger = {name: min(math.ceil(n * times), most.get(name, _MOST_LEVELS)) for name, n in levels.items()}
            design = None if larger == levels else (larger, draws)
    return None


def _by_formula(
    found: Components, detect: float, alpha: float, most: Mapping[str, int]
) -> tuple[dict[str, int], int] | None:
    """The smallest design that detects it with at most ``most`` levels of each factor; None if none does."""
    names = list(found.factors)
    designs = []
    for draws in _DRAWS if found.sampling else (1,):
        # The number of levels of the first factor follows from those of the others, which grow together.
        others = [{name: min(n, most.get(name, n)) for name in names[1:]} for n in _grid()] if len(names) > 1 else [{}]
        for fixed in others:
            first = _least(found, names[0], fixed, (draws, alpha), detect)
            if first is not None and first <= most.get(names[0], first):
                designs.append(({names[0]: first, **fixed}, draws))
    return min(designs, key=lambda design: math.prod(design[0].values()) * design[1], default=None)


def _grid() -> Iterator[int]:
    n = float(_LEAST_LEVELS)
    while n <= _MOST_LEVELS:
        yield round(n)
        n = max(n + 1, n * 1.1)


def _least(
    found: Components, name: str, fixed: Mapping[str, int], asked: tuple[int, float], detect: float
) -> int | None:
    """The fewest levels of a factor that detect it while the others are fixed; None if none do.

    ``asked``: the draws of each question, and the level of the test.
    """
    draws, alpha = asked

    def finds(n: int) -> bool:
        return found.minimum_detectable_effect({name: n, **fixed}, repeats=draws, alpha=alpha) <= detect

    if not finds(_MOST_LEVELS):
        return None
    low, high = _LEAST_LEVELS - 1, _MOST_LEVELS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    return high


async def _costs(audit: AuditConfig, figures: Sequence[FigurePlan]) -> list[ModelCost]:
    """The cost of each suite's largest design: what the suites ask now, with follow-ups, at the speed of the store."""
    wanted: dict[str, int] = {}
    for one in figures:
        wanted[one.suite] = max(wanted.get(one.suite, 0), one.limit or 0)
    items = sum(wanted.values())
    with tempfile.TemporaryDirectory() as folder:
        asked = audit.only(suites=list(wanted), db=Path(folder, "empty.db"))
        estimate = await dry_run_audit(asked, timed_by=audit.db)
    return [_cost(model, items / model.items) for model in estimate.models]


def _cost(model: ModelEstimate, part: float) -> ModelCost:
    """The cost of a ``part`` of what was estimated."""
    return ModelCost(
        model=model.model,
        requests=math.ceil(part * (model.requests + model.follow_ups)),
        seconds=None if model.seconds is None else part * model.seconds,
        cost=None if model.cost is None else part * model.cost,
    )
