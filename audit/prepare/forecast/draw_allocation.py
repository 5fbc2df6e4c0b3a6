"""How many items to ask and how many answers to draw of each: the cheapest interval, or the narrowest for a budget.

A model without log-probabilities is asked each question several times. With n items of m draws a figure's variance is
that of its occupations and templates, plus (variance of items + variance within m draws) / n. More draws of a question
reduce only the last part, so few draws of many items are best (Cochran 1977, Sampling Techniques, 10.6), down to where
questions are left without a value because none of their answers names a group. Both are read from a pilot.

The numbers are fixed before the run, are the same for all items, and which items are asked follows from the seed. So
no answer decides how often its own question is drawn, and the shares stay unbiased: with numbers that follow a
question's first answers they would not be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from audit.analysis.components import Components
from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.power import Design
from audit.collect import Sample, cells_behind, leading_specs, sampled_factors
from audit.config import AuditConfig
from audit.prepare.forecast.designs import as_components, by_figure, design_of, thinned
from audit.prepare.forecast.redrawn import DrawError, DrawnItem, draw_errors, drawn_items
from audit.prepare.resolve import suite_items
from audit.results import AuditResult, VarianceComponents, where_key
from audit.store import Store
from backends.errors import ConfigError
from suites.base import MeasureSpec, Suite

#: The numbers of draws of a question that are considered, and the steps in the number of items.
DRAWS = (1, 2, 3, 4, 6, 8, 12, 20)
_STEPS = 10
#: The share of the items that a plan uses, and how many times the fewest draws or the narrowest interval it may take:
#: a budget is there to be used.
_USED, _NEARLY, _NEARLY_NARROWEST = 0.75, 1.1, 1.02


class Allocation(BaseModel):
    """Draws over a suite's items for one model.

    Attributes
    ----------
    items, draws : optional
        Items to ask and draws of each; None if no number is enough.
    paid : int
        Those of the draws that the pilot has taken: with as many draws of each item its answers count.
    half_width : float
        What these are expected to bring every primary mean's sampling error to; with ``items`` None, what all items
        and any number of draws would.
    missing : float
        The share of items that will have no value; ``half_width`` allows for any.
    without_draws : float
        The part of ``half_width`` that no number of draws reduces.
    of_items, of_draws : int
        The items that the config asks, and the draws that the pilot took of each.
    """

    suite: str
    model: str
    items: int | None
    draws: int | None
    paid: int = 0
    half_width: float
    missing: float
    without_draws: float
    of_items: int
    of_draws: int


class AllocationPlan(BaseModel):
    """The allocations for an audit, one for each suite and model that draws. It meets ``within`` or ``budget``."""

    run_id: str
    within: float | None
    budget: int | None
    confidence: float
    allocations: list[Allocation]


def allocate_draws(
    audit: AuditConfig, *, within: float | None = None, budget: int | None = None, run_id: str = "last"
) -> AllocationPlan:
    """The fewest draws that bring every primary mean within ``within``, or the narrowest interval for ``budget`` draws.

    One of the two is needed.

    Raises
    ------
    ConfigError
        If it is not above 0, or the store has no pilot in which a model was asked by two draws or more.
    """
    for option, wished in (("--within", within), ("--draws", budget)):
        if wished is not None and not wished > 0:
            raise ConfigError(option, wished, "not above 0", "e.g. --within 0.03, or --draws 4000")
    if not audit.db.exists():
        raise ConfigError("db", str(audit.db), "no such store", "Run the audit with --limit first: that is the pilot")
    with Store.open(audit.db, read_only=True) as store:
        pilot = store.runs.finished_result(store.runs.find(run_id))
        found = [
            _allocation(audit, suite, info.name, of_model, within, budget)
            for suite in audit.suites
            for info in pilot.models
            if (of_model := list(_figures(audit, suite, info.name, info.fingerprint_id, pilot, store)))
        ]
    if not found:
        problem = "holds no primary mean of this audit's suites from two or more drawn answers a question"
        raise ConfigError("--run", pilot.run_id, problem, "Run a pilot with samples=4 and --limit")
    return AllocationPlan(
        run_id=pilot.run_id, within=within, budget=budget, confidence=audit.confidence, allocations=found
    )


class _Figure(NamedTuple):
    """A figure with the variances of the pilot, less what its draws added, and the errors of drawing."""

    spec: MeasureSpec
    found: Components
    errors: Mapping[int, DrawError]
    of_draws: int
    answered: frozenset[str]


def _figures(
    audit: AuditConfig, name: str, model: str, fingerprint: str, pilot: AuditResult, store: Store
) -> Iterator[_Figure]:
    suite = audit.suites[name]
    drawn = list(drawn_items(suite_items(name, suite, audit.only(limit=None))[0], store, fingerprint))
    if not drawn:
        return
    for (of_suite, *_), every in by_figure(pilot.components, audit).items():
        own = [one for one in every if one.against is None and one.model == model]
        spec = next((spec for spec in leading_specs(suite) for one in own if _is_of(spec, one)), None)
        if of_suite == name and own and spec is not None:
            yield from _figure(suite, spec, own[0], drawn)


def _is_of(spec: MeasureSpec, one: VarianceComponents) -> bool:
    return (spec.measure, where_key(spec.where)) == (one.measure, where_key(one.where)) and spec.estimator == "mean"


def _figure(suite: Suite, spec: MeasureSpec, one: VarianceComponents, drawn: Sequence[DrawnItem]) -> Iterator[_Figure]:
    """The figure, if its error can be told from the draws. The pilot's items vary by their draws too."""
    of_draws = drawn[0].draws
    by_draws = {error.draws: error for error in draw_errors(suite, spec, drawn, (*DRAWS, of_draws))}
    if by_draws:
        found = as_components(one)
        of_items = max((found.cross or 0.0) + (found.sampling or 0.0) - by_draws[of_draws].within, 0.0)
        answered = frozenset(one.item.id for one in drawn)
        yield _Figure(spec, found._replace(cross=of_items, sampling=None), by_draws, of_draws, answered)


