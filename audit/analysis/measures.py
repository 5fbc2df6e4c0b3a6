"""Computes the figures of one suite from the models' tables: measures, comparisons, ranks, steps and data quality.

A row that is known only by bounds leaves its figure without a value: see `estimators.estimate.Between`. One without an
answer is bounded by what the quantity can be (`audit.analysis.figures`); the value is that of the rows with an answer,
whose own interval stands beside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.analysis.answers import SuiteAnswers
from audit.analysis.comparing.attribution import Step, with_engine_noise
from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.decisions import corrected
from audit.analysis.estimators.estimate import Estimate, finite
from audit.analysis.figures import completed, estimator_of, figure_of, undefined_strata
from audit.analysis.table import Bools, Table
from audit.results import (
    LITTLE_COVERAGE,
    AttributionStep,
    Comparison,
    DataQuality,
    FigureName,
    Measure,
    PromptCoverage,
    Ranking,
    Rung,
    where_key,
)
from audit.results.figures import encode_parts, write_signature
from backends.base import Scalar
from suites.base import MeasureSpec

#: Raise it when an estimator or its interval changes: signatures then differ.
STATISTICS_VERSION = 20
#: Maximum number of items shown behind a derived row.
_SOURCES_SHOWN = 2
#: A condition of fewer prompts has no share worth naming.
_FEWEST_PROMPTS = 10


@dataclass(frozen=True)
class SuiteResult:
    """All results of one suite.

    ``specs`` are the specifications of all models' figures. ``examples`` are the items to show: for each model and item
    the ids of the figures that use it.
    """

    measures: list[Measure]
    comparisons: list[Comparison]
    data_quality: list[DataQuality]
    rankings: list[Ranking]
    ladder: list[AttributionStep]
    unanswered: int
    examples: Mapping[str, Mapping[str, list[str]]]
    specs: list[MeasureSpec]


def evaluate_suite(
    name: str,
    by_model: Mapping[str, SuiteAnswers],
    *,
    signature: Mapping[str, Any],
    margins: float | Mapping[str, float],
    confidence: float,
    seed: int,
    engines: Sequence[tuple[str, str]] = (),
    steps: Sequence[Step] = (),
) -> SuiteResult:
    """Measure one suite for every model, and compare the models.

    ``engines`` are pairs of the same model on different engines: their differences are noise. ``steps`` are models made
    from each other: each change has a decision of its own, whatever other models there are.
    """
    tables = {model: answers.table for model, answers in by_model.items()}
    facts: dict[str, Any] = {"suite": name, "signature": signature, "confidence": confidence, "seed": seed}
    measures = {model: measure_table(of.table, of.specs, model=model, **facts) for model, of in by_model.items()}
    every = (spec for answers in by_model.values() for spec in answers.specs)
    specs = list({(spec.measure, where_key(spec.where)): spec for spec in every}.values())
    how: dict[str, Any] = {"suite": name, "margins": margins, "confidence": confidence}
    comparisons = with_engine_noise(compare_models(tables, specs, **how), engines, steps)
    main = [spec for spec in specs if not spec.is_subgroup]
    # A model that was down has no follow-ups, so items are chosen from the model that was asked the most.
    shown = _example_items(max(by_model.values(), key=lambda answers: len(answers.items)), specs)
    return SuiteResult(
        measures=[measure for own in measures.values() for measure in own],
        comparisons=comparisons,
        data_quality=[_data_quality(name, model, answers, measures[model]) for model, answers in by_model.items()],
        rankings=rank_models(c for c in comparisons if not c.is_subgroup),
        ladder=[
            AttributionStep(
                a=Rung(model=step.a, suite=name),
                b=Rung(model=step.b, suite=name),
                changes=list(step.changes),
                engine=list(step.engine),
                comparisons=compare_models({model: tables[model] for model in (step.a, step.b)}, main, **how),
            )
            for step in steps
        ],
        unanswered=sum(answers.failures.total() for answers in by_model.values()),
        examples={model: _figures_behind(answers, measures[model], shown) for model, answers in by_model.items()},
        specs=specs,
    )


def _data_quality(suite: str, model: str, answers: SuiteAnswers, measures: Sequence[Measure]) -> DataQuality:
    table, boundaries = answers.table, answers.boundaries
    ids = table.data["item_id"]  # an index of them would be kept
    own = np.fromiter((item in answers.items for item in ids), np.bool_, len(ids))  # not the derived rows
    inexact = np.zeros(len(table), dtype=np.bool_)
    for quantity in map(table.quantity, table.named("value")):
        inexact |= np.isfinite(quantity.low) & np.isnan(quantity.value)
    lost = list(table.only(own & table.missing).rows())
    first = "".join(answers.suite.strata[:1])
    return DataQuality(
        model=model,
        suite=suite,
        n_items=len(answers.items),
        answered=len(answers.items) - answers.failures.total(),
        failures=dict(Counter(row.missing or "" for row in lost) | answers.failures),
        failures_by=dict(Counter(str(row.factors.get(first)) for row in lost)),
        censored=int((own & inexact).sum()),
        straddled_in_part=boundaries["in part"],
        **{kind: boundaries[kind] for kind in ("merged", "straddled", "altered")},
        probability_mass=min(
            (m.probability_mass for m in measures if m.probability_mass is not None and not m.is_subgroup),
            default=None,
        ),
        prompt_coverage=prompt_coverage(table, [m.spec for m in measures], answers.items),
    )


def prompt_coverage(table: Table, specs: Sequence[MeasureSpec], items: Collection[str]) -> list[PromptCoverage]:
    """The coverage of all of a suite's prompts; then that of the condition where most are below.

    A mean hides them: of ten prompts nine may hold 1 % of the probability and one 90 %, which is 10 % on average.

    Conditions are those of the suite's figures that are not of a single level; one counts if it has 10 prompts or more,
    and a larger share below than all together. ``items``: ids of the rows that are prompts' answers; others are derived
    from several. Without a coverage the list is empty.
    """
    is_item = np.fromiter((item in items for item in table.data["item_id"]), np.bool_, len(table)) & table.answered
    rests = [spec for spec in specs if spec.probability_mass]
    behind: dict[str, Bools] = {}
    for spec in rests:
        mass, rows = spec.probability_mass or "", table.matching(spec.where) & is_item
        behind[mass] = behind.get(mass, rows) | rows
    wholes = {name: of for name, rows in behind.items() if (of := _coverage_of(table, name, {}, rows)).n_prompts}
    if not wholes:
        return []
    name, whole = max(wholes.items(), key=lambda of: of[1].n_prompts)
    conditions = {where_key(s.where): s.where for s in rests if s.probability_mass == name and not s.is_subgroup}
    of_each = [_coverage_of(table, name, w, table.matching(w) & is_item) for w in conditions.values()]
    worst = max(
        (one for one in of_each if one.n_prompts >= _FEWEST_PROMPTS),
        key=lambda one: (one.share_below, one.n_prompts),
        default=whole,
    )
    return [whole, worst] if worst.share_below > whole.share_below else [whole]


def _coverage_of(table: Table, name: str, where: Mapping[str, Scalar], rows: Bools) -> PromptCoverage:
    coverage = table.quantity(name).of(rows & table.has(name))
    return PromptCoverage(
        where=dict(where),
        n_prompts=len(coverage.low),
        below=int((coverage.high < LITTLE_COVERAGE).sum()),
        may_be_below=int((coverage.low < LITTLE_COVERAGE).sum()),
        median=float(np.median(coverage.low)) if len(coverage.low) else 0.0,
        lowest=float(coverage.low.min(initial=np.inf)),
    )


# -- example items -----------------------------------------------------------------------------


def _behind(table: Table, spec: MeasureSpec) -> Bools:
    """Rows (n,) behind a figure, including those without an answer."""
    return table.matching(spec.where) & (table.has(spec.quantity) | table.missing)


def _example_items(answers: SuiteAnswers, specs: Sequence[MeasureSpec]) -> set[str]:
    """Items to show for all models, chosen from one model's rows: at least one behind every figure."""
    table = answers.table
    shown = np.zeros(len(table), dtype=np.bool_)
    for spec in sorted(specs, key=lambda s: -len(s.where)):
        behind = _behind(table, spec)
        if behind.any() and not (behind & shown).any():
            shown[behind.argmax()] = True
    rows = table.data.filter(shown)
    behind_rows = zip(rows["item_id"].to_list(), rows["sources"].to_list(), strict=True)
    items = (item for own, sources in behind_rows for item in (sources or [own])[:_SOURCES_SHOWN])
    return {item for item in items if item in answers.items}


