"""Pages without scripts: the certificate, a result in a notebook, and how suites rank a store's models."""

from __future__ import annotations

import hashlib
import html

from audit.analysis.comparing.agreement import FEWEST_MODELS, Agreement
from audit.report.figures import Figures
from audit.report.formatting import MISSING, number
from audit.report.page.rendering import render_sheet
from audit.report.phrases.history import agreement_scope, correlation_text, figure_title
from audit.report.phrases.overview import overview
from audit.report.phrases.problems import without_figures
from audit.report.phrases.summary import EVIDENCE_NOT_CONFORMITY, identity
from audit.report.plain_text import one_line
from audit.results import AuditResult

_CAUTIONS = 2
_SENTENCES = 8


def certificate(result: AuditResult, report_json: str) -> str:
    """One sheet for a technical file: the questions, the findings, their basis, and a checksum as proof.

    ``report_json`` is the text of the corresponding report.json, whose SHA-256 it states.
    """
    facts = overview(Figures(result))
    cautions = [sentence.text for sentence in facts["summary"] if sentence.kind == "caution"]
    return render_sheet(
        "certificate.html.j2",
        **facts,
        identity=identity,
        cautions=cautions[:_CAUTIONS],
        cautions_left_out=len(cautions) - len(cautions[:_CAUTIONS]),
        sha256=hashlib.sha256(report_json.encode()).hexdigest(),
        statement=EVIDENCE_NOT_CONFORMITY,
    )


def result_html(result: AuditResult) -> str:
    """The first page's table and sentences for a notebook: a fragment of HTML, without style sheet or script."""
    if result.shard is not None or result.is_cut_off:
        return "".join(f"<p>{html.escape(line)}</p>" for line in without_figures(result))
    facts = overview(Figures(result))
    said = [sentence for sentence in facts["summary"] if sentence.kind in ("finding", "caution")]
    return render_sheet(
        "notebook.html.j2", **facts | {"limits": facts["limits"][:_SENTENCES]}, sentences=said[:_SENTENCES]
    )


def agreement_page(found: Agreement, title: str) -> str:
    """How the suites' primary figures rank a store's models: correlations with intervals, and figures with ranks."""
    titles = [figure_title(figure) for figure in found.figures]
    ordered = sorted(found.correlations, key=lambda c: (c.rho is None, -(c.rho or 0.0)))
    return render_sheet(
        "agreement.html.j2",
        title=title,
        sentences=agreement_scope(found, FEWEST_MODELS),
        titles=titles,
        models=[one_line(model) for model in found.models],
        cells=[[_cell(found, figure, model) for figure in range(len(titles))] for model in found.models],
        pairs=[(f"{titles[c.a]} and {titles[c.b]}", c.n_models, correlation_text(c)) for c in ordered],
    )


def _cell(found: Agreement, figure: int, model: str) -> str:
    """A model's value and its rank."""
    of = found.figures[figure]
    return f"{number(of.values[model])} ({of.ranks[model]:g})" if model in of.values else MISSING
