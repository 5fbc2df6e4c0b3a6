"""The papers' tables for manuscripts: LaTeX (booktabs) and CSV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from audit.report.exports.csv import csv_text
from audit.report.figures import Figures
from audit.report.tables import named_tables
from audit.report.templating import environment
from audit.results import AuditResult

_NUMBERS = ("value", "low", "high", "plus_minus", "bound_low", "bound_high")


def table_latex(result: AuditResult) -> Iterator[tuple[str, str, str]]:
    """(suite/table, file name, text) of each table in a paper's layout, published rows included.

    Each is a ``table`` environment for the package booktabs. Numbers are written as in the report, without exponents.
    """
    template = environment().get_template("table.tex.j2")
    for key, name, table in named_tables(Figures(result)):
        ends = list(itertools.accumulate((span for _, span in table.groups), initial=1))
        rules = [f"{start + 1}-{end}" for start, end in itertools.pairwise(ends)]
        yield key, f"{name}.tex", template.render(table=table, rules=rules, width=len(table.columns) + 1)


def table_csvs(result: AuditResult) -> Iterator[tuple[str, str, str]]:
    """(suite/table, file name, text) of each table in a paper's layout, published rows included.

    One line per cell, in the scale of the table; a number that is not known is an empty cell.
    """
    for key, name, table in named_tables(Figures(result)):
        columns = table.column_names("{}: {}".format)
        lines: list[Sequence[Any]] = [("source", "block", "row", "column", *_NUMBERS)]
        lines += [
            (
                "published" if block.published else "measured minus published" if block.compared else "measured",
                block.heading,
                row.label,
                column,
                *(_plain(cell.numbers.get(name)) for name in _NUMBERS),
            )
            for block in table.blocks
            for row in block.rows
            for column, cell in zip(columns, row.cells, strict=True)
        ]
        yield key, f"{name}.csv", csv_text(lines)


def _plain(value: float | None) -> str:
    """Twelve significant digits of a number, without an exponent."""
    return "" if value is None else np.format_float_positional(value, precision=12, fractional=False, trim="-")