def _figures_behind(answers: SuiteAnswers, measures: Sequence[Measure], shown: Collection[str]) -> dict[str, list[str]]:
    """For each shown item, in the order of the items, the ids of one model's figures that use it."""
    table = answers.table
    figures: dict[str, list[str]] = {item: [] for item in answers.items if item in shown}
    # One entry for each shown item in each row that uses it.
    columns = enumerate(zip(table.data["item_id"].to_list(), table.data["sources"].to_list(), strict=True))
    places = [(at, item) for at, (own, sources) in columns for item in sources or [own] if item in figures]
    of_rows = np.array([at for at, _ in places], dtype=np.intp)
    for measure in measures:
        for place in np.flatnonzero(_behind(table, measure.spec)[of_rows]).tolist():
            listed = figures[places[place][1]]
            if not listed or listed[-1] != measure.id:
                listed.append(measure.id)
    return figures


# -- measures -----------------------------------------------------------------------------------


def measure_table(
    table: Table,
    specs: Iterable[MeasureSpec],
    *,
    model: str,
    suite: str,
    signature: Mapping[str, Any],
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Measure]:
    """The figures of one model on one suite, in the order of ``specs``.

    ``signature`` is the suite's, and whatever else of the run reproduces the figures. The seed enters the signature
    only: no interval here is resampled.

    Raises
    ------
    ValueError
        When a correlation's covariate is not constant within its clusters. A note names the figure that failed,
        whatever the error.
    """
    shared = encode_parts({**signature, "statistics": STATISTICS_VERSION, "confidence": confidence, "seed": seed})
    measures = []
    for spec in specs:
        name = FigureName(suite, spec.measure, spec.where, model)
        try:
            measures.append(_measure(table, spec, name, write_signature(shared, spec), confidence))
        except Exception as error:
            error.add_note(f"in the figure {name}")
            raise
    p = np.array([math.nan if measure.p is None else measure.p for measure in measures])
    adjusted = corrected(p, np.array([measure.spec.primary for measure in measures], dtype=np.bool_), 0.05).p.tolist()
    return [
        measure.model_copy(update={"p_adjusted": own}) if math.isfinite(own) else measure
        for measure, own in zip(measures, adjusted, strict=True)
    ]


