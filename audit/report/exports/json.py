"""The result as JSON."""

from __future__ import annotations

from audit.report.formatting import encodable
from audit.results import AuditResult


def json_report(result: AuditResult) -> str:
    """The result as JSON; text from models or servers may contain characters that cannot be encoded."""
    examples = [
        e.model_copy(update={"prompt": encodable(e.prompt), "answer": encodable(e.answer)}) for e in result.examples
    ]
    return result.model_copy(update={"examples": examples}).model_dump_json(indent=1)
