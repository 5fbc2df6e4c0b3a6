"""Gates a stored run: finds the baseline, the margins and the tables in the store, and records the nights there."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from audit.analysis.decisions import DEFAULT_MARGIN
from audit.analysis.gate.against_baseline import Runs, gated_figures
from audit.analysis.gate.rules import GateRules, check_rules, limit_checks
from audit.analysis.gate.same_items import TableOf
from audit.analysis.gate.sequence import Look
from audit.analysis.table import Table
from audit.results import AuditResult, GatedFigure, GateReport, OpenFails
from audit.store import Night, Store
from backends.errors import ConfigError

#: What a night records of a figure and of a limit, for `audit history` and the nights that follow.
_OF_FIGURE = {"model", "suite", "measure", "where", "verdict"}
_OF_LIMIT = {*_OF_FIGURE, "limit", "at_least", "at_most", "answers"}
#: Stands for the baseline of the nights on which limits alone are checked.
_LIMITS = "limits"


def gate_run(
    store: Store, run_id: str, baseline: str | None, *, margin: float | None = None, open_fails: OpenFails = "missing"
) -> GateReport:
    """Check a stored run against a baseline and its config's limits, and record the night.

    ``baseline``: as in `find_baseline`; None to check only the limits. A file has no answers, so changes are computed
    from intervals over new questions. ``margin`` replaces those of the run's config; the limits are always the
    config's. If the store is read-only, the night is not recorded.

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
    rules = GateRules(margins, limits, open_fails)
    return check_run(store, current, stored_tables(store, current), before, rules, record=not store.read_only)


def check_run(
    store: Store,
    current: AuditResult,
    tables: TableOf,
    before: AuditResult | None,
    rules: GateRules,
    *,
    record: bool = False,
) -> GateReport:
    """Check a run, which need not be stored yet, against a baseline and limits, over all nights.

    ``record``: store the night.

    Raises
    ------
    ConfigError
        If a margin or limit names no figure: a misspelt limit must not count as met.
    """
    old = [] if before is None else before.measures
    check_rules([measure.spec for measure in (*current.measures, *old)], rules.margins, rules.limits)
    nights = [n for n in store.nights.all() if n.facts["at"] < current.started and n.run_id != current.run_id]
    figures: list[GatedFigure] = []
    looks: dict[str, Look] = {}
    if before is not None:
        earlier: dict[str, list[Look]] = {}
        for facts in (facts for n in nights if n.baseline == before.run_id for facts in n.facts["figures"]):
            earlier.setdefault(facts["id"], []).append(Look(**facts["of_sequence"]))
        figures, looks = gated_figures(
            Runs(before, current, stored_tables(store, before), tables, rules.margins, earlier)
        )
    report = GateReport(
        run_id=current.run_id,
        baseline_run_id=None if before is None else before.run_id,
        confidence=current.confidence,
        open_fails=rules.open_fails,
        figures=figures,
        limits=limit_checks(current, tables, rules.limits, nights),
    )
    if record and report.checks:
        store.nights.write(Night(report.baseline_run_id or _LIMITS, current.run_id, _facts(report, current, looks)))
    return report


def _facts(report: GateReport, current: AuditResult, looks: Mapping[str, Look]) -> dict[str, object]:
    """What a night records: the verdicts, and for the nights that follow its looks."""
    as_stored: dict[str, Any] = {"mode": "json", "by_alias": False}
    figures = [
        {**figure.model_dump(include=_OF_FIGURE, **as_stored), "id": id, "of_sequence": asdict(looks[id])}
        for figure in report.figures
        if (id := figure.figure.id) in looks
    ]
    limits = [check.model_dump(include=_OF_LIMIT, **as_stored) for check in report.limits]
    return {"at": current.started, "figures": figures, "limits": limits}


def stored_tables(store: Store, result: AuditResult) -> TableOf:
    """The tables of a run; the last one that was read is kept."""

    @functools.lru_cache(maxsize=1)
    def table(model: str, suite: str) -> Table | None:
        found = store.runs.read_table(result.run_id, model, suite)
        return None if found is None else found.table

    return table


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
        except ValueError:  # no JSON, or not a result
            raise ConfigError("--baseline", name, "not a report.json", "Give a report.json of a run") from None
    matching = [run.id for run in store.runs.all() if run.id.startswith(name)]
    if len(matching) != 1:
        hint = "See `audit baseline list` and `audit ls runs`"
        raise ConfigError("--baseline", name, "neither a saved baseline, nor a run, nor a file", hint)
    return store.runs.finished_result(matching[0])
