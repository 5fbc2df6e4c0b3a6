"""Gates a stored run: finds the baseline, the margins and the rows in the store, and records the nights there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.against_baseline import gate
from audit.analysis.gate.limit_nights import limits_over_nights
from audit.analysis.gate.nights import Nights
from audit.analysis.gate.over_nights import with_nights
from audit.analysis.gate.results import GateReport, OpenFails
from audit.analysis.gate.rows import RowsAgainst, StoredRowsOf, stored_rows
from audit.analysis.gate.rules import GateRules
from audit.results import AuditResult
from audit.store import Store
from backends.errors import ConfigError

T = TypeVar("T")


def gate_run(
    store: Store, run_id: str, baseline: str | None, *, margin: float | None = None, open_fails: OpenFails = "missing"
) -> GateReport:
    """Check a stored run against a baseline and its config's limits, and record the night.

    Parameters
    ----------
    store : Store
        If it is read-only, the night gets a number but is not recorded.
    run_id : str
        A finished run of the store.
    baseline : str or None
        A saved baseline's name, a run of the store, or the path of a report.json; None to check only the limits. A
        file has no rows, so changes are computed from intervals, which is more conservative.
    margin : float, optional
        Replaces the margins of the run's config. The limits are always the config's.
    open_fails : str
        Which open questions fail the gate, see `GateReport`.

    Raises
    ------
    ConfigError
        If the run or the baseline cannot be found, or there is nothing to check.
    """
    config = json.loads(next(run.config for run in store.runs.all() if run.id == run_id))
    limits = {name: (least, most) for name, (least, most) in config.get("limits", {}).items()}
    if baseline is None and not limits:
        raise ConfigError("--baseline", None, "neither a baseline nor limits to check against", "Give one of them")
    current = store.runs.finished_result(run_id)
    margins = config.get("margins", DEFAULT_MARGIN) if margin is None else margin
    before = None if baseline is None else find_baseline(store, baseline)
    rules = GateRules(
        margins,
        limits,
        config.get("largest_change"),
        open_fails,
    )
    return check_run(store, current, stored_rows(store, current), before, rules, record=not store.read_only)


def check_run(
    store: Store,
    current: AuditResult,
    rows: StoredRowsOf,
    before: AuditResult | None,
    rules: GateRules,
    *,
    record: bool = False,
) -> GateReport:
    """Check a run, which need not be stored yet, against a baseline and limits: by itself, and over all nights.

    ``record``: add the night to the sequences. Otherwise it only gets the number that it would have.
    """
    report = gate(
        current,
        None,
        replace(rules, margins=DEFAULT_MARGIN),
        rows=lambda model, suite: [stored.row for stored in rows(model, suite)],
        baseline_rows=lambda model, suite: (),
    )
    limits = limits_over_nights(store, current, rows, report.limits, record=record)
    if before is None:
        return report.model_copy(update={"limits": limits})
    nights = Nights(store, before, current, rows)
    against = replace(rules, limits={})

    def decided(rows: RowsAgainst, shares: Mapping[str, float] | None = None) -> GateReport:
        return gate(current, before, against, rows=rows.current, baseline_rows=rows.baseline, shares=shares)

    alone = decided(nights.alone)
    looks = nights.looks(record=record)
    shares = {figure: look.share for figure, look in looks.items()}
    sequence = decided(nights.over_nights, shares)
    of_tonight = decided(nights.alone, shares) if any(look.adds_up for look in looks.values()) else None
    report = with_nights(alone, sequence, of_tonight, looks).model_copy(update={"limits": limits})
    if record:
        nights.record(report)
    return report


def find_baseline(store: Store, name: str) -> AuditResult:
    """The result that ``name`` refers to: a saved baseline, a run's id or a prefix of it, or a report.json's path.

    Raises
    ------
    ConfigError
        If it is none of these.
    """
    for saved in store.runs.baselines():
        if saved.name == name:
            return store.runs.finished_result(saved.run_id)
    if Path(name).is_file():
        try:
            return AuditResult.from_report(Path(name).read_bytes())
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
