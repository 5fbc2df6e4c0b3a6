"""One sheet for a technical file: the questions, the findings, their basis, and a checksum as proof."""

from __future__ import annotations

import hashlib

from audit.report.figures import Figures
from audit.report.page.rendering import render_sheet
from audit.report.phrases import (
    EVIDENCE_NOT_CONFORMITY,
    asked,
    first_rows,
    limit_lines,
    limits_overview,
    scope,
    summary,
)
from audit.report.phrases.methods import identity
from audit.results import AuditResult

_CAUTIONS = 2


def certificate(result: AuditResult, report_json: str) -> str:
    """The sheet; ``report_json`` is the text of the corresponding report.json, whose SHA-256 it states."""
    figures = Figures(result)
    cautions = [sentence.text for sentence in summary(figures) if sentence.kind == "caution"]
    return render_sheet(
        "certificate.html.j2",
        result=result,
        scope=scope(figures),
        models=result.models,
        identity=identity,
        example=next((found for info in result.suites if (found := asked(figures, info.name)) is not None), None),
        plain=first_rows(figures),
        limits_overview=limits_overview(result),
        limits=limit_lines(result),
        cautions=cautions[:_CAUTIONS],
        cautions_left_out=len(cautions) - len(cautions[:_CAUTIONS]),
        sha256=hashlib.sha256(report_json.encode()).hexdigest(),
        statement=EVIDENCE_NOT_CONFORMITY,
    )
