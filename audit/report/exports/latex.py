"""The papers' tables as LaTeX (booktabs), for manuscripts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from audit.report.figures import Figures
from audit.report.tables import named_tables
from audit.report.templating import environment
from audit.results import AuditResult


def table_latex(result: AuditResult) -> Iterator[tuple[str, str, str]]:
    """(suite/table, file name, text) of each table in a paper's layout, published rows included.

    Each is a ``table`` environment for the package booktabs. Numbers are written as in the report, without exponents.
    """
    template = environment().get_template("table.tex.j2")
    for key, name, table in named_tables(Figures(result)):
        ends = list(itertools.accumulate((span for _, span in table.groups), initial=1))
        rules = [f"{start + 1}-{end}" for start, end in itertools.pairwise(ends)]
        yield key, f"{name}.tex", template.render(table=table, rules=rules, width=len(table.columns) + 1)
