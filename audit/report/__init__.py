"""The report of an audit: one HTML page, and JSON, CSV and Markdown beside it. It computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from audit.results import AuditResult
from backends.files import atomic_write

Format = Literal["html", "json", "csv", "markdown"]


def write_report(result: AuditResult, out: Path, *, formats: Sequence[Format] = get_args(Format)) -> dict[str, Path]:
    """Write the report into the folder ``out``, made if missing. A trend page that lies there is linked.

    Returns
    -------
    dict
        What was written: ``html``, ``json``, ``markdown``, ``measures``, ``comparisons`` (CSV), and
        ``table SUITE/NAME`` for each table in a paper's layout (CSV).
    """
    # The page's libraries are loaded only by those who write one.
    from audit.report.exports import comparisons_csv, measures_csv, table_csvs
    from audit.report.html import html_report
    from audit.report.markdown import markdown_report

    out.mkdir(parents=True, exist_ok=True)
    texts: dict[str, tuple[str, str]] = {}
    if "html" in formats:
        texts["html"] = ("report.html", html_report(result, trend=(out / "trend.html").exists()))
    if "json" in formats:
        texts["json"] = ("report.json", _json(result))
    if "markdown" in formats:
        texts["markdown"] = ("report.md", markdown_report(result))
    if "csv" in formats:
        texts["measures"] = ("measures.csv", measures_csv(result))
        texts["comparisons"] = ("comparisons.csv", comparisons_csv(result))
        texts |= {f"table {key}": (name, text) for key, name, text in table_csvs(result)}
    return {key: atomic_write(out / name, text) for key, (name, text) in texts.items()}


def _json(result: AuditResult) -> str:
    """The result's JSON form; only what a model or server wrote may hold text that cannot be encoded."""
    from audit.report.safe_text import encodable

    examples = [
        e.model_copy(update={"prompt": encodable(e.prompt), "answer": encodable(e.answer)}) for e in result.examples
    ]
    return result.model_copy(update={"examples": examples}).model_dump_json(indent=1)
