"""The result as JSON."""

from __future__ import annotations

import json
from typing import Any

from audit.report.phrases.comparisons import describe
from audit.report.phrases.problems import problems_of
from audit.report.plain_text import encodable
from audit.results import AuditResult


def json_report(result: AuditResult) -> str:
    """The result as JSON."""
    return json.dumps(report_data(result), indent=1, ensure_ascii=False)


def report_data(result: AuditResult) -> dict[str, Any]:
    """The result ready for JSON, with what is said of it: ``problems``, and the ``words`` of each comparison.

    Text from models or servers may contain characters that cannot be encoded.
    """
    data = result.model_dump(mode="json")
    for comparison, written in zip(result.comparisons, data["comparisons"], strict=True):
        written["words"] = describe(comparison)
    data["problems"] = list(problems_of(result))
    data["examples"] = [encodable(example) for example in data["examples"]]
    return data
