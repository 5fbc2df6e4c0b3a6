"""The files of a report, each written atomically."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from audit.report.folder import check_same_run, write_files
from audit.results import AuditResult
from backends.errors import ConfigError
from backends.files import atomic_write

if TYPE_CHECKING:
    from audit.analysis.comparing.agreement import Agreement
    from audit.analysis.history import History

Format = Literal["html", "certificate", "card", "json", "csv", "markdown", "latex", "svg", "pdf"]
#: Charts as files are written on request alone: a page has tens of them.
DEFAULT_FORMATS: tuple[Format, ...] = ("html", "certificate", "card", "json", "csv", "markdown", "latex")


def write_report(result: AuditResult, out: Path, *, formats: Sequence[Format] = DEFAULT_FORMATS) -> dict[str, Path]:
    """Write the report into the folder ``out``, created if missing. An existing trend page in it is linked.

    The folder then holds the files of this run alone: those that another run's report left there go, unless somebody
    changed them.

    Returns
    -------
    dict
        The files written: ``html``, ``json``, ``certificate`` (one sheet), ``card`` (for the model's card; with
        several models ``card MODEL`` for each), ``markdown``, ``measures``, ``comparisons`` (CSV), and for each table
        in a paper's layout ``table SUITE/NAME`` (CSV) and ``latex SUITE/NAME``. On request, each chart as ``svg NAME``
        and ``pdf NAME``.

    Raises
    ------
    ConfigError
        When there is no such format, or some formats alone would stand beside those of another run, or the run has no
        figures: it asked a part of an audit, or many questions were left when it was interrupted.
    """
    from audit.store.runs import without_figures

    if result.shard is not None:
        raise without_figures(result.run_id, "part {} of {}".format(*result.shard))
    if result.is_cut_off:
        raise without_figures(result.run_id, "interrupted")
    known = get_args(Format)
    chosen: Sequence[str] = (formats,) if isinstance(formats, str) else formats
    for name in chosen:
        if name not in known:
            raise ConfigError("formats", name, "unknown", f"Use a list of {', '.join(known)}")
    # Imported here, since only writing a report needs these libraries.
    from audit.report.exports import (
        comparisons_csv,
        json_report,
        markdown_report,
        measures_csv,
        model_cards,
        table_csvs,
        table_latex,
    )
    from audit.report.page import certificate, report_page

    texts: dict[str, tuple[str, str | bytes]] = {}
    if "html" in chosen:
        texts["html"] = ("report.html", report_page(result, trend=(out / "trend.html").exists()))
    if "json" in chosen or "certificate" in chosen:
        report_json = json_report(result)
    if "json" in chosen:
        texts["json"] = ("report.json", report_json)
    if "certificate" in chosen:
        texts["certificate"] = ("certificate.html", certificate(result, report_json))
    if "card" in chosen:
        for model, name, text in model_cards(result):
            texts["card" if len(result.models) == 1 else f"card {model}"] = (name, text)
    if "markdown" in chosen:
        texts["markdown"] = ("report.md", markdown_report(result))
    if "csv" in chosen:
        texts["measures"] = ("measures.csv", measures_csv(result))
        texts["comparisons"] = ("comparisons.csv", comparisons_csv(result))
        texts |= {f"table {key}": (name, text) for key, name, text in table_csvs(result)}
    if "latex" in chosen:
        texts |= {f"latex {key}": (name, text) for key, name, text in table_latex(result)}
    if wanted := [name for name in ("svg", "pdf") if name in chosen]:
        from audit.report.charts.chart_files import chart_files

        texts |= {f"{ending} {name}": (file, content) for ending, name, file, content in chart_files(result, wanted)}
    if not set(DEFAULT_FORMATS) <= set(chosen):  # all formats replace whatever was there
        check_same_run(out, result.run_id, [name for name, _ in texts.values()])
    paths = write_files(out, result.run_id, dict(texts.values()))
    return {key: paths[name] for key, (name, _) in texts.items()}


def write_trend(history: History, path: Path, *, title: str) -> Path:
    """Write the trend page; creates its folder if missing. Links to a report.html beside it if there is one."""
    from audit.report.page import trend_page

    return atomic_write(path, trend_page(history, title, report=path.with_name("report.html").exists()))


def write_agreement(found: Agreement, path: Path, *, title: str) -> Path:
    """Write the page that compares the suites' rankings of the models; creates its folder if missing."""
    from audit.report.page import agreement_page

    return atomic_write(path, agreement_page(found, title))
