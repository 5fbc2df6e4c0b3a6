"""A run in the formats of other tools: Inspect's logs, lm-evaluation-harness's samples, Every Eval Ever.

Takes a stored run, writes files that these tools read; none of them needs to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Literal

from audit.report.exports.for_tools.every_eval_ever import every_eval_ever_files
from audit.report.exports.for_tools.inspect_log import inspect_files
from audit.report.exports.for_tools.lm_eval import lm_eval_files
from audit.report.exports.for_tools.of_model import OfModel
from audit.report.exports.items import item_records, of_items
from audit.results import AuditResult
from audit.store import Store
from backends.errors import ConfigError
from backends.files import atomic_write

Tool = Literal["inspect", "lm-eval", "every-eval-ever"]

#: (relative path, text) of the files of one model's answers to one suite.
_FILES: Mapping[Tool, Callable[[OfModel], Iterator[tuple[str, str]]]] = {
    "inspect": inspect_files,
    "lm-eval": lm_eval_files,
    "every-eval-ever": every_eval_ever_files,
}


def write_for_tool(store: Store, result: AuditResult, tool: Tool, out: Path, *, suite: str | None = None) -> list[Path]:
    """Write a run as another tool's files into the folder ``out``, created if missing. Returns their paths.

    What these formats have no place for is left out of them: a figure that is known only by bounds has no value, and
    a row that a suite derives from items which have rows of their own is no item.

    Raises
    ------
    ConfigError
        When there is no such tool, or the run has no such suite.
    """
    if tool not in _FILES:
        raise ConfigError("tool", tool, "unknown", f"Use {', '.join(_FILES)}")
    infos = {info.name: info for info in result.suites if suite in (None, info.name)}
    models = {info.name: info for info in result.models}
    numbers: dict[str, dict[str, int]] = {name: {} for name in infos}
    for name, of_suite in numbers.items():
        for model in models:
            for stored in store.runs.read_rows(result.run_id, model, name):
                of_suite.setdefault(stored.row.item_id, len(of_suite))
    written = []
    records = item_records(store, result, suite=suite)
    for (model, name), own in groupby(records, key=lambda record: (record["model"], record["suite"])):
        of = OfModel(result, infos[name], models[model], list(of_items(own)), numbers[name])
        written += [atomic_write(out / path, text) for path, text in _FILES[tool](of)]
    return written
