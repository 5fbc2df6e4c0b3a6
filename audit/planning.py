"""How much to ask: from a pilot's variance components to the design that finds a wished difference, and its cost."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel
from scipy import special

from audit.analysis.components import POWER, Components
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.power import Design, smallest_found, with_pilot_error
from audit.collect import leading_specs, levels_behind, levels_by_stratum
from audit.config import AuditConfig
from audit.estimate import dry_run_audit
from audit.resolve import suite_items
from audit.results import AuditResult, FigureName, VarianceComponents, where_key
from audit.store import Store
from backends.errors import ConfigError
from suites.base import Item, MeasureSpec

#: Chance of even one false claim among a suite's primary figures and pairs of models.
ALPHA = 0.05
#: Designs that are looked through: levels of a factor, and draws of one question.
_LEAST_LEVELS, _MOST_LEVELS = 5, 100_000
_DRAWS = (1, 2, 4, 8, 16)


class FigurePlan(BaseModel):
    """What one figure takes.

    ``basis`` says whose components it rests on; ``minimum_detectable_effect`` is the smallest difference that the
    pilot's own design finds with 80 % power at the level ``alpha``, Bonferroni's share of 5 % for one of the suite's
    primary figures and one pair of models: what Holm's correction asks of the first claim; inf where none is.
    ``levels`` and ``draws`` are a design with few items that finds the wished one, the components' own error allowed
    for (`audit.analysis.power`), its strata, levels of ``stratum``, of equal size; None: none does, however large.
    ``available`` are the levels that the suite has: a design within these is preferred. ``items`` are the suite's, for
    each model.
    """

    suite: str
    figure: str
    basis: str
    alpha: float
    pilot_levels: dict[str, int]
    minimum_detectable_effect: float
    levels: dict[str, int] | None
    draws: int | None
    items: int | None
    stratum: str | None = None
    available: dict[str, int] = {}

    @property
    def lacking(self) -> dict[str, int]:
        """How many levels of a factor the design takes beyond those that the suite has."""
        beyond = {name: n - self.available.get(name, n) for name, n in (self.levels or {}).items()}
        return {name: n for name, n in beyond.items() if n > 0}


class ModelCost(BaseModel):
    """What the planned items cost one model. Seconds None: nothing is known; cost None: no prices."""

    model: str
    requests: int
    seconds: float | None
    cost: float | None


class SamplePlan(BaseModel):
    """The designs that find a difference of ``detect``, figure by figure, and what the largest of each suite costs."""

    detect: float
    run_id: str
    figures: list[FigurePlan]
    costs: list[ModelCost]

    def as_text(self) -> str:
        """For a person to read."""
        lines = [f"To find a difference of {self.detect:g} with {POWER:.0%} power, from the pilot {self.run_id}:"]
        for one in self.figures:
            now = ", ".join(f"{n:,} {factor}s" for factor, n in one.pilot_levels.items())
            finds = one.minimum_detectable_effect
            found = f"{finds:.3f}" if math.isfinite(finds) else "nothing"
            lines.append(f"{one.figure}\n  pilot: {now}; it finds {found} ({one.basis})")
            if one.levels is None:
                lines.append("  no number of levels finds it")
            else:
                needed = ", ".join(f"{n:,} {factor}s" for factor, n in one.levels.items())
                needed += f" (equally many of each {one.stratum})" if one.stratum else ""
                draws = f", each drawn {one.draws} times" if (one.draws or 1) > 1 else ""
                lines.append(f"  needed: {needed}{draws}: {one.items:,} items")
                lines += [
                    f"  the suite has {one.available[factor]:,} {factor}s: {n:,} more must be written"
                    for factor, n in one.lacking.items()
                ]
        lines.append(
            "Planned for a two-sided test of one primary figure and pair of models, corrected for all of a suite's "
            f"(alpha {', '.join(sorted({f'{one.alpha:.2g}' for one in self.figures}))}). It rests on components "
            "estimated from the pilot, at an upper limit, as they have an error of their own.\n"
            "A gate calls worse what is above its margin: add the margin to what it is to find.\n"
            "To call two models equivalent takes more: room for kinds of clusters not asked, which `largest_change` "
            "limits (150 of each factor for ±0.02 of a probability, unless it says otherwise)."
        )
        for cost in self.costs:
            seconds = "time unknown" if cost.seconds is None else f"{cost.seconds:,.0f} s"
            lines.append(
                f"{cost.model}: {cost.requests:,} requests, {seconds}"
                + ("" if cost.cost is None else f", cost about {cost.cost:.4f}")
            )
        return "\n".join(lines)


async def plan_audit(audit: AuditConfig, detect: float, run_id: str = "last") -> SamplePlan:
    """The designs that find a difference of ``detect`` in each primary figure.

    Raises
    ------
    ConfigError
        When ``detect`` is not above 0, or the store has no run with variance components of the audit's suites.
    """
    if not detect > 0:
        raise ConfigError("--detect", detect, "no difference", "Give a number above 0, e.g. 0.02")
    if not audit.db.exists():
        raise ConfigError("db", str(audit.db), "no such store", "Run the audit with --limit first: that is the pilot")
    with Store.open(audit.db, read_only=True) as store:
        pilot = store.runs.finished_result(store.runs.find(run_id))
    by_figure = _by_figure(pilot, audit)
    primaries = Counter(of_figure[0].suite for of_figure in by_figure)
    pairs = max(1, math.comb(len(audit.models), 2))
    for suite in primaries:
        compared = [one for one in pilot.comparisons if one.suite == suite and one.primary and one.p is not None]
        tested = {(one.measure, where_key(one.where)) for one in compared}
        primaries[suite] = max(primaries[suite], len(tested))
    items = {name: list(audit.suites[name].items()) for name in primaries}
    figures = [
        _figure_plan(pilot, of_figure, detect, ALPHA / (primaries[suite] * pairs), items[suite])
        for of_figure in by_figure
        for suite in (of_figure[0].suite,)
    ]
    if not figures:
        raise ConfigError(
            "--run", pilot.run_id, "holds no variance components of this audit's suites", "Run the audit once more"
        )
    return SamplePlan(detect=detect, run_id=pilot.run_id, figures=figures, costs=await _costs(audit, pilot, figures))


def _by_figure(pilot: AuditResult, audit: AuditConfig) -> list[list[VarianceComponents]]:
    found: dict[object, list[VarianceComponents]] = {}
    for one in pilot.components:
        if one.suite in audit.suites:
            found.setdefault((one.suite, one.measure, where_key(one.where)), []).append(one)
    return list(found.values())


def _as_components(one: VarianceComponents, times: float = 1.0) -> Components:
    def scaled(variance: float | None) -> float | None:
        return None if variance is None else times * variance

    return Components(
        {name: times * v for name, v in one.factors.items()},
        scaled(one.cross),
        scaled(one.sampling),
        {name: times * v for name, v in one.in_figure.items()},
        one.per_item,
    )


def _basis(of_figure: Sequence[VarianceComponents]) -> tuple[Components, VarianceComponents, str]:
    """The components of the least precise difference: of a pair of models, or of two unrelated ones."""
    pairs = [one for one in of_figure if one.against is not None]
    candidates = [(_as_components(one, 1.0 if pairs else 2.0), one) for one in pairs or of_figure]
    found, one = max(
        candidates, key=lambda pair: pair[0].minimum_detectable_effect(pair[1].levels, uneven=pair[1].uneven)
    )
    if one.against is not None:
        return found, one, f"between {one.against} and {one.model}, item by item"
    return found, one, f"between two models as {one.model} whose answers are unrelated: the worst case"


def _figure_plan(
    pilot: AuditResult, of_figure: Sequence[VarianceComponents], detect: float, alpha: float, all_items: Sequence[Item]
) -> FigurePlan:
    found, one, basis = _basis(of_figure)
    place = one.suite, one.measure, where_key(one.where)
    spec = next((m.spec for m in pilot.measures if (m.suite, m.measure, where_key(m.where)) == place), None)
    is_count = spec is not None and spec.from_counts
    behind = {} if spec is None else levels_behind(all_items, spec)
    available = {name: behind[name] for name in one.levels if name in behind}
    careful = with_pilot_error(found, one.levels)
    design = needed(careful, detect, alpha, is_count=is_count, available=available)
    (info,) = [info for info in pilot.suites if info.name == one.suite]
    shared = None if spec is None else spec.membership
    if shared is not None:  # its levels come with the lists: components of them are not estimated
        basis += f"; with the {shared}s asked, new ones take more"
    items = None
    if design is not None:
        items = math.ceil(math.prod(design[0].values()) * design[1] * info.n_items / one.n_items)
    return FigurePlan(
        suite=one.suite,
        figure=str(FigureName(one.suite, one.measure, one.where)),
        basis=basis,
        alpha=alpha,
        pilot_levels=one.levels,
        minimum_detectable_effect=smallest_found(
            found, Design(one.levels, uneven=one.uneven), alpha=alpha, is_count=is_count
        ),
        levels=None if design is None else design[0],
        draws=None if design is None else design[1],
        items=items,
        stratum=None if spec is None else spec.stratum,
        available=available,
    )


def needed(
    found: Components,
    detect: float,
    alpha: float = ALPHA,
    *,
    is_count: bool = False,
    available: Mapping[str, int] | None = None,
) -> tuple[dict[str, int], int] | None:
    """Levels of each factor and draws of each question that find ``detect``: None where none do.

    The design with the fewest items by the formula, made larger until the test that compares finds it too. One within
    the ``available`` levels is preferred to one that takes more.
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
    """The design with the fewest items that finds it, no factor with more levels than ``most``; None if none does."""
    names = list(found.factors)
    designs = []
    for draws in _DRAWS if found.sampling else (1,):
        # The first factor's levels follow from the others', which grow together.
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
    """The fewest levels of a factor that find ``detect``, the others' being fixed; None where none do.

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


async def _costs(audit: AuditConfig, pilot: AuditResult, figures: Sequence[FigurePlan]) -> list[ModelCost]:
    """What the largest design of each suite costs: prices by what the suites ask now, time by the pilot's pace."""
    wanted: dict[str, int] = {}
    for one in figures:
        wanted[one.suite] = max(wanted.get(one.suite, 0), one.items or 0)
    items = sum(wanted.values())
    pace = {m.fingerprint_id: m.seconds / m.asked for m in pilot.models if m.asked >= 20}
    by_name = {m.name: pace.get(m.fingerprint_id) for m in pilot.models}
    with tempfile.TemporaryDirectory() as folder:
        asked = audit.only(suites=list(wanted), db=Path(folder, "empty.db"))
        estimate = await dry_run_audit(asked)
    return [
        ModelCost(
            model=model.model,
            requests=items,
            seconds=None if (rate := by_name.get(model.model)) is None else rate * items,
            cost=None if model.cost is None else model.cost * items / model.requests,
        )
        for model in estimate.models
    ]


