"""What a run's items could show, before any is asked: by an earlier run, or by what models usually differ by."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from suites.own_code import items_of

#: Standard deviation, as a part of the range of values, of what two models differ by between the levels of a factor,
#: and between combinations: as for SmolLM2-135M and Gemma 3 270M in `OccuGender` (0.16 to 0.18 of a gap, -1 to 1).
_USUAL = 0.085


def sample_power(audit: AuditConfig) -> list[str]:
    """One line for each primary mean: the smallest difference that the audit's items can detect."""
    last = None
    if audit.db.exists():
        with Store.open(audit.db, read_only=True) as store:
            results = (store.runs.result(run.id) for run in store.runs.all())
            last = next((result for result in results if result is not None and result.components), None)
    pilot = by_figure(last.components if last is not None else (), audit)
    lines = []
    pairs = max(1, math.comb(len(audit.models), 2))
    for name, suite in audit.suites.items():
        every, items = list(items_of(suite)), list(suite_items(name, suite, audit))
        primary = [spec for spec in leading_specs(suite) if spec.primary]
        for spec in primary:
            if spec.estimator == "mean":
                earlier = pilot.get((name, spec.measure, where_key(spec.where)), [])
                power = _power(spec, items, earlier, ALPHA / (len(primary) * pairs)) + _more(spec, items, every)
                lines.append(f"{FigureName(name, spec.measure, spec.where)}: {power}")
    if not lines:
        return []
    heading = ["", "Smallest difference between two models that these items detect with 80 % power"]
    if any("about" in line for line in lines):
        heading.append(
            "(about: if two models differ as SmolLM2-135M and Gemma 3 270M do on OccuGender; at worst: however they "
            "differ. After a run with --limit, this says what yours need)"
        )
    return heading + lines


def _power(spec: MeasureSpec, items: Sequence[Item], earlier: Sequence[VarianceComponents], alpha: float) -> str:
    design = design_of(spec, items)
    if not design.levels:
        return "unknown: the figure names no factor whose levels are a sample (`clusters`)"
    described = ", ".join(f"{n:,} {factor}{'s' if n != 1 else ''}" for factor, n in design.levels.items())
    if design.fewest < FEWEST_CLUSTERS:
        of_kind = f", {design.fewest} of one group" if design.fewest < min(design.levels.values()) else ""
        return f"nothing with {described}{of_kind}: {FEWEST_CLUSTERS} or more are needed"
    cells = cells_behind(items, spec)
    if len(design.levels) > 1 and cells < design.cells:
        described += f" in {cells:,} combinations"
    if earlier:
        found, _, basis = basis_of(earlier)
        finds = found_with(spec, items, found, alpha)
        if finds is not None:
            return f"{finds:.3f} with {described} (by an earlier run, {basis})"
    low, high = spec.limits
    if not math.isfinite(high - low):
        return f"unknown with {described} (no earlier run, and its values have no range)"
    usual = thinned(_usual(spec, design), design, cells)
    finds = smallest_found(usual, design, alpha=alpha, is_count=spec.from_counts)
    if not math.isfinite(finds):
        return f"nothing with {described} (no earlier run)"
    bound = _bound(spec, design, alpha)
    worst = "none for certain" if bound >= high - low else f"at worst {bound:.2g}"
    return f"about {finds:.2g}, {worst} with {described} (no earlier run)"


def _usual(spec: MeasureSpec, design: Design) -> Components:
    """Components as for `_USUAL`. A count's single items differ by all that its range allows."""
    low, high = spec.limits
    variance = (_USUAL * (high - low)) ** 2
    of_item = ((high - low) / 2) ** 2 if spec.from_counts else variance
    factors = dict.fromkeys(design.levels, variance)
    return Components(factors, of_item, None, dict(factors), 1.0)


def _more(spec: MeasureSpec, items: Sequence[Item], every: Sequence[Item]) -> str:
    """That no limit helps a figure of which the whole suite has too few levels."""
    if len(items) == len(every) or design_of(spec, items).fewest >= FEWEST_CLUSTERS:
        return ""
    whole = levels_behind(every, spec)
    few = [f"{n} {factor}{'s' if n != 1 else ''}" for factor, n in whole.items() if n < FEWEST_CLUSTERS]
    return f". No limit helps: the whole suite has {' and '.join(few)}" if few else ""


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
