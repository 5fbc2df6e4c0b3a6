"""Measures and comparisons as CSV. No cell can act as a formula; numbers stay numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from audit.report.phrases.comparisons import describe
from audit.report.plain_text import csv_cell
from audit.results import REPORT_KEYS, AuditResult, Comparison, Measure
from backends.base import Scalar


def measures_csv(result: AuditResult) -> str:
    """One line per measure; each factor of ``where`` has a column ``where.NAME``.

    The level None is written ``none``; the cell is empty where a figure does not have the factor.
    """
    return _csv_of(result.measures, [name for name in Measure.model_fields if name not in ("where", "spec")])


def comparisons_csv(result: AuditResult) -> str:
    """One line per pair of models and figure; ``difference`` is b minus a."""
    return _csv_of(result.comparisons, [*(name for name in Comparison.model_fields if name != "where"), "words"])


def _csv_of(things: Sequence[Measure] | Sequence[Comparison], fields: Sequence[str]) -> str:
    """One line per result, with the keys of report.json as columns."""
    factors = list(dict.fromkeys(key for thing in things for key in thing.where))
    header = [*(REPORT_KEYS.get(name, name) for name in fields), *(f"where.{key}" for key in factors)]
    lines = (
        [_cell(thing, name) for name in fields] + [_level(thing.where, key) for key in factors] for thing in things
    )
    return csv_text([header, *lines])


def _cell(thing: Measure | Comparison, name: str) -> Any:
    """A field of a result, ``words`` made here; a list or mapping as JSON, which other languages can read."""
    value = describe(thing) if name == "words" and isinstance(thing, Comparison) else getattr(thing, name)
    return json.dumps(value, ensure_ascii=False, default=list) if isinstance(value, list | tuple | dict) else value


def _level(where: Mapping[str, Scalar], factor: str) -> Scalar:
    """A level for a cell; an empty cell means that the figure lacks the factor, so the level None is spelled out."""
    level = where.get(factor, "")
    return "none" if level is None else level


def csv_text(lines: Iterable[Iterable[Any]]) -> str:
    """The lines as CSV."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerows([csv_cell(cell) for cell in line] for line in lines)
    return target.getvalue()
