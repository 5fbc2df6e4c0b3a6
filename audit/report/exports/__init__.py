"""Results and gate reports for other programs: JSON, CSV, LaTeX, Markdown, JUnit XML, and other tools' formats.

Takes an `AuditResult` or a `GateReport`, gives texts.
"""

from audit.report.exports.csv import comparisons_csv, measures_csv, table_csvs
from audit.report.exports.for_tools import Tool, write_for_tool
from audit.report.exports.gate import gate_json, gate_markdown, junit_xml
from audit.report.exports.items import item_frame, item_records, of_items, questions, records_of, write_items
from audit.report.exports.json import json_report
from audit.report.exports.latex import table_latex
from audit.report.exports.markdown import markdown_report
from audit.report.exports.model_card import model_cards

__all__ = [
    "Tool",
    "comparisons_csv",
    "gate_json",
    "gate_markdown",
    "item_frame",
    "item_records",
    "json_report",
    "junit_xml",
    "markdown_report",
    "measures_csv",
    "model_cards",
    "of_items",
    "questions",
    "records_of",
    "table_csvs",
    "table_latex",
    "write_for_tool",
    "write_items",
]
