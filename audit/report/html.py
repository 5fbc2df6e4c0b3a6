"""The report as one HTML file that needs no network: words, plots, tables, and what is behind them."""

from __future__ import annotations

from typing import Any

from audit.report import phrases as words
from audit.report.charts import FigureTable, Plot, forest_plot, headline_plot, short, suite_plots
from audit.report.drift_plots import drift_plot, noise_plot
from audit.report.examples import shown_examples
from audit.report.figures import Figures
from audit.report.formatting import MISSING, bounded, figure, why_missing
from audit.report.labels import measure_label, where_label
from audit.report.page import render_page
from audit.report.safe_text import one_line
from audit.report.tables import paper_tables
from audit.report.vega_specs import CONFIG, VERDICTS
from audit.results import VERDICT_WORDS, AuditResult, Measure, where_key


def html_report(result: AuditResult, *, trend: bool = False) -> str:
    """The whole page; with ``trend`` it leads to a trend.html beside it."""
    figures = Figures(result)
    table = FigureTable()
    plots: list[Plot] = []

    def numbered(plot: Plot | None) -> tuple[int, Plot] | None:
        if plot is None:
            return None
        plots.append(plot)
        return len(plots) - 1, plot

    headline = numbered(headline_plot(figures, table))
    suites: list[dict[str, Any]] = []
    for info in result.suites:
        drawn = suite_plots(figures, table, info.name, info.charts)
        titles = {plot.title for plot in drawn}
        suites.append(
            {
                "info": info,
                "undrawn": [t for chart in info.charts if (t := one_line(chart["title"])) not in titles],
                "summary": words.suite_summary(figures, info.name),
                "plots": [numbered(plot) for plot in drawn],
                "forest": numbered(forest_plot(figures, info.name)),
                "drift_plots": [numbered(plot(figures, info.name)) for plot in (drift_plot, noise_plot)],
                "rankings": figures.rankings(info.name),
                "drift": [drift for drift in result.drift if drift.suite == info.name],
                "tables": paper_tables(figures, info.name),
                "data_quality": [entry for entry in result.data_quality if entry.suite == info.name],
            }
        )
    for measure in result.measures:
        if not measure.is_subgroup:
            table.number(measure)
    for suite in suites:
        for paper_table in suite["tables"]:
            for block in paper_table.blocks:
                for cell in (cell for row in block.rows for cell in row.cells if cell.measure):
                    table.number(cell.measure)
    examples, left_out = shown_examples(result, {m.id: number for number, m in enumerate(table.measures)})
    data = {
        "models": [one_line(name) for name in figures.models],
        "suites": [one_line(info.title) for info in result.suites],
        "confidence": result.confidence,
        "verdicts": [VERDICT_WORDS[verdict] for verdict in VERDICTS],
        "config": CONFIG,
        "plots": [_plot_data(plot) for plot in plots],
        "figures": _figure_data(result, table),
        "examples": examples,
    }
    return render_page(
        "report.html.j2",
        ("page.js", "report.js"),
        data,
        result=result,
        figures=figures,
        asked=words.asked(figures),
        summary=words.summary(figures),
        headline=headline,
        suites=suites,
        left_out=left_out,
        shown=len(examples),
        figure_number=table.number,
        trend=trend,
    )


def _plot_data(plot: Plot) -> dict[str, Any]:
    """A plot for the page's script. Differences, of which there are most, are lists in the order of ``columns``."""
    columns = list(dict.fromkeys(key for p in plot.panels for row in p.rows for key in row))
    listed = plot.kind in ("forest", "drift", "noise")
    return {
        "kind": plot.kind,
        "spec": plot.spec,
        "aspect": plot.aspect,
        "heights": plot.heights,
        "names": plot.names,
        "columns": columns if listed else None,
        "panels": [
            {
                "title": p.title,
                "rows": [[row.get(key) for key in columns] for row in p.rows] if listed else p.rows,
                "ends": p.ends,
            }
            for p in plot.panels
        ],
    }


def _figure_data(result: AuditResult, table: FigureTable) -> dict[str, Any]:
    """The figures by column names, with repeated texts told once."""
    suites = {info.name: i for i, info in enumerate(result.suites)}
    models = {info.name: i for i, info in enumerate(result.models)}
    texts: dict[str, int] = {}
    signatures: dict[str, int] = {}
    places: dict[Any, int] = {}
    conditions: list[dict[str, Any]] = []

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    def where(measure: Measure) -> int:
        key = where_key(measure.where)
        if key not in places:
            places[key] = len(places)
            conditions.append({"label": where_label(measure.where)})
        return places[key]

    rows = [
        [
            m.id,
            suites[m.suite],
            models[m.model],
            text(measure_label(m.measure)),
            where(m),
            figure(m),
            short(m.value),
            short(m.low),
            short(m.high),
            short(m.bound_low) if bounded(m) else None,
            short(m.bound_high) if bounded(m) else None,
            short(m.naive_low),
            short(m.naive_high),
            m.n_items,
            m.n_clusters,
            m.missing,
            m.censored,
            short(m.probability_mass),
            signatures.setdefault(one_line(m.signature), len(signatures)),
            m.neutral,
            text(one_line(m.unit)),
            text(one_line(m.estimator)),
            int(m.is_subgroup),
            text("" if figure(m) != MISSING else why_missing(m)),
            short(m.p),
            short(m.p_holm),
        ]
        for m in table.measures
    ]
    # Signatures are long and mostly alike: told as their parts, and each part once.
    parts = [[text(part) for part in signature.split("|")] for signature in signatures]
    return {
        "columns": [
            "id", "suite", "model", "measure", "where", "text", "value", "low", "high", "boundLow", "boundHigh",
            "naiveLow", "naiveHigh", "items", "clusters", "missing", "censored", "coverage", "signature", "neutral",
            "unit", "estimator", "detail", "why", "p", "pHolm",
        ],
        "rows": rows,
        "texts": list(texts),
        "signatures": parts,
        "conditions": conditions,
    }  # fmt: skip