def _measure(table: Table, spec: MeasureSpec, name: FigureName, signature: str, confidence: float) -> Measure:
    (answers,) = completed([table], spec)
    quantity, used = table.quantity(spec.quantity), answers.used
    figure, design = figure_of(table, spec, quantity, used)
    complete: tuple[float | None, float | None] = (None, None)
    value, is_tested = figure.value, spec.neutral is not None and estimator_of(spec).is_mean
    if answers.missing.any() and used.any():
        complete = ends_of(spec, figure.estimate, confidence)
        figure, design = figure_of(table, spec, answers.quantity, answers.asked)
    low, high = ends_of(spec, figure.estimate, confidence)
    mass = table.quantity(spec.probability_mass).low[used] if spec.probability_mass else np.empty(0)
    mass = mass[np.isfinite(mass)]
    return Measure(
        id=name.id,
        **name.fields,
        value=finite(value),
        low=low,
        high=high,
        bound_low=finite(figure.bound_low),
        bound_high=finite(figure.bound_high),
        complete_case_low=complete[0],
        complete_case_high=complete[1],
        p=finite(figure.estimate.p_two_sided(spec.neutral or 0.0)) if is_tested else None,
        n_clusters=0 if design is None else design.n_clusters,
        undefined_strata=undefined_strata(table, spec, used),
        n_items=table.n_questions(used),
        missing=int((table.matching(spec.where) & table.missing).sum()),
        censored=int(np.isnan(quantity.value[used]).sum()),
        probability_mass=float(mass.mean()) if mass.size else None,
        levels={} if design is None else design.levels,
        signature=signature,
        spec=spec,
        estimator=spec.estimator,
        unit=spec.unit,
        neutral=spec.neutral,
        family=spec.family,
        is_subgroup=spec.is_subgroup,
        contrast=spec.contrast,
    )


def ends_of(spec: MeasureSpec, estimate: Estimate, confidence: float) -> tuple[float | None, float | None]:
    """A figure's interval, within what the figure can be; None where it is unknown."""
    low, high = estimate.interval(confidence)
    least, most = spec.value_range
    return (None, None) if math.isnan(low) else (finite(max(low, least)), finite(min(high, most)))
