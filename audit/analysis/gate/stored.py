"""Gating a stored run: finds the baseline, the margins and the rows in the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.against_baseline import RowsOf, gate
from audit.analysis.gate.results import GateReport
from audit.results import AuditResult, renamed_quantities, renamed_row
from audit.store import Store
from backends.errors import ConfigError

T = TypeVar("T")


def gate_run(
    store: Store, run_id: str, baseline: str | None, *, margin: float | None = None, inconclusive_fails: bool = False
) -> GateReport:
    """Check a stored run against a baseline and its config's limits.

    Parameters
    ----------
    run_id : str
        A finished run of the store.
    baseline : str or None
        None: check the limits alone. Else a saved baseline's name, a run of the store, or the path
        of a report.json. A file has no rows, so its changes are taken from intervals, which is
        the more conservative choice.
    margin : float, optional
        Replaces the margins of the run's config. Its limits are always the config's.

    Raises
    ------
    ConfigError
        When run or baseline cannot be found, or there is nothing to check.
    """
    config = json.loads(next(run.config for run in store.runs.all() if run.id == run_id))
    limits = {name: (least, most) for name, (least, most) in config.get("limits", {}).items()}
    if baseline is None and not limits:
        raise ConfigError("--baseline", None, "neither a baseline nor limits to check against", "Give one of them")
    current = store.runs.finished_result(run_id)
    margins = config.get("margins", DEFAULT_MARGIN) if margin is None else margin
    before = None if baseline is None else find_baseline(store, baseline)
    return gate(
        current,
        before,
        rows=_rows_of(store, current),
        baseline_rows=_rows_of(store, current if before is None else before),
        margins=under_todays_names(margins, current) if isinstance(margins, dict) else margins,
        limits=under_todays_names(limits, current),
        inconclusive_fails=inconclusive_fails,
    )


def _rows_of(store: Store, result: AuditResult) -> RowsOf:
    """The rows of a run, their quantities under today's names."""
    rows, names = store.runs.rows_of(result.run_id), renamed_quantities(result)
    return lambda model, suite: [renamed_row(row, names.get(suite, {})) for row in rows(model, suite)]


def under_todays_names(rules: Mapping[str, T], result: AuditResult) -> dict[str, T]:
    """The margins or limits of a stored config, whose measures may have been renamed since."""
    newer = {old: new for names in renamed_quantities(result).values() for old, new in names.items()}
    return {newer.get(name, name): rule for name, rule in rules.items()}


def find_baseline(store: Store, name: str) -> AuditResult:
    """The result meant by a saved baseline's name, a run's id or its beginning, or the path of a report.json.

    Raises
    ------
    ConfigError
        When it is none of them.
    """
    for saved in store.runs.baselines():
        if saved.name == name:
            return store.runs.finished_result(saved.run_id)
    if Path(name).is_file():
        try:
            return AuditResult.model_validate_json(Path(name).read_bytes())
        except ValidationError as error:
            problems = f"{error.error_count()} problem{'s' if error.error_count() > 1 else ''}"
            hint = "Give a report.json of a run"
            raise ConfigError("--baseline", name, f"not a report.json ({problems})", hint) from None
    matching = [run.id for run in store.runs.all() if run.id.startswith(name)]
    if len(matching) != 1:
        raise ConfigError(
            "--baseline",
            name,
            "neither a saved baseline, nor a run, nor a file",
            "See `audit baseline list` and `audit ls runs`",
        )
    return store.runs.finished_result(matching[0])
