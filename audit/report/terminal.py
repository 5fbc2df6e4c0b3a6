"""Prints results, comparisons and histories on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from audit.analysis.comparing.agreement import FEWEST_MODELS, Agreement
from audit.report.figures import Figures
from audit.report.formatting import MISSING, figure, measure_label, number, p_value, where_label, with_interval
from audit.report.phrases.comparisons import comparison_rows, interval_behind, rests_on
from audit.report.phrases.gate import check_words, gate_summary, limit_lines, limits_overview
from audit.report.phrases.history import (
    absence_line,
    agreement_scope,
    changed_notes,
    correlation_text,
    figure_title,
    gate_lines,
    series_title,
)
from audit.report.phrases.summary import scope, summary
from audit.report.plain_text import one_line, plain_console
from audit.report.templating import count
from audit.results import OPEN_VERDICTS, VERDICT_WORDS, AuditResult, Comparison

if TYPE_CHECKING:
    from audit.analysis.history import History
    from audit.results import GateReport

_LIMITS = 4  # printed; all are in the report
_VERDICT_STYLES = {"larger": "bold", "smaller": "bold", "equivalent": "green", "not comparable": "dim"}


def print_result(result: AuditResult, console: Console | None = None) -> None:
    """Each suite's headline figures by model, and the summary."""
    console = console or plain_console()
    figures = Figures(result)
    console.print(Text(scope(figures)))
    for info in result.suites:
        headline = figures.headline(info.name)
        table = _table(one_line(info.title))
        table.add_column("Model", overflow="fold")
        for (name, _), label in zip(headline, figures.headline_labels(info.name), strict=True):
            table.add_column(Text(f"{measure_label(name)}\n{label}".rstrip()), justify="right")
        for model in figures.models:
            cells = [figures.get(info.name, name, where, model) for name, where in headline]
            table.add_row(Text(one_line(model)), *(Text(MISSING if m is None else figure(m)) for m in cells))
        console.print(table)
    if overview := limits_overview(result):
        console.print(Text(overview))
    limits = limit_lines(result)
    for line in limits[:_LIMITS]:
        console.print(Text(f"• {line.text}"), style="" if line.verdict == "met" else "yellow")
    if len(limits) > _LIMITS:
        console.print(Text(f"• {count(len(limits) - _LIMITS, 'more limit')} in the report"))
    for row in comparison_rows(figures)[0]:
        place = f", {row.condition}" if row.condition else ""
        console.print(Text(f"• {row.pair}{place}: {row.difference} {row.verdict}".rstrip()))
    for sentence in summary(figures):
        console.print(Text(f"• {sentence.text}"), style="yellow" if sentence.kind == "caution" else "")


def print_comparisons(figures: Figures, comparisons: Iterable[Comparison], console: Console | None = None) -> None:
    """A table for each suite and pair, one line per figure, the primary first: the difference with the interval behind
    the verdict, p, margin, verdict."""
    console = console or plain_console()
    pairs: dict[str, list[Comparison]] = {}
    for c in comparisons:
        pairs.setdefault(f"{one_line(c.suite)}: {one_line(c.b)} − {one_line(c.a)}", []).append(c)
    for title, of_pair in pairs.items():
        table = _table(title, padding=(0, 1, 0, 0))
        table.add_column("Figure")
        for name in ("Difference", "p (corrected)", "Margin"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("Verdict", no_wrap=True)
        for c in sorted(of_pair, key=lambda c: not c.primary):
            low, high, _ = interval_behind(c)
            remarks = ["identical"] * c.identical + [rests_on(c.levels)] * (c.verdict != "not comparable")
            table.add_row(
                Text(f"{measure_label(c.measure)}: {figures.where_label(c.suite, c.where)}"),
                Text(with_interval(c.difference, low, high)),
                p_value(c.p_adjusted),
                f"±{c.margin:g}",
                Text("\n".join(filter(None, [VERDICT_WORDS[c.verdict], *remarks])), _VERDICT_STYLES.get(c.verdict, "")),
            )
        console.print(table)


def print_gate(report: GateReport, console: Console | None = None) -> None:
    """Every check in words: what failed first, then what is open, then the rest."""
    console = console or plain_console()
    heading, counted = gate_summary(report)
    console.print(Text(heading, style="bold"))
    console.print(Text(counted))
    failed = {id(check) for check in report.failures}
    styles = {id(check): "red" for check in report.failures}
    is_open = [c for c in report.checks if c.verdict in OPEN_VERDICTS and id(c) not in failed]
    styles |= {id(check): "yellow" for check in is_open}
    shown = {id(check): check for check in [*report.failures, *is_open, *report.checks]}
    for key, check in shown.items():
        console.print(Text(f"• {check.verdict}: {check_words(check)}", style=styles.get(key, "")))


def print_history(history: History) -> None:
    """One table per figure, the primary first, one line per run: value with interval, items, changes. Then the gaps."""
    console = plain_console()
    for series in sorted(history.series, key=lambda series: not series.primary):
        table = _table(f"{series_title(series)} · {where_label(series.where)} · {one_line(series.model)}")
        table.add_column("Run (UTC)", no_wrap=True)
        for heading in ("Figure", "Items"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("Changed", overflow="fold")
        for point in series.points:
            table.add_row(
                point.at[:19].replace("T", " "),
                Text(figure(point)),
                f"{point.n_items:,}",
                Text(changed_notes(point), style="yellow"),
            )
        console.print(table)
    for line in gate_lines(history) if history.checks else ():
        console.print(Text(f"• {line}"))
    for gap in history.absences:
        console.print(Text(f"• {absence_line(gap)}"), style="yellow")
    if not history.series:
        console.print("No figure in this store matches.")


def print_agreement(found: Agreement) -> None:
    """Spearman's ρ of every two figures, the closest first; then each figure's models with value and rank."""
    console = plain_console()
    for line in agreement_scope(found, FEWEST_MODELS):
        console.print(Text(line))
    titles = [figure_title(figure) for figure in found.figures]
    for c in sorted(found.correlations, key=lambda c: (c.rho is None, -(c.rho or 0.0))):
        console.print(Text(f"• {titles[c.a]} and {titles[c.b]}: ρ {correlation_text(c)}, {count(c.n_models, 'model')}"))
    if not found.correlations:
        console.print("The store has no primary figures from two suites.")
    for title, ranked in zip(titles, found.figures, strict=True):
        ranks = _table(title)
        for heading in ("Model", "Value", "Rank (1: the largest value)"):
            ranks.add_column(heading, justify="left" if heading == "Model" else "right")
        for model, rank in sorted(ranked.ranks.items(), key=lambda of: of[1]):
            ranks.add_row(Text(one_line(model)), number(ranked.values[model]), f"{rank:g}")
        console.print(ranks)


def _table(title: str, **layout: Any) -> Table:
    return Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", **layout)
