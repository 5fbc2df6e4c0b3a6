"""The papers' tables as LaTeX (booktabs), for manuscripts."""

from __future__ import annotations

from collections.abc import Iterator

from audit.report.figures import Figures
from audit.report.formatting import latex_text
from audit.report.tables import Block, PaperTable, named_tables
from audit.results import AuditResult


def table_latex(result: AuditResult) -> Iterator[tuple[str, str, str]]:
    """(suite/table, file name, text) of each table in a paper's layout, published rows included.

    Each is a ``table`` environment for the package booktabs. Numbers are written as in the report, without exponents.
    """
    figures = Figures(result)
    for key, name, table in named_tables(figures):
        yield key, f"{name}.tex", _latex(table)


def _latex(table: PaperTable) -> str:
    width = len(table.columns) + 1
    lines = [
        r"% needs \usepackage{booktabs}; -- : not known",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(' '.join([_sentence(table.title), *map(_sentence, table.remarks)]))}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        *_headings(table),
    ]
    for block in table.blocks:
        lines += [r"\midrule", *_block(block, width)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _headings(table: PaperTable) -> Iterator[str]:
    if table.groups:
        cells = [rf"\multicolumn{{{span}}}{{c}}{{{latex_text(label)}}}" for label, span in table.groups]
        yield _line(["", *cells])
        start = 2
        rules = []
        for _, span in table.groups:
            rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
            start += span
        yield " ".join(rules)
    yield _line([latex_text(table.stub), *map(latex_text, table.columns)])


def _block(block: Block, width: int) -> Iterator[str]:
    yield _line([rf"\multicolumn{{{width}}}{{l}}{{\textit{{{latex_text(block.heading)}}}}}"])
    for row in block.rows:
        yield _line([latex_text(row.label), *(latex_text(cell.text) for cell in row.cells)])


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
