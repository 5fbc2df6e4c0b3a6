"""Tables in the papers' layouts, filled from measures and published figures; and the table of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.report.figures import Condition, Figures
from audit.report.formatting import MISSING, figure, level_label, measure_label, number, one_line
from audit.report.phrases import captions
from audit.results import Measure, Rank, where_key


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a table's cell, and the figure it comes from if it was measured here.

    ``reason`` says why a value is missing. ``numbers`` are what is written, unrounded, in the table's
    scale: value, low, high, plus_minus (a paper's spread), bound_low and bound_high, where known.
    """

    value: str
    interval: str = ""
    measure: Measure | None = None
    reason: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Value and interval in one line."""
        return f"{self.value} {self.interval}".strip()


@dataclass(frozen=True, slots=True)
class TableRow:
    label: str
    cells: list[Cell]


@dataclass(frozen=True, slots=True)
class Block:
    """Rows that belong together: of one model, of all measured models, or of the published ones."""

    heading: str
    rows: list[TableRow]
    published: bool = False
    model: int | None = None


@dataclass(frozen=True, slots=True)
class PaperTable:
    """``groups`` are the upper heading's cells: (label, columns it spans). ``remark`` stands below the table."""

    suite: str
    name: str
    title: str
    source: str
    remark: str
    stub: str
    groups: list[tuple[str, int]]
    columns: list[str]
    blocks: list[Block]

    def column_names(self, join: Callable[[str, str], str]) -> list[str]:
        """The columns by one name each: ``join(group, column)`` where they stand in groups."""
        spans = [label for label, span in self.groups for _ in range(span)] or [""] * len(self.columns)
        return [join(g, c) if g else c for g, c in zip(spans, self.columns, strict=True)]


def paper_tables(figures: Figures, suite: str) -> list[PaperTable]:
    """Every table the suite declares; published rows are kept apart from measured ones."""
    info = figures.suite(suite)
    return [_table(figures, suite, layout, info.published) for layout in info.tables]


def rank_rows(figures: Figures, suite: str) -> list[tuple[str, dict[str, Rank]]]:
    """For each of the suite's headline figures that is ranked: (what, model → rank)."""
    ranks = {
        (ranking.measure, where_key(ranking.where)): {rank.model: rank for rank in ranking.ranks}
        for ranking in figures.result.rankings
        if ranking.suite == suite
    }
    return [
        (f"{measure_label(name)}{f' ({condition})' if condition else ''}", ranks[name, where_key(where)])
        for (name, where), condition in zip(figures.headline(suite), figures.headline_labels(suite), strict=True)
        if (name, where_key(where)) in ranks
    ]


def _table(
    figures: Figures, suite: str, layout: Mapping[str, Any], published: Sequence[Mapping[str, Any]]
) -> PaperTable:
    columns = layout["columns"]
    by_figure = {(p["model"], p["measure"], where_key(p["where"])): p for p in published}
    papers = list(dict.fromkeys(p["model"] for p in published))

    def measured(model: str, label: str, where: Condition) -> TableRow:
        cells = (figures.get(suite, c["measure"], {**where, **c["where"]}, model) for c in columns)
        return TableRow(one_line(label), [_measured(layout, cell) for cell in cells])

    def printed(model: str, label: str, where: Condition) -> TableRow:
        cells = (by_figure.get((model, c["measure"], where_key({**where, **c["where"]}))) for c in columns)
        return TableRow(one_line(label), [_published(layout, cell) for cell in cells])

    if layout["rows"]:
        blocks = [
            Block(one_line(model), [measured(model, *row) for row in layout["rows"]], model=number_)
            for number_, model in enumerate(figures.models)
        ]
        for model in papers:
            rows = [printed(model, *row) for row in layout["rows"]]
            if any(map(_has_value, rows)):
                blocks.append(Block(captions.published_block(one_line(model)), rows, published=True))
    else:
        blocks = [Block(captions.MEASURED_HERE, [measured(model, model, {}) for model in figures.models])]
        if rows := [row for model in papers if _has_value(row := printed(model, model, {}))]:
            blocks.append(Block(captions.PUBLISHED, rows, published=True))
    groups = [(one_line(label), len(list(cs))) for label, cs in itertools.groupby(columns, key=lambda c: c["group"])]
    return PaperTable(
        suite=suite,
        name=layout["name"],
        title=one_line(layout["title"]),
        source=one_line(layout["source"]),
        remark=one_line(layout.get("note", "")),  # results of older runs have none
        stub=_stub(layout["rows"]) if layout["rows"] else "Model",
        groups=groups if any(label for label, _ in groups) else [],
        columns=[one_line(c["label"]) for c in columns],
        blocks=blocks,
    )


def _has_value(row: TableRow) -> bool:
    return any(cell.text != MISSING for cell in row.cells)


def _stub(rows: Sequence[tuple[str, Condition]]) -> str:
    """Heading of the row labels: the factor that the rows go through."""
    keys = list(dict.fromkeys(key for _, where in rows for key in where))
    return level_label(keys[0]).capitalize() if keys else ""


def _measured(layout: Mapping[str, Any], measure: Measure | None) -> Cell:
    if measure is None or (text := figure(measure, layout["scale"], layout["decimals"])) == MISSING:
        return Cell(MISSING, measure=measure, reason=captions.missing_reason(measure))
    value, bracket, interval = text.partition(" [")
    numbers = {name: getattr(measure, name) for name in ("value", "low", "high", "bound_low", "bound_high")}
    return Cell(value, f"{bracket.strip()}{interval}", measure, numbers=_scaled(numbers, layout))


def _published(layout: Mapping[str, Any], printed: Mapping[str, Any] | None) -> Cell:
    if printed is None:
        return Cell(MISSING, reason=captions.NOT_PRINTED)
    numbers = _scaled({"value": printed["value"], "plus_minus": printed.get("plus_minus")}, layout)
    value, spread = (number(numbers.get(name), layout["decimals"]) for name in ("value", "plus_minus"))
    return Cell(value, f"± {spread}" if "plus_minus" in numbers else "", numbers=numbers)


def _scaled(numbers: Mapping[str, float | None], layout: Mapping[str, Any]) -> dict[str, float]:
    return {name: x * layout["scale"] for name, x in numbers.items() if x is not None}
