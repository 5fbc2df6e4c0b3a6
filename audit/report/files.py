"""The files of a report, each written atomically. A folder holds those of one run: a list in it says which."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from audit.results import AuditResult
from backends.errors import ConfigError
from backends.files import atomic_write

if TYPE_CHECKING:
    from audit.analysis.history import History

#: Kept beside the files: the run, and the SHA-256 of each file as it was written.
LIST = ".report-files"

Format = Literal["html", "certificate", "json", "csv", "markdown", "latex", "svg", "pdf"]
#: Charts as files are written on request alone: a page has tens of them.
DEFAULT_FORMATS: tuple[Format, ...] = ("html", "certificate", "json", "csv", "markdown", "latex")


def write_report(result: AuditResult, out: Path, *, formats: Sequence[Format] = DEFAULT_FORMATS) -> dict[str, Path]:
    """Write the report into the folder ``out``, created if missing. An existing trend page in it is linked.

    The folder then holds the files of this run alone: those that another run's report left there go, unless somebody
    changed them.

    Returns
    -------
    dict
        The files written: ``html``, ``json``, ``certificate`` (one sheet), ``markdown``, ``measures``, ``comparisons``
        (CSV), and for each table in a paper's layout ``table SUITE/NAME`` (CSV) and ``latex SUITE/NAME``. On request,
        each chart as ``svg NAME`` and ``pdf NAME``.

    Raises
    ------
    ConfigError
        When there is no such format, or the run has no figures: it asked a part of an audit.
    """
    from audit.store.runs import without_figures

    if result.shard is not None:
        raise without_figures(result.run_id, "part {} of {}".format(*result.shard))
    known = get_args(Format)
    chosen: Sequence[str] = (formats,) if isinstance(formats, str) else formats
    for name in chosen:
        if name not in known:
            raise ConfigError("formats", name, "unknown", f"Use a list of {', '.join(known)}")
    # Imported here, since only writing a report needs these libraries.
    from audit.report.exports.csv import comparisons_csv, measures_csv
    from audit.report.exports.json import json_report
    from audit.report.exports.markdown import markdown_report
    from audit.report.exports.paper_tables import table_csvs, table_latex
    from audit.report.page.report_page import report_page
    from audit.report.page.sheets import certificate

    texts: dict[str, tuple[str, str | bytes]] = {}
    if "html" in chosen:
        texts["html"] = ("report.html", report_page(result, trend=(out / "trend.html").exists()))
    if "json" in chosen or "certificate" in chosen:
        report_json = json_report(result)
    if "json" in chosen:
        texts["json"] = ("report.json", report_json)
    if "certificate" in chosen:
        texts["certificate"] = ("certificate.html", certificate(result, report_json))
    if "markdown" in chosen:
        texts["markdown"] = ("report.md", markdown_report(result))
    if "csv" in chosen:
        texts["measures"] = ("measures.csv", measures_csv(result))
        texts["comparisons"] = ("comparisons.csv", comparisons_csv(result))
        texts |= {f"table {key}": (name, text) for key, name, text in table_csvs(result)}
    if "latex" in chosen:
        texts |= {f"latex {key}": (name, text) for key, name, text in table_latex(result)}
    if wanted := [name for name in ("svg", "pdf") if name in chosen]:
        from audit.report.charts.drawn import chart_files

        texts |= {f"{ending} {name}": (file, content) for ending, name, file, content in chart_files(result, wanted)}
    paths = _write_files(out, result.run_id, dict(texts.values()))
    return {key: paths[name] for key, (name, _) in texts.items()}


def _write_files(out: Path, run_id: str, texts: Mapping[str, str | bytes]) -> dict[str, Path]:
    """Write files by name. Of another run's, those that are not written again go, unless somebody changed them."""
    held, files = _held(out)
    if held != run_id:
        for name, digest in files.items():
            path = out / name
            if name not in texts and path.is_file() and _digest(path.read_bytes()) == digest:
                path.unlink()
        files = {}
    paths = {name: atomic_write(out / name, text) for name, text in texts.items()}
    files |= {name: _digest(text.encode() if isinstance(text, str) else text) for name, text in texts.items()}
    atomic_write(out / LIST, json.dumps({"run_id": run_id, "files": files}, indent=1))
    return paths


def _held(out: Path) -> tuple[str | None, dict[str, str]]:
    """The run whose report a folder holds, and its files."""
    try:
        found = json.loads((out / LIST).read_bytes())
        return found["run_id"], dict(found["files"])
    except (OSError, ValueError, KeyError, TypeError):  # written by an earlier version, or by hand
        return None, {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_trend(history: History, path: Path, *, title: str) -> Path:
    """Write the trend page; creates its folder if missing. Links to a report.html beside it if there is one."""
    from audit.report.page.trend_page import trend_page

    return atomic_write(path, trend_page(history, title, report=path.with_name("report.html").exists()))
