"""Tables in the papers' layouts, with measured and published figures; and the table of ranks."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.report.figures import Condition, Figures
from audit.report.formatting import MISSING, figure, level_label, measure_label, number
from audit.report.plain_text import distinct_names, file_name, one_line
from audit.results import Measure, Rank, Reproduction, Where, where_key
from backends.base import Scalar
from suites.base import KIND

_NOT_PRINTED = "not printed in the paper"


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a table's cell, and the figure it comes from if it was measured here.

    ``reason`` says why a value is missing. ``numbers`` are the unrounded numbers in the table's
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
    """Rows that belong together: of one model, of all measured models, of the published ones, or of differences between
    the two (``compared``).
    """

    heading: str
    rows: list[TableRow]
    published: bool = False
    model: int | None = None
    compared: bool = False


@dataclass(frozen=True, slots=True)
class PaperTable:
    """``groups`` are the upper heading's cells: (label, columns it spans). ``remarks`` stand below the table."""

    suite: str
    name: str
    title: str
    source: str
    remarks: list[str]
    stub: str
    groups: list[tuple[str, int]]
    columns: list[str]
    blocks: list[Block]

    def column_names(self, join: Callable[[str, str], str]) -> list[str]:
        """One name for each column: ``join(group, column)`` if columns are grouped."""
        spans = [label for label, span in self.groups for _ in range(span)] or [""] * len(self.columns)
        return [join(g, c) if g else c for g, c in zip(spans, self.columns, strict=True)]


def paper_tables(figures: Figures, suite: str) -> list[PaperTable]:
    """Every table the suite declares; published rows are kept separate from measured ones."""
    info = figures.suite(suite)
    return [_table(figures, suite, layout, info.published) for layout in info.tables]


def named_tables(figures: Figures) -> Iterator[tuple[str, str, PaperTable]]:
    """(suite/table, file name without ending, table) of every suite; its figures if no table shows a leading one."""
    tables: list[PaperTable] = []
    for info in figures.result.suites:
        shown = {column["measure"] for layout in info.tables for column in layout["columns"]}
        leading = {name for name, _, _ in figures.leading(info.name)}
        tables += paper_tables(figures, info.name)
        tables += [] if info.tables and (leading & shown or not leading) else [_of_figures(figures, info.name)]

    def stem(key: str) -> str:
        return "-".join(map(file_name, key.rsplit("/", 1)))

    names = distinct_names([f"{table.suite}/{table.name}" for table in tables], stem)
    for table in tables:
        key = f"{table.suite}/{table.name}"
        yield key, f"tables/{names[key]}", table


def _of_figures(figures: Figures, suite: str) -> PaperTable:
    """A suite's figures but those of single levels: a column for each measure, a row for each condition."""
    specs = [m.spec for m in figures.result.measures if m.suite == suite and not m.spec.is_subgroup]
    kinds: dict[str, set[Scalar]] = defaultdict(set)
    for spec in specs:
        kinds[spec.measure].add(spec.where.get(KIND))
    fixed = {name: {KIND: next(iter(of))} for name, of in kinds.items() if len(of) == 1 and None not in of}
    conditions = [{k: v for k, v in s.where.items() if k not in fixed.get(s.measure, {})} for s in specs]
    by_condition = {where_key(where): where for where in conditions}
    layout = {
        "name": "figures",
        "title": f"Figures of {suite}",
        "source": "",
        "columns": [
            {"label": measure_label(name), "measure": name, "where": fixed.get(name, {}), "group": ""} for name in kinds
        ],
        "rows": [(figures.where_label(suite, where), where) for where in by_condition.values()],
        "scale": 1.0,
        "decimals": 3,
    }
    return _table(figures, suite, layout, ())


