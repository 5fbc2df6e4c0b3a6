"""Pages without scripts: the certificate, and a result in a notebook."""

from __future__ import annotations

import hashlib
import html

from audit.report.figures import Figures
from audit.report.page.rendering import render_sheet
from audit.report.phrases.problems import without_figures
from audit.report.phrases.summary import EVIDENCE_NOT_CONFORMITY, identity, overview
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
    if result.shard is not None:
        return "".join(f"<p>{html.escape(line)}</p>" for line in without_figures(result))
    facts = overview(Figures(result))
    said = [sentence for sentence in facts["summary"] if sentence.kind in ("finding", "caution")]
    return render_sheet(
        "notebook.html.j2", **facts | {"limits": facts["limits"][:_SENTENCES]}, sentences=said[:_SENTENCES]
    )
