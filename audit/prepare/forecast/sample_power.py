"""What a run's items could show, before any is asked: by an earlier run, or by what models usually differ by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scipy import special

from audit.analysis.components import POWER, Components
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.power import Design, smallest_found
from audit.collect import cells_behind, leading_specs, levels_behind
from audit.config import AuditConfig
from audit.prepare.forecast.designs import ALPHA, basis_of, by_figure, design_of, found_with, thinned
from audit.prepare.resolve import suite_items
from audit.results import FigureName, VarianceComponents, where_key
from audit.store import Store
from suites.base import Item, MeasureSpec

#: Standard deviation, as a part of the range of values, of what two models differ by between the levels of a factor,
#: and between combinations: as for SmolLM2-135M and Gemma 3 270M in `OccuGender` (0.16 to 0.18 of a gap, -1 to 1).
_USUAL = 0.085


@dataclass(frozen=True, slots=True)
class ItemPower:
    """What one primary mean's items can detect.

    Attributes
    ----------
    levels : mapping
        Levels of each sampled factor. Empty: the figure names none.
    fewest : int
        The fewest levels of a factor, in the smallest stratum.
    combinations : int or None
        How many combinations of levels are asked, if not all.
    detects : float or None
        The smallest difference that is found with `POWER`; infinite if none is, None where nothing says how the values
        vary.
    basis : str or None
        The earlier run that ``detects`` rests on; None: that the models differ as `_USUAL` says.
    worst : float or None
        What is found however the models differ; None: nothing is for certain.
    scarce : mapping
        Factors of which the whole suite has too few levels for any limit to help.
    """

    figure: str
    levels: Mapping[str, int]
    fewest: int = 0
    combinations: int | None = None
    detects: float | None = None
    basis: str | None = None
    worst: float | None = None
    scarce: Mapping[str, int] = field(default_factory=dict)


def sample_power(audit: AuditConfig) -> list[ItemPower]:
    """For each primary mean, the smallest difference that the audit's items can detect."""
    last = None
    if audit.db.exists():
        with Store.open(audit.db, read_only=True) as store:
            results = (store.runs.result(run.id) for run in store.runs.all())
            last = next((result for result in results if result is not None and result.components), None)
    pilot = by_figure(last.components if last is not None else (), audit)
    powers = []
    pairs = max(1, math.comb(len(audit.models), 2))
    for name, suite in audit.suites.items():
        every, items = list(suite.items()), suite_items(name, suite, audit)[0]
        primary = [spec for spec in leading_specs(suite) if spec.primary]
        for spec in primary:
            if spec.estimator == "mean":
                earlier = pilot.get((name, spec.measure, where_key(spec.where)), [])
                figure = str(FigureName(name, spec.measure, spec.where))
                power = _power(figure, spec, items, earlier, ALPHA / (len(primary) * pairs))
                powers.append(replace(power, scarce=_scarce(spec, items, every)))
    return powers


def _power(
    figure: str, spec: MeasureSpec, items: Sequence[Item], earlier: Sequence[VarianceComponents], alpha: float
) -> ItemPower:
    design = design_of(spec, items)
    power = ItemPower(figure, dict(design.levels), design.fewest)
    if design.fewest < FEWEST_CLUSTERS:
        return power
    cells = cells_behind(items, spec)
    if len(design.levels) > 1 and cells < design.cells:
        power = replace(power, combinations=cells)
    if earlier:
        found, _, basis = basis_of(earlier)
        finds = found_with(spec, items, found, alpha)
        if finds is not None:
            return replace(power, detects=finds, basis=basis)
    low, high = spec.limits
    if not math.isfinite(high - low):
        return power
    usual = thinned(_usual(spec, design), design, cells)
    finds = smallest_found(usual, design, alpha=alpha, is_count=spec.from_counts)
    bound = _bound(spec, design, alpha)
    return replace(power, detects=finds, worst=None if bound >= high - low else bound)


def _usual(spec: MeasureSpec, design: Design) -> Components:
    """Components as for `_USUAL`. A count's single items differ by all that its range allows."""
    low, high = spec.limits
    variance = (_USUAL * (high - low)) ** 2
    of_item = ((high - low) / 2) ** 2 if spec.from_counts else variance
    factors = dict.fromkeys(design.levels, variance)
    return Components(factors, of_item, None, dict(factors), 1.0)


def _scarce(spec: MeasureSpec, items: Sequence[Item], every: Sequence[Item]) -> Mapping[str, int]:
    """Factors of which the whole suite has too few levels."""
    if len(items) == len(every) or design_of(spec, items).fewest >= FEWEST_CLUSTERS:
        return {}
    return {factor: n for factor, n in levels_behind(every, spec).items() if n < FEWEST_CLUSTERS}


def _bound(spec: MeasureSpec, design: Design, alpha: float) -> float:
    """What is detected however the values vary: the standard deviation of differences of values in a range R is at
    most R."""
    low, high = spec.limits
    worst = 0.0
    for factor, levels in design.levels.items():
        strata = design.uneven.get(factor, [(1.0, levels)])
        fewest = min(n for _, n in strata)
        steps = float(special.stdtrit(fewest - 1, 1 - alpha / 2) + special.stdtrit(fewest - 1, POWER))
        worst = max(worst, steps * (high - low) * math.sqrt(sum(weight**2 / n for weight, n in strata)))
    return worst
