"""The data for the report's scripts: plots, figures and texts, with each text stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from audit.report.charts.plots import FigureTable, Plot
from audit.report.figures import Figures
from audit.report.formatting import MISSING, bounded, figure, measure_label, shortened
from audit.report.phrases.verdict import Side, side_of
from audit.report.plain_text import one_line
from audit.report.tables import missing_reason
from audit.results import Measure


def plot_data(plot: Plot) -> dict[str, Any]:
    """A plot with the rows of its panels."""
    return {
        "kind": plot.kind,
        "spec": plot.spec,
        "aspect": plot.aspect,
        "heights": plot.heights,
        "panels": [
            {"title": panel.title, "rows": panel.rows, "ends": panel.ends, "axis": panel.axis} for panel in plot.panels
        ],
    }


def figure_data(figures: Figures, table: FigureTable) -> dict[str, Any]:
    """The figures by column names; texts, conditions and parts of signatures by their numbers."""
    alpha = 1 - figures.result.confidence
    suites = {info.name: i for i, info in enumerate(figures.result.suites)}
    texts: dict[str, int] = {}
    signatures: dict[str, int] = {}
    conditions: dict[str, int] = {}
    sides: dict[Side, int] = {"above": 1, "below": -1}

    columns: dict[str, Callable[[Measure], Any]] = {
        "id": lambda m: m.id,
        "suite": lambda m: suites[m.suite],
        "model": lambda m: figures.model_number[m.model],
        "measure": lambda m: _numbered(texts, measure_label(m.measure)),
        "where": lambda m: _numbered(conditions, figures.where_label(m.suite, m.where)),
        "text": figure,
        "value": lambda m: shortened(m.value),
        "low": lambda m: shortened(m.low),
        "high": lambda m: shortened(m.high),
        "boundLow": lambda m: shortened(m.bound_low) if bounded(m) else None,
        "boundHigh": lambda m: shortened(m.bound_high) if bounded(m) else None,
        "completeLow": lambda m: shortened(m.complete_case_low),
        "completeHigh": lambda m: shortened(m.complete_case_high),
        "items": lambda m: m.n_items,
        "clusters": lambda m: m.n_clusters,
        "missing": lambda m: m.missing,
        "censored": lambda m: m.censored,
        "coverage": lambda m: shortened(m.probability_mass),
        "signature": lambda m: _numbered(signatures, one_line(m.signature)),
        "neutral": lambda m: m.neutral,
        "side": lambda m: 0 if m.neutral is None else sides.get(side_of(m, m.neutral, alpha), 0),
        "isSubgroup": lambda m: int(m.is_subgroup),
        "reason": lambda m: _numbered(texts, "" if figure(m) != MISSING else missing_reason(m)),
        "p": lambda m: shortened(m.p),
        "pHolm": lambda m: shortened(m.p_adjusted),
    }
    rows = [[value(m) for value in columns.values()] for m in table.measures]
    # Signatures are long and similar, so their parts are stored, each part once.
    parts = [[_numbered(texts, part) for part in signature.split("|")] for signature in signatures]
    return {
        "columns": list(columns),
        "rows": rows,
        "texts": list(texts),
        "signatures": parts,
        "conditions": list(conditions),
    }


def _numbered(numbers: dict[Any, int], thing: Any) -> int:
    """The number of a value, by first occurrence."""
    return numbers.setdefault(thing, len(numbers))