def rank_rows(figures: Figures, suite: str) -> list[tuple[str, dict[str, Rank]]]:
    """For each of the suite's leading figures that is ranked: (what, model → rank)."""
    ranks = {
        (ranking.measure, where_key(ranking.where)): {rank.model: rank for rank in ranking.ranks}
        for ranking in figures.result.rankings
        if ranking.suite == suite
    }
    return [
        (f"{measure_label(name)}{f' ({condition})' if condition else ''}", ranks[name, where_key(where)])
        for name, where, condition in figures.leading(suite)
        if (name, where_key(where)) in ranks
    ]


def _table(
    figures: Figures, suite: str, layout: Mapping[str, Any], published: Sequence[Mapping[str, Any]]
) -> PaperTable:
    columns = layout["columns"]
    printed = _Printed(layout, published)

    def measured(model: str, label: str, where: Condition) -> TableRow:
        cells = (figures.get(suite, c["measure"], {**where, **c["where"]}, model) for c in columns)
        return TableRow(one_line(label), [_measured(layout, cell) for cell in cells])

    if layout["rows"]:
        blocks = [
            Block(one_line(model), [measured(model, *row) for row in layout["rows"]], model=number_)
            for number_, model in enumerate(figures.models)
        ]
        for model in printed.models:
            rows = [printed.row(model, *row) for row in layout["rows"]]
            if any(map(_has_value, rows)):
                heading = _published_heading(one_line(model), printed.plus_minus([model]))
                blocks.append(Block(heading, rows, published=True))
    else:
        blocks = [Block("Measured in this run", [measured(model, model, {}) for model in figures.models])]
        if rows := [row for model in printed.models if _has_value(row := printed.row(model, model, {}))]:
            heading = _published_heading(None, printed.plus_minus(printed.models))
            blocks.append(Block(heading, rows, published=True))
    blocks += _differences(figures, suite, layout)
    groups = [(one_line(label), len(list(cs))) for label, cs in itertools.groupby(columns, key=lambda c: c["group"])]
    notes = [layout.get("note", ""), *printed.sources()]  # results of older runs have none
    return PaperTable(
        suite=suite,
        name=layout["name"],
        title=one_line(layout["title"]),
        source=one_line(layout["source"]),
        remarks=[one_line(note) for note in notes if note],
        stub=_stub(layout["rows"]) if layout["rows"] else "Model",
        groups=groups if any(label for label, _ in groups) else [],
        columns=[one_line(c["label"]) for c in columns],
        blocks=blocks,
    )


class _Printed:
    """The published figures of one table's cells."""

    def __init__(self, layout: Mapping[str, Any], published: Sequence[Mapping[str, Any]]) -> None:
        conditions = [where for _, where in layout["rows"]] or [{}]
        cells = {(c["measure"], where_key({**w, **c["where"]})) for w in conditions for c in layout["columns"]}
        self._layout = layout
        self._figures = [p for p in published if (p["measure"], where_key(p["where"])) in cells]
        self._by_cell = {(p["model"], p["measure"], where_key(p["where"])): p for p in self._figures}
        self.models = list(dict.fromkeys(p["model"] for p in self._figures))

    def row(self, model: str, label: str, where: Condition) -> TableRow:
        """The row of a model, with dashes where nothing is printed."""
        columns = self._layout["columns"]
        printed = (self._by_cell.get((model, c["measure"], where_key({**where, **c["where"]}))) for c in columns)
        return TableRow(one_line(label), [_published(self._layout, cell) for cell in printed])

    def plus_minus(self, models: Sequence[str]) -> str | None:
        """The meaning of these models' ±: empty if unknown, None if none is printed."""
        with_margin = [p for p in self._figures if p["model"] in models and p.get("plus_minus") is not None]
        meanings = {(p.get("source") or {}).get("plus_minus", "") for p in with_margin}
        return None if not meanings else " or ".join(sorted(meanings))

    def sources(self) -> list[str]:
        """One sentence for each source of the table's cells."""
        sources = (p.get("source") for p in self._figures)
        return list(dict.fromkeys(_source(source) for source in sources if source))


