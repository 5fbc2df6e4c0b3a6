"""What every first page says of a result, by the names that the templates use."""

from __future__ import annotations

from typing import Any

from audit.report.figures import Figures
from audit.report.phrases.example import asked
from audit.report.phrases.first_page import first_rows
from audit.report.phrases.gate import limit_lines, limits_overview
from audit.report.phrases.summary import scope, summary
from audit.report.phrases.verdict import verdict


def overview(figures: Figures) -> dict[str, Any]:
    """The scope, the verdict, the headline figures in plain words, the config's limits, and a question with answers."""
    result = figures.result
    questions = (asked(figures, info.name) for info in result.suites)
    return {
        "result": result,
        "scope": scope(figures),
        "verdict": verdict(figures),
        "summary": summary(figures),
        "plain": first_rows(figures),
        "limits_overview": limits_overview(result),
        "limits": limit_lines(result),
        "example": next((question for question in questions if question is not None), None),
    }
