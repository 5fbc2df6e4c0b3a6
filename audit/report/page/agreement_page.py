"""The page of agreement: how the suites' primary figures rank a store's models, and how far the rankings agree."""

from __future__ import annotations

from audit.analysis.comparing.agreement import FEWEST_MODELS, Agreement
from audit.report.charts import vega_specs as specs
from audit.report.formatting import MISSING, number, one_line
from audit.report.page.rendering import render_page
from audit.report.phrases.agreement import agreement_scope, correlation_text, figure_title

_ROW_HEIGHT = 28


def agreement_page(found: Agreement, title: str) -> str:
    """The whole page: figures with ranks, correlations with intervals as a picture and a table."""
    titles = [figure_title(figure) for figure in found.figures]
    pairs = [
        (f"{titles[c.a]} and {titles[c.b]}", c.n_models, correlation_text(c), c)
        for c in sorted(found.correlations, key=lambda c: (c.rho is None, -(c.rho or 0.0)))
    ]
    rows = [
        {"k": f"{c.a + 1} and {c.b + 1}", "m": 0, "v": c.rho, "l": c.low, "h": c.high, "n": 0, "s": name, "x": text}
        for name, _, text, c in pairs
        if c.rho is not None
    ]
    height = max(120, _ROW_HEIGHT * len(rows))
    data = {
        "config": specs.CONFIG,
        "spec": specs.dots(1, [-1.05, 1.05], height, "Spearman's ρ over models", dodge=False),
        "rows": rows,
    }
    return render_page(
        "agreement.html.j2",
        ("page.js", "agreement.js"),
        data,
        title=title,
        sentences=agreement_scope(found, FEWEST_MODELS),
        titles=titles,
        models=[one_line(model) for model in found.models],
        cells=[[_cell(found, figure, model) for figure in range(len(titles))] for model in found.models],
        pairs=pairs,
        drawn=bool(rows),
    )


def _cell(found: Agreement, figure: int, model: str) -> str:
    """A model's value and its rank."""
    of = found.figures[figure]
    if model not in of.values:
        return MISSING
    return f"{number(of.values[model])} ({of.ranks[model]:g})"