def _differences(figures: Figures, suite: str, layout: Mapping[str, Any]) -> list[Block]:
    """Rows of measured minus printed figures, for a paper's own models."""
    by_model: dict[tuple[str, str], dict[tuple[str, Where], Reproduction]] = defaultdict(dict)
    for r in figures.result.reproductions:
        if r.suite == suite:
            by_model[r.model, r.published_model][r.measure, where_key(r.where)] = r
    blocks = []
    for (model, published_model), found in by_model.items():
        label = one_line(f"{model} − {published_model}")
        heading = "Measured minus published, on the paper's own model"
        rows = []
        for name, where in layout["rows"] or [(label, {})]:
            keys = [(c["measure"], where_key({**where, **c["where"]})) for c in layout["columns"]]
            rows.append(TableRow(one_line(name), [_difference(layout, found.get(key)) for key in keys]))
        if any(map(_has_value, rows)):
            blocks.append(Block(f"{heading}: {label}" if layout["rows"] else heading, rows, compared=True))
    return blocks


def _difference(layout: Mapping[str, Any], found: Reproduction | None) -> Cell:
    if found is None or found.difference is None:
        return Cell(MISSING, reason=_NOT_PRINTED)
    value = found.difference * layout["scale"]
    text = f"{'+' if value > 0 else ''}{number(value, layout['decimals'] + 1)}"
    return Cell(text, f"({found.agreement})", numbers={"value": value})


def _has_value(row: TableRow) -> bool:
    return any(cell.text != MISSING for cell in row.cells)


def _stub(rows: Sequence[tuple[str, Condition]]) -> str:
    """Heading of the row labels: the factor whose levels are the rows."""
    keys = list(dict.fromkeys(key for _, where in rows for key in where))
    return level_label(keys[0]).capitalize() if keys else ""


def _measured(layout: Mapping[str, Any], measure: Measure | None) -> Cell:
    if measure is None or (text := figure(measure, layout["scale"], layout["decimals"])) == MISSING:
        return Cell(MISSING, measure=measure, reason=missing_reason(measure))
    value, bracket, interval = text.partition(" [")
    numbers = {name: getattr(measure, name) for name in ("value", "low", "high", "bound_low", "bound_high")}
    return Cell(value, f"{bracket.strip()}{interval}", measure, numbers=_scaled(numbers, layout))


def _published(layout: Mapping[str, Any], printed: Mapping[str, Any] | None) -> Cell:
    if printed is None:
        return Cell(MISSING, reason=_NOT_PRINTED)
    numbers = _scaled({"value": printed["value"], "plus_minus": printed.get("plus_minus")}, layout)
    value, spread = (number(numbers.get(name), layout["decimals"]) for name in ("value", "plus_minus"))
    return Cell(value, f"± {spread}" if "plus_minus" in numbers else "", numbers=numbers)


def _scaled(numbers: Mapping[str, float | None], layout: Mapping[str, Any]) -> dict[str, float]:
    return {name: x * layout["scale"] for name, x in numbers.items() if x is not None}


def missing_reason(measure: Measure | None) -> str:
    """Why a figure has no value."""
    if measure is None:
        return "not measured"
    if measure.n_items == 0 and measure.missing:
        return f"no readable answer ({measure.missing} missing)"
    return "no items" if measure.n_items == 0 else "not defined for these answers"


def _published_heading(model: str | None, plus_minus: str | None) -> str:
    """The heading of a published model's rows, or of all (None), with the meaning of its ± if it has one."""
    heading = "Published" if model is None else f"{model} (published)"
    own = plus_minus or "paper's own, not this report's interval"
    return heading if plus_minus is None else f"{heading}; ± is the {own}"


def _source(source: Mapping[str, Any]) -> str:
    """Where printed figures come from, and how their design differs from the measured one."""
    difference = f" {source['difference']}" if source["difference"] else ""
    return f"Published figures: {source['paper']}, {source['table']}, made by {source['made_by']}.{difference}"