def sample_power(audit: AuditConfig) -> list[str]:
    """For each primary mean, a line: the smallest difference that the audit's items could show."""
    pilot: dict[object, list[VarianceComponents]] = {}
    if audit.db.exists():
        with Store.open(audit.db, read_only=True) as store:
            results = (store.runs.result(run.id) for run in store.runs.all())
            last = next((result for result in results if result is not None and result.components), None)
        for one in last.components if last is not None else ():
            pilot.setdefault((one.suite, one.measure, where_key(one.where)), []).append(one)
    lines = []
    pairs = max(1, math.comb(len(audit.models), 2))
    for name, suite in audit.suites.items():
        items = list(suite_items(name, suite, audit))
        primary = [spec for spec in leading_specs(suite) if spec.primary]
        for spec in primary:
            if spec.estimator == "mean":
                earlier = pilot.get((name, spec.measure, where_key(spec.where)), [])
                power = _power(spec, items, earlier, ALPHA / (len(primary) * pairs))
                lines.append(f"{FigureName(name, spec.measure, spec.where)}: {power}")
    return ["", "Smallest difference between two models that these items find with 80 % power", *lines]


def _power(spec: MeasureSpec, items: Sequence[Item], earlier: Sequence[VarianceComponents], alpha: float) -> str:
    design = _design_of(spec, items)
    described = ", ".join(f"{n:,} {factor}s" for factor, n in design.levels.items())
    if design.fewest < FEWEST_CLUSTERS:
        return f"nothing with {described}, {design.fewest} of one kind: {FEWEST_CLUSTERS} or more are needed"
    if earlier:
        found, _, basis = _basis(earlier)
        if set(found.factors) <= set(design.levels):
            finds = smallest_found(found, design, alpha=alpha, is_count=spec.from_counts)
            return f"{finds:.3f} with {described} (by an earlier run, {basis})"
    bound = _bound(spec, design, alpha)
    if bound >= spec.limits[1] - spec.limits[0]:
        return f"none for certain with {described} (no earlier run: by what its values can be)"
    return f"at worst {bound:.2g} with {described} (no earlier run: by what its values can be)"


def _design_of(spec: MeasureSpec, items: Sequence[Item]) -> Design:
    """The levels behind a figure, stratum by stratum where these have unequal numbers."""
    weights = spec.weights or {}
    uneven = {
        factor: [(weight, strata.get(level, 0)) for level, weight in weights.items()]
        for factor, strata in levels_by_stratum(items, spec).items()
        if None not in strata and len({strata.get(level, 0) for level in weights}) > 1
    }
    return Design(levels_behind(items, spec), uneven=uneven)


def _bound(spec: MeasureSpec, design: Design, alpha: float) -> float:
    """What is found however the values vary: no difference of values in a range R varies by more than R."""
    low, high = spec.limits
    worst = 0.0
    for factor, levels in design.levels.items():
        strata = design.uneven.get(factor, [(1.0, levels)])
        fewest = min(n for _, n in strata)
        steps = float(special.stdtrit(fewest - 1, 1 - alpha / 2) + special.stdtrit(fewest - 1, POWER))
        worst = max(worst, steps * (high - low) * math.sqrt(sum(weight**2 / n for weight, n in strata)))
    return worst