class _Tried(NamedTuple):
    """So many items, each drawn so often: half the width of the widest interval, and the share without a value.

    ``paid`` of these draws are the pilot's.
    """

    items: int
    draws: int
    half_width: float
    missing: float
    paid: int

    @property
    def to_draw(self) -> int:
        """The draws that are still to be paid for."""
        return self.items * self.draws - self.paid


def _allocation(
    audit: AuditConfig,
    name: str,
    model: str,
    figures: Sequence[_Figure],
    within: float | None,
    budget: int | None,
) -> Allocation:
    suite = audit.suites[name]
    items, _ = suite_items(name, suite, audit)
    sample = Sample(items, suite.strata, audit.seed, suite.sampled_together, sampled_factors(leading_specs(suite)))
    sizes = {math.ceil(len(items) * step / _STEPS) for step in range(1, _STEPS + 1)}
    of_draws = figures[0].of_draws
    if budget is not None:
        sizes |= {min(budget // draws, len(items)) for draws in DRAWS}
        sizes.add(min(budget // of_draws + len(figures[0].answered), len(items)))
    tried: list[_Tried] = []
    floors: dict[int, float] = {}
    for size in sorted(size for size in sizes if size >= min(sample.smallest, len(items))):
        taken = sample.take(size)
        designs = [(figure, design_of(figure.spec, taken), cells_behind(taken, figure.spec)) for figure in figures]
        floors[len(taken)] = max(_half_width(*one, None, audit.confidence) for one in designs)
        answered = sum(item.id in figures[0].answered for item in taken)
        for draws in DRAWS:
            widest = max(_half_width(*one, one[0].errors[draws], audit.confidence) for one in designs)
            missing = max(figure.errors[draws].missing for figure in figures)
            paid = answered * draws if draws == of_draws else 0
            tried.append(_Tried(len(taken), draws, widest, missing, paid))
    if within is not None:
        best = _fewest_draws([one for one in tried if one.half_width <= within], len(items))
    else:
        best = _narrowest(tried, budget or 0)
    return Allocation(
        suite=name,
        model=model,
        items=best and best.items,
        draws=best and best.draws,
        paid=0 if best is None else best.paid,
        half_width=floors[max(floors)] if best is None else best.half_width,
        missing=0.0 if best is None else best.missing,
        without_draws=floors[max(floors) if best is None else best.items],
        of_items=len(items),
        of_draws=of_draws,
    )


def _fewest_draws(enough: Sequence[_Tried], of_items: int) -> _Tried | None:
    """Of nearly the fewest draws, the fewest of each item: a small pilot sees less of how items vary than of draws.

    It leaves items unasked if it can, since a run that stops by its width may need them.
    """
    among = [one for one in enough if one.items <= _USED * of_items] or list(enough)
    fewest = min((one.to_draw for one in among), default=0)
    return min(
        (one for one in among if one.to_draw <= _NEARLY * fewest),
        key=lambda one: (one.draws, one.items),
        default=None,
    )


def _narrowest(tried: Sequence[_Tried], budget: int) -> _Tried | None:
    """Of nearly the narrowest that so many draws buy, one that the pilot's count for, with the fewest of each item.

    As for the fewest draws: how items vary is what a small pilot sees least of.
    """
    affordable = [one for one in tried if one.to_draw <= budget and math.isfinite(one.half_width)]
    narrowest = min((one.half_width for one in affordable), default=0.0)
    nearly = (one for one in affordable if one.half_width <= _NEARLY_NARROWEST * narrowest)
    return min(nearly, key=lambda one: (one.paid == 0, one.draws, one.half_width), default=None)


def _half_width(figure: _Figure, design: Design, cells: int, error: DrawError | None, confidence: float) -> float:
    """Half the width of the figure's interval; without an ``error`` if nothing were left to chance by drawing.

    An item without a value may have any in its range.
    """
    if design.fewest < FEWEST_CLUSTERS:
        return math.inf
    within, missing = (0.0, 0.0) if error is None else (error.within, error.missing)
    whole = figure.found._replace(cross=(figure.found.cross or 0.0) + within)
    half = thinned(whole, design, cells).half_width(design.levels, confidence=confidence, uneven=design.uneven)
    low, high = figure.spec.limits
    return half + (missing * (high - low) / 2 if missing else 0.0)
