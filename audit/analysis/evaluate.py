"""Computes the figures of one suite from the models' answers.

Takes parsed responses; gives measures, comparisons, ranks, engine drift and data quality. Does not read the store or
ask models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audit.analysis.comparing.comparisons import compare_models, rank_models
from audit.analysis.comparing.engine_noise import engine_drift, with_engine_noise
from audit.analysis.measures import measure_rows
from audit.analysis.prompt_coverage import prompt_coverage
from audit.analysis.rows.responses import ParsedResponses
from audit.analysis.rows.table import Bools, RowTable
from audit.results import Comparison, DataQuality, EngineDrift, Measure, Ranking, Where, where_key
from suites.base import MeasureSpec, Suite

#: Maximum number of items shown behind a derived row.
_SOURCES_SHOWN = 2


@dataclass(frozen=True)
class SuiteResponses:
    """Each model's parsed responses to one suite, by the model's name in the report."""

    name: str
    suite: Suite
    by_model: Mapping[str, ParsedResponses]


@dataclass(frozen=True)
class EvaluationOptions:
    """How figures are computed.

    Attributes
    ----------
    signature : mapping
        Everything needed to reproduce the suite's figures, except the model.
    margins : float or mapping of measure name to float
        Differences smaller than this do not matter.
    largest_change : float or None
        As in `audit.analysis.comparing.comparisons.compare_models`.
    unseen_log_odds : float
        As in `audit.analysis.measures.measure_rows`.
    engines : sequence of pairs of names
        The same models on different engines: their differences are noise.
    lineage : collection of pairs of names
        Models derived from each other: their differences are changes, not noise.
    confidence : float
        Level of all intervals, in (0, 1).
    seed : int
        Seed for resampling.
    """

    signature: Mapping[str, Any]
    margins: float | Mapping[str, float]
    largest_change: float | None
    unseen_log_odds: float
    engines: Sequence[tuple[str, str]]
    lineage: Collection[frozenset[str]]
    confidence: float
    seed: int


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
    drift: list[EngineDrift]
    unanswered: int
    examples: Mapping[str, Mapping[str, list[str]]]
    specs: list[MeasureSpec]


def evaluate_suite(responses: SuiteResponses, options: EvaluationOptions) -> SuiteResult:
    """Measure one suite for every model, and compare the models."""
    name, by_model = responses.name, responses.by_model
    specs = {model: list(responses.suite.measures(parsed.rows)) for model, parsed in by_model.items()}
    tables = {model: RowTable(parsed.rows) for model, parsed in by_model.items()}
    measures = {
        model: measure_rows(
            tables[model],
            own,
            model=model,
            suite=name,
            signature=options.signature,
            confidence=options.confidence,
            seed=options.seed,
            unseen_log_odds=options.unseen_log_odds,
        )
        for model, own in specs.items()
    }
    all_specs = list({(spec.measure, where_key(spec.where)): spec for own in specs.values() for spec in own}.values())
    comparisons = with_engine_noise(
        compare_models(
            {model: parsed.rows for model, parsed in by_model.items()},
            all_specs,
            suite=name,
            margins=options.margins,
            largest_change=options.largest_change,
            confidence=options.confidence,
        ),
        options.engines,
        options.lineage,
    )
    # A model that was down has no follow-ups, so items are chosen from the model that was asked the most.
    fullest = max(by_model, key=lambda model: len(by_model[model].by_item))
    shown = _example_items(by_model[fullest], tables[fullest], all_specs)
    return SuiteResult(
        [measure for own in measures.values() for measure in own],
        comparisons,
        [_data_quality(name, model, parsed, tables[model], measures[model]) for model, parsed in by_model.items()],
        rank_models(c for c in comparisons if not c.is_subgroup),
        _drift(responses, options.engines),
        sum(parsed.failures.total() for parsed in by_model.values()),
        {
            model: _figures_behind(parsed, tables[model], specs[model], measures[model], shown)
            for model, parsed in by_model.items()
        },
        all_specs,
    )


def _drift(responses: SuiteResponses, engines: Sequence[tuple[str, str]]) -> list[EngineDrift]:
    if "score" not in responses.suite.needs:
        return []
    parsed = responses.by_model
    return [
        engine_drift(responses.name, a, b, parsed[a].logprobs(), parsed[b].logprobs(), parsed[a].rows, parsed[b].rows)
        for a, b in engines
    ]


def _data_quality(
    suite: str, model: str, parsed: ParsedResponses, table: RowTable, measures: Sequence[Measure]
) -> DataQuality:
    factors = [name for name in (parsed.suite.failures_factor, *parsed.suite.strata[:1]) if name is not None]
    unreadable, by_level, censored = Counter[str](), Counter[str](), 0
    for row in parsed.rows:
        if row.item_id not in parsed.by_item:  # derived rows are not items
            continue
        censored += any(not value.is_exact for value in row.values.values())
        if row.missing:
            unreadable[row.missing] += 1
            by_level[str(next((row.factors[name] for name in factors if name in row.factors), None))] += 1
    masses = [m.probability_mass for m in measures if m.probability_mass is not None and not m.is_subgroup]
    n_items = len(parsed.by_item)
    return DataQuality(
        model=model,
        suite=suite,
        n_items=n_items,
        answered=n_items - parsed.failures.total(),
        failures=dict(unreadable | parsed.failures),
        failures_by=dict(by_level),
        censored=censored,
        merged=parsed.merged,
        straddled=parsed.straddled,
        straddled_in_part=parsed.straddled_in_part,
        probability_mass=min(masses) if masses else None,
        prompt_coverage=prompt_coverage(table, [m.spec for m in measures], parsed.by_item),
    )


# -- example items -----------------------------------------------------------------------------


def _behind(table: RowTable, spec: MeasureSpec) -> Bools:
    """Rows (n,) behind a figure, including those without an answer."""
    return table.matching(spec.where) & (table.has(spec.quantity) | table.missing)


def _example_items(parsed: ParsedResponses, table: RowTable, specs: Sequence[MeasureSpec]) -> set[str]:
    """Items to show for all models, chosen from one model's rows: at least one behind every figure."""
    rows = parsed.rows
    shown = np.zeros(len(rows), dtype=np.bool_)
    chosen = []
    for spec in sorted(specs, key=lambda s: -len(s.where)):
        behind = _behind(table, spec)
        if behind.any() and not (behind & shown).any():
            chosen.append(int(behind.argmax()))
            shown[chosen[-1]] = True
    items = (item for index in chosen for item in rows[index].items[:_SOURCES_SHOWN])
    return {item for item in items if item in parsed.by_item}


def _figures_behind(
    parsed: ParsedResponses,
    table: RowTable,
    specs: Sequence[MeasureSpec],
    measures: Sequence[Measure],
    shown: Collection[str],
) -> dict[str, list[str]]:
    """For each shown item, follow-ups last, the ids of one model's figures that use it."""
    ids: dict[tuple[str, Where], str] = {(m.measure, where_key(m.where)): m.id for m in measures}
    # One entry for each shown item in each row that uses it.
    places = [(number, item) for number, row in enumerate(parsed.rows) for item in row.items if item in shown]
    of_rows = np.array([number for number, _ in places], dtype=np.intp)
    in_order = sorted(
        (item for item in shown if item in parsed.by_item), key=lambda i: (len(parsed.place(i)), parsed.place(i))
    )
    figures: dict[str, list[str]] = {item: [] for item in in_order}
    for spec in specs:
        figure = ids[spec.measure, where_key(spec.where)]
        for place in np.flatnonzero(_behind(table, spec)[of_rows]).tolist():
            listed = figures.get(places[place][1])
            if listed is not None and (not listed or listed[-1] != figure):
                listed.append(figure)
    return figures
