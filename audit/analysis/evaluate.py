"""Computes the figures of one suite from the models' answers.

Takes tables of rows; gives measures, comparisons, ranks, steps and data quality. Does not read the store or
ask models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.analysis.answers import SuiteAnswers
from audit.analysis.comparing.attribution import Step, with_engine_noise
from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.measures import measure_table
from audit.analysis.table import Bools, Table
from audit.results import (
    LITTLE_COVERAGE,
    AttributionStep,
    Comparison,
    DataQuality,
    Measure,
    PromptCoverage,
    Ranking,
    Rung,
    where_key,
)
from backends.base import Scalar
from suites.base import MeasureSpec

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

    Parameters
    ----------
    signature : mapping
        Everything needed to reproduce the suite's figures, except the model.
    margins : float or mapping of measure name to float
        Differences smaller than this do not matter.
    confidence, seed
        Level of all intervals; and the run's seed, which enters the signature.
    engines : sequence of pairs of names
        The same models on different engines: their differences are noise.
    steps : sequence of Step
        Models made from each other: each change has a decision of its own.
    """
    tables = {model: answers.table for model, answers in by_model.items()}
    measures = {
        model: measure_table(
            answers.table,
            answers.specs,
            model=model,
            suite=name,
            signature=signature,
            confidence=confidence,
            seed=seed,
        )
        for model, answers in by_model.items()
    }
    every = (spec for answers in by_model.values() for spec in answers.specs)
    all_specs = list({(spec.measure, where_key(spec.where)): spec for spec in every}.values())
    compared = compare_models(tables, all_specs, suite=name, margins=margins, confidence=confidence)
    comparisons = with_engine_noise(compared, engines, steps)
    # A model that was down has no follow-ups, so items are chosen from the model that was asked the most.
    shown = _example_items(max(by_model.values(), key=lambda answers: len(answers.items)), all_specs)
    return SuiteResult(
        [measure for own in measures.values() for measure in own],
        comparisons,
        [_data_quality(name, model, answers, measures[model]) for model, answers in by_model.items()],
        rank_models(c for c in comparisons if not c.is_subgroup),
        [_attributed(name, step, tables, all_specs, margins, confidence) for step in steps],
        sum(answers.failures.total() for answers in by_model.values()),
        {model: _figures_behind(answers, measures[model], shown) for model, answers in by_model.items()},
        all_specs,
    )


def _attributed(
    suite: str,
    step: Step,
    tables: Mapping[str, Table],
    specs: Sequence[MeasureSpec],
    margins: float | Mapping[str, float],
    confidence: float,
) -> AttributionStep:
    """A step's effect, decided independently of other steps and other pairs of models."""
    pair = {model: tables[model] for model in (step.a, step.b)}
    main = [spec for spec in specs if not spec.is_subgroup]
    return AttributionStep(
        a=Rung(model=step.a, suite=suite),
        b=Rung(model=step.b, suite=suite),
        changes=list(step.changes),
        engine=list(step.engine),
        comparisons=compare_models(pair, main, suite=suite, margins=margins, confidence=confidence),
    )


def _data_quality(suite: str, model: str, answers: SuiteAnswers, measures: Sequence[Measure]) -> DataQuality:
    table = answers.table
    own = np.fromiter((item in answers.items for item in table.index), np.bool_, len(table))  # not the derived rows
    inexact = np.zeros(len(table), dtype=np.bool_)
    for quantity in table.named("value"):
        inexact |= table.has(quantity) & np.isnan(table.quantity(quantity).value)
    lost = list(Table(table.data.filter(own & table.missing), table.levels).rows())
    first = "".join(answers.suite.strata[:1])
    by_level = Counter(str(row.factors.get(first)) for row in lost)
    masses = [m.probability_mass for m in measures if m.probability_mass is not None and not m.is_subgroup]
    n_items = len(answers.items)
    return DataQuality(
        model=model,
        suite=suite,
        n_items=n_items,
        answered=n_items - answers.failures.total(),
        failures=dict(Counter(row.missing or "" for row in lost) | answers.failures),
        failures_by=dict(by_level),
        censored=int((own & inexact).sum()),
        straddled_in_part=answers.boundaries["in part"],
        **{kind: answers.boundaries[kind] for kind in ("merged", "straddled", "altered")},
        probability_mass=min(masses) if masses else None,
        prompt_coverage=prompt_coverage(table, [m.spec for m in measures], answers.items),
    )


def prompt_coverage(table: Table, specs: Sequence[MeasureSpec], items: Collection[str]) -> list[PromptCoverage]:
    """The coverage of all of a suite's prompts; then that of the condition where most are below.

    A mean hides them: of ten prompts nine may hold 1 % of the probability and one 90 %, which is 10 % on average.

    Parameters
    ----------
    table : Table
        One model's rows (n,).
    specs : sequence of MeasureSpec
        The suite's figures. Conditions are those of the figures that are not of a single level.
    items : collection of str
        Ids of the rows that are prompts' answers; others are derived from several.

    Returns
    -------
    list of PromptCoverage
        None without a coverage, one if no condition of 10 prompts or more has a larger share below than all together.
    """
    is_item = np.fromiter((item in items for item in table.index), np.bool_, len(table.index))
    rests = [spec for spec in specs if spec.probability_mass is not None]
    found = {}
    for name in dict.fromkeys(spec.probability_mass for spec in rests if spec.probability_mass is not None):
        own = {where_key(spec.where): spec.where for spec in rests if spec.probability_mass == name}
        behind = np.zeros(len(is_item), dtype=np.bool_)
        for where in own.values():
            behind |= table.matching(where)
        if whole := _coverage_of(table, name, {}, behind & is_item & table.answered):
            found[name] = whole
    if not found:
        return []
    name, whole = max(found.items(), key=lambda of: of[1].n_prompts)
    conditions = {where_key(s.where): s.where for s in rests if s.probability_mass == name and not s.is_subgroup}
    of_each = [_coverage_of(table, name, w, table.matching(w) & is_item & table.answered) for w in conditions.values()]
    worst = max(
        (one for one in of_each if one and one.n_prompts >= _FEWEST_PROMPTS),
        key=lambda one: (one.share_below, one.n_prompts),
        default=whole,
    )
    return [whole, worst] if worst.share_below > whole.share_below else [whole]


def _coverage_of(table: Table, name: str, where: Mapping[str, Scalar], rows: Bools) -> PromptCoverage | None:
    """None if no row has a coverage."""
    coverage = table.quantity(name)
    rows = rows & np.isfinite(coverage.low)
    if not rows.any():
        return None
    low, high = coverage.low[rows], coverage.high[rows]
    return PromptCoverage(
        where=dict(where),
        n_prompts=int(rows.sum()),
        below=int((high < LITTLE_COVERAGE).sum()),
        may_be_below=int((low < LITTLE_COVERAGE).sum()),
        median=float(np.median(low)),
        lowest=float(low.min()),
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
