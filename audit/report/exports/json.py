"""The result as JSON."""

from __future__ import annotations

from audit.report.formatting import encodable
from audit.results import AuditResult


def json_report(result: AuditResult) -> str:
    """The result's JSON form; only what a model or server wrote may hold text that cannot be encoded."""
    examples = [
        e.model_copy(update={"prompt": encodable(e.prompt), "answer": encodable(e.answer)}) for e in result.examples
    ]
    return result.model_copy(update={"examples": examples}).model_dump_json(indent=1)
