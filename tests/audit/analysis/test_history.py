"""Series of figures over runs, and over those of a real store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from audit.analysis.history import Absence, History, history, stored_results
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.report.charts.trend import segments as segments_of
from audit.results import AuditResult, ModelInfo
from audit.schedule.journal import Journal, absences
from audit.store import Store
from suites.base import IdentifiedInterval, MeasureSpec, Row

SPECS = [MeasureSpec("p", "p"), MeasureSpec("p", "p", {"occupation": "nurse"}, is_subgroup=True)]


def result(
    run: int,
    values: list[float],
    engine: str = "1.0",
    data: str = "x",
    limit: int | None = None,
    specs: list[MeasureSpec] = SPECS,
) -> AuditResult:
    rows = [Row(str(i), {"occupation": "nurse"}, {"p": IdentifiedInterval.exact(v)}) for i, v in enumerate(values)]
    model = ModelInfo(
        name="m", backend="x", fingerprint={"engine_version": engine, "weights_sha256": "w"}, fingerprint_id=engine,
        notes={}, asked=0, cached=0, failed=0, retried=0, seconds=0, prompt_tokens=0, completion_tokens=0,
    )  # fmt: skip
    return AuditResult(
        run_id=f"run{run}", title="nightly", started=f"2026-01-0{run}T00:00:00+00:00", finished="", complete=True,
        interrupted=False, seed=0, limit=None, confidence=0.95, versions={}, models=[model], suites=[],
        measures=measure_table(Table.of(rows), specs, model="m", suite="s", signature={"data": data, "limit": limit}),
        comparisons=[], data_quality=[],
    )  # fmt: skip


def test_each_figure_over_the_runs_with_its_intervals() -> None:
    (series,) = history([result(1, [0.1, 0.3]), result(2, [0.2, 0.4]), result(3, [0.2, 0.4, 0.6])]).series
    assert (series.measure, series.model, series.where) == ("p", "m", {})
    assert [p.run_id for p in series.points] == ["run1", "run2", "run3"]
    assert [round(p.value or 0, 9) for p in series.points] == [0.2, 0.3, 0.4]
    assert all(p.low < p.value < p.high for p in series.points)  # type: ignore[operator]
    assert [p.n_items for p in series.points] == [2, 2, 3]
    assert len(history([result(1, [0.1, 0.3])], details=True).series) == 2


def test_changes_of_engine_and_suite_are_marked() -> None:
    runs = [result(1, [0.1, 0.3]), result(2, [0.1, 0.3], "1.1"), result(3, [0.1, 0.3], "1.1", data="y")]
    (series,) = history(runs).series
    assert [p.changes for p in series.points] == [
        [],
        ["model engine_version: 1.0 → 1.1"],
        ["suite data: x → y"],
    ]


def test_a_run_without_the_figure_leaves_a_gap() -> None:
    found = history([result(1, [0.1, 0.3]), result(2, [0.1], specs=[]), result(3, [0.1, 0.3]), result(4, [0.1, 0.3])])
    (series,) = found.series
    assert [p.run_id for p in series.points] == ["run1", "run3", "run4"]
    assert segments(found) == [["run1"], ["run3", "run4"]]


def segments(found: History) -> list[list[str]]:
    (series,) = found.series
    return [[point.run_id for point in segment] for segment in segments_of(found, series)]


def test_segment_ends_at_gaps_and_other_suites() -> None:
    runs = [result(n, [0.1, 0.3]) for n in (1, 2, 3)]
    assert segments(history(runs)) == [["run1", "run2", "run3"]]
    missed = Absence(at="2026-01-01T12:00:00+00:00", why="1 slot missed, skipped")
    assert segments(history(runs, [missed])) == [["run1"], ["run2", "run3"]]
    assert segments(history([runs[0], result(2, []), runs[2]])) == [["run1"], ["run2"], ["run3"]]
    assert segments(history([runs[0], result(2, [0.1, 0.3], data="y")])) == [["run1"], ["run2"]]
    assert segments(history([runs[0], result(2, [0.1, 0.3], "1.1")])) == [["run1", "run2"]]
    assert segments(history([runs[0], result(2, [0.1, 0.3], limit=200)])) == [["run1", "run2"]]
    other = result(2, [0.1], specs=[]).model_copy(update={"title": "weekly"})
    assert segments(history([runs[0], other, runs[2]])) == [["run1", "run3"]]


def at(hour: int) -> datetime:
    return datetime(2024, 11, 20, hour, tzinfo=UTC)  # long ago: a journal notes the present too


def test_absences_of_journal_and_store_are_listed_once(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.db") as store:
        journal = Journal(tmp_path / "journal.jsonl")
        journal.write("missed", at(5), slots=2, first=at(1).isoformat(), action="skipped")
        store.runs.start("killed", "nightly", "{}", at(6).isoformat())
        journal.write("started", at(6))
        journal.write("killed", at(6), error="its process ended before the run did")  # noticed late
        for hour, run, status, of in ((7, "later", "failed: OSError", None), (8, "fine", "done", result(1, [0.1]))):
            store.runs.start(run, "nightly", "{}", at(hour).isoformat())
            store.runs.end(run, status, of)
        journal.write("ended", at(8), status="done", run_id="x")
        found = absences(store, journal.entries(), "nightly")
        assert absences(store, [], "another") == []
    assert [gap.why for gap in found] == [
        "2 slots missed, skipped",
        "killed: its process ended before the run did",
        "failed: OSError",
    ]
    assert found[0].at == at(1).isoformat()


def test_gaps_are_told_in_utc_and_a_busy_slot_is_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    local = datetime(2026, 11, 20, 3, tzinfo=timezone(timedelta(hours=-5)))
    journal.write("missed", local, slots=1, first=local.isoformat(), action="skipped")
    journal.write("busy", local + timedelta(days=1), error="another process is running this audit")
    with Store.open(tmp_path / "audit.db") as store:
        found = absences(store, journal.entries())
    assert [gap.at for gap in found] == ["2026-11-20T08:00:00+00:00", "2026-11-21T08:00:00+00:00"]
    assert found[1].why == "another process is running this audit"


def test_stored_results_are_finished_runs_oldest_first(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.db") as store:
        for run in (1, 2, 3):
            store.runs.start(f"run{run}", "nightly" if run < 3 else "other", "{}")
        stored = [result(run, [0.1, 0.1 * run]) for run in (1, 2)]
        for one in stored:
            store.runs.end(one.run_id, "done", one)
        store.runs.end("run3", "failed", None)
        assert list(stored_results(store)) == stored
        assert list(stored_results(store, "other")) == []
