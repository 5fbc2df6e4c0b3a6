"""Tables in the papers' layouts, filled from measures and published figures."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import MISSING, figure, number, why_missing
from audit.report.labels import level_label
from audit.report.safe_text import one_line
from audit.results import Measure, where_key


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table's cell, and the figure it comes from if it was measured here.

    ``note`` says why a value is missing. ``numbers`` are what is written, unrounded, in the table's
    scale: value, low, high, plus_minus (a paper's spread), bound_low and bound_high, where known.
    """

    value: str
    interval: str = ""
    measure: Measure | None = None
    note: str = ""
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
    """``groups`` are the upper heading's cells: (label, columns it spans)."""

    suite: str
    name: str
    title: str
    source: str
    note: str
    stub: str
    groups: list[tuple[str, int]]
    columns: list[str]
    blocks: list[Block]


def paper_tables(figures: Figures, suite: str) -> list[PaperTable]:
    """Every table the suite declares; published rows are set apart from measured ones."""
    info = next(s for s in figures.result.suites if s.name == suite)
    return [_table(figures, suite, layout, info.published) for layout in info.tables]


def _table(
    figures: Figures, suite: str, layout: Mapping[str, Any], published: Sequence[Mapping[str, Any]]
) -> PaperTable:
    columns = layout["columns"]
    printed = {(p["model"], p["measure"], where_key(p["where"])): p for p in published}
    names = list(dict.fromkeys(p["model"] for p in published))

    def measured(model: str, where: Mapping[str, Any]) -> list[Cell]:
        return [_measured(layout, figures.get(suite, c["measure"], {**where, **c["where"]}, model)) for c in columns]

    def from_paper(model: str, where: Mapping[str, Any]) -> list[Cell]:
        return [
            _published(layout, printed.get((model, c["measure"], where_key({**where, **c["where"]})))) for c in columns
        ]

    def filled(cells: Sequence[Cell]) -> bool:
        return any(cell.text != MISSING for cell in cells)

    if not layout["rows"]:
        rows = [TableRow(one_line(model), measured(model, {})) for model in figures.models]
        paper = [TableRow(one_line(model), cells) for model in names if filled(cells := from_paper(model, {}))]
        blocks = [Block("Measured in this run", rows)]
        if paper:
            blocks.append(Block("Published", paper, published=True))
    else:
        blocks = [
            Block(
                one_line(model),
                [TableRow(one_line(label), measured(model, where)) for label, where in layout["rows"]],
                model=number_,
            )
            for number_, model in enumerate(figures.models)
        ]
        for model in names:
            rows = [TableRow(one_line(label), from_paper(model, where)) for label, where in layout["rows"]]
            if any(filled(row.cells) for row in rows):
                blocks.append(Block(f"{one_line(model)} (published)", rows, published=True))
    groups = [(one_line(label), len(list(cs))) for label, cs in itertools.groupby(columns, key=lambda c: c["group"])]
    return PaperTable(
        suite=suite,
        name=layout["name"],
        title=one_line(layout["title"]),
        source=one_line(layout["source"]),
        note=one_line(layout.get("note", "")),  # results of older runs have none
        stub="Model" if not layout["rows"] else _stub(layout["rows"]),
        groups=groups if any(label for label, _ in groups) else [],
        columns=[one_line(c["label"]) for c in columns],
        blocks=blocks,
    )


def _stub(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Heading of the row labels: the factor that the rows go through."""
    keys = list(dict.fromkeys(key for _, where in rows for key in where))
    return level_label(keys[0]).capitalize() if keys else ""


def _measured(layout: Mapping[str, Any], measure: Measure | None) -> Cell:
    if measure is None or (text := figure(measure, layout["scale"], layout["decimals"])) == MISSING:
        return Cell(MISSING, measure=measure, note=why_missing(measure))
    value, bracket, interval = text.partition(" [")
    known = {name: getattr(measure, name) for name in ("value", "low", "high", "bound_low", "bound_high")}
    return Cell(value, f"{bracket.strip()}{interval}", measure, numbers=_scaled(known, layout))


def _published(layout: Mapping[str, Any], printed: Mapping[str, Any] | None) -> Cell:
    if printed is None:
        return Cell(MISSING, note="not printed in the paper")
    numbers = _scaled({"value": printed["value"], "plus_minus": printed.get("plus_minus")}, layout)
    value, spread = (number(numbers.get(name), layout["decimals"]) for name in ("value", "plus_minus"))
    return Cell(value, f"± {spread}" if "plus_minus" in numbers else "", numbers=numbers)


def _scaled(numbers: Mapping[str, float | None], layout: Mapping[str, Any]) -> dict[str, float]:
    return {name: x * layout["scale"] for name, x in numbers.items() if x is not None}
