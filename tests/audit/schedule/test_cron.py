"""Schedules that really fire, are killed, miss slots, and notify of regressions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from audit.analysis.gate.results import GatedFigure, GateReport
from audit.report.exports import gate_json
from audit.schedule import Schedule
from audit.schedule.cron import cron_trigger
from audit.schedule.journal import Journal
from audit.schedule.slots import RunOutcome, Slots
from backends.errors import ConfigError


def regressed() -> GateReport:
    figure = GatedFigure(model="m", suite="s", measure="gap", where={}, verdict="regressed")
    return GateReport(
        run_id="now", baseline_run_id="then", confidence=0.95, open_fails="missing", figures=[figure], limits=[]
    )


def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "schedule.jsonl")


def events(kept: Journal) -> list[str]:
    return [entry["event"] for entry in kept.entries()]


def serve_until(schedule: Schedule, enough: Callable[[], bool], seconds: float = 60) -> None:
    """Serve in this thread, as the command line does, and stop once ``enough`` holds."""

    def watch() -> None:
        until = time.monotonic() + seconds
        while not enough() and time.monotonic() < until:
            time.sleep(0.02)
        schedule.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    schedule.serve()
    watcher.join()


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * * *", ["2026-01-01 03:00", "2026-01-02 03:00"]),
        ("30 4 * * 0", ["2026-01-04 04:30", "2026-01-11 04:30"]),  # 4 January 2026 is a Sunday
        ("30 4 * * 7", ["2026-01-04 04:30", "2026-01-11 04:30"]),
        ("0 0 * * 5-7", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00", "2026-01-09 00:00"]),
        ("0 0 * * fri-mon", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00", "2026-01-05 00:00"]),
        ("0 0 * * 1,mon", ["2026-01-05 00:00", "2026-01-12 00:00"]),
        ("0 0 10,20 * 1", ["2026-01-05 00:00", "2026-01-10 00:00", "2026-01-12 00:00", "2026-01-19 00:00"]),  # or
        ("0 0 1-7 * */7", ["2026-01-04 00:00", "2026-02-01 00:00"]),  # and: one of the two begins with a star
        ("0 0 * * */3", ["2026-01-03 00:00", "2026-01-04 00:00", "2026-01-07 00:00"]),  # Sunday, Wednesday, Saturday
    ],
)
def test_a_crontab_expression_means_what_cron_means(cron: str, expected: list[str]) -> None:
    trigger = cron_trigger(cron)
    at = datetime(2026, 1, 1, 0, 0, 1).astimezone()
    for wanted in expected:
        at = trigger.get_next_fire_time(None, at)
        assert at.strftime("%Y-%m-%d %H:%M") == wanted
        at += timedelta(seconds=1)


@pytest.mark.parametrize(
    ("cron", "in_spring", "in_autumn"),
    [("30 2 * * *", 1, 1), ("0,30 2 * * *", 1, 2), ("30 * * * *", 23, 25), ("*/30 2 * * *", 1, 4)],
)
def test_a_repeated_wall_time_is_one_slot_unless_hourly(
    cron: str, in_spring: int, in_autumn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    monkeypatch.setattr("apscheduler.triggers.cron.get_localzone", lambda: zone)
    trigger = cron_trigger(cron)
    for day, expected in ((datetime(2026, 3, 29), in_spring), (datetime(2026, 10, 25), in_autumn)):
        slots = [trigger.get_next_fire_time(None, day.replace(tzinfo=zone))]
        end = (day + timedelta(days=1)).replace(tzinfo=zone)
        while slots[-1] < end:
            slots.append(trigger.get_next_fire_time(slots[-1], slots[-1]))
        assert len(slots) - 1 == expected


def test_the_slot_after_a_repeated_hour_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = ZoneInfo("Europe/Berlin")
    monkeypatch.setattr("apscheduler.triggers.cron.get_localzone", lambda: zone)
    second_time = datetime(2026, 10, 25, 2, 10, tzinfo=zone, fold=1)
    assert str(cron_trigger("0 3 * * *").get_next_fire_time(None, second_time)) == "2026-10-25 03:00:00+01:00"


@pytest.mark.parametrize("cron", ["", "0 3 * *", "0 25 * * *", "0 3 * * 8", "0 3 * * mo", "a b c d e", "* * * * * * *"])
def test_a_crontab_that_cannot_be_read_is_refused(cron: str) -> None:
    with pytest.raises(ConfigError, match="--cron"):
        cron_trigger(cron)


def test_a_schedule_fires_and_records_each_outcome(tmp_path: Path) -> None:
    runs: list[int] = []

    def run() -> RunOutcome:
        runs.append(len(runs) + 1)
        return RunOutcome(f"run{len(runs)}", "done")

    kept = journal(tmp_path)
    serve_until(Schedule("* * * * * *", Slots(run, kept)), lambda: len(runs) >= 3)
    ended = [e for e in kept.entries() if e["event"] == "ended"]
    assert [e["run_id"] for e in ended[:3]] == ["run1", "run2", "run3"]
    started = [datetime.fromisoformat(e["slot"]) for e in kept.entries() if e["event"] == "started"]
    slots = [slot.replace(microsecond=0) for slot in started]
    assert slots == sorted(set(slots)), "a slot is run once"


def test_a_run_that_raises_does_not_end_the_schedule(tmp_path: Path) -> None:
    kept = journal(tmp_path)

    def run() -> RunOutcome:
        raise RuntimeError("no model today")

    serve_until(Schedule("* * * * * *", Slots(run, kept)), lambda: events(kept).count("ended") >= 2)
    ended = [e for e in kept.entries() if e["event"] == "ended"]
    assert len(ended) >= 2
    assert (ended[0]["status"], ended[0]["error"]) == ("failed", "RuntimeError: no model today")


def test_slots_during_a_long_run_follow_the_policy(tmp_path: Path) -> None:
    for policy, expected in (("run", "ended"), ("skip", "missed")):
        kept = journal(tmp_path / policy)
        running: list[int] = []
        most = 0

        def run(running: list[int] = running) -> RunOutcome:
            nonlocal most
            running.append(1)
            most = max(most, len(running))
            time.sleep(2.4)
            running.pop()
            return RunOutcome("r", "done")

        serve_until(
            Schedule("* * * * * *", Slots(run, kept), missed=policy),
            lambda kept=kept, expected=expected: events(kept).count(expected) >= (2 if expected == "ended" else 1),  # type: ignore[misc]
        )
        assert most == 1
        assert expected in events(kept)
        assert ("missed" in events(kept)) == (policy == "skip")


def test_two_processes_do_not_run_together(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    inside = Slots(lambda: RunOutcome("r", "done"), kept)

    def run() -> RunOutcome:
        inside.run_slot(datetime.now(UTC))
        return RunOutcome("outer", "done")

    Slots(run, kept).run_slot(datetime.now(UTC))
    assert events(kept) == ["started", "busy", "ended"]


def missed_yesterday(kept: Journal) -> None:
    then = datetime.now(UTC) - timedelta(days=2, hours=3)
    kept.write("started", then)
    kept.write("ended", then, status="done", run_id="old")


def test_missed_slots_are_caught_up_by_one_run(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    missed_yesterday(kept)
    hour = (datetime.now().hour + 12) % 24  # far from now, so that no slot falls into the test
    serve_until(
        Schedule(f"0 {hour} * * *", Slots(lambda: RunOutcome("new", "done"), kept)),
        lambda: events(kept).count("ended") >= 2,
    )
    _, _, noted, *_ = kept.entries()
    assert (noted["event"], noted["slots"], noted["action"]) == ("missed", 2, "caught up by one run")
    assert events(kept)[3:] == ["started", "ended"]


def test_missed_slots_are_skipped_if_configured(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    missed_yesterday(kept)
    hour = (datetime.now().hour + 12) % 24
    schedule = Schedule(f"0 {hour} * * *", Slots(lambda: RunOutcome("new", "done"), kept), missed="skip")
    serve_until(schedule, lambda: False, seconds=1)
    assert events(kept) == ["started", "ended", "missed"]


CHILD = """
import sys, time
from pathlib import Path
from audit.schedule import Schedule
from audit.schedule.journal import Journal
from audit.schedule.slots import RunOutcome, Slots

def run():
    print("running", flush=True)
    time.sleep(60)
    return RunOutcome("never", "done")

Schedule("* * * * * *", Slots(run, Journal(Path(sys.argv[1])))).serve()
"""


def test_a_killed_run_is_recorded_and_caught_up(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(kept.path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with kept.path.open("a") as file:
        file.write('{"event": "star')  # a line that the kill cut off
    assert events(kept) == ["started"]
    hour = (datetime.now().hour + 12) % 24
    runs: list[int] = []

    def run() -> RunOutcome:
        runs.append(1)
        return RunOutcome("after", "done")

    serve_until(Schedule(f"0 {hour} * * *", Slots(run, kept)), lambda: "ended" in events(kept))
    assert events(kept) == ["started", "killed", "started", "ended"]
    assert len(runs) == 1


def test_a_second_schedule_of_one_store_is_refused(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    refused: list[str] = []

    def run() -> RunOutcome:
        second = Schedule("0 3 * * *", Slots(lambda: RunOutcome("second", "done"), kept))
        with pytest.raises(ConfigError, match="another schedule already uses this store") as error:
            second.serve()
        refused.append(str(error.value))
        return RunOutcome("first", "done")

    serve_until(Schedule("* * * * * *", Slots(run, kept)), lambda: len(refused) >= 2)
    assert len(refused) >= 2
    assert {e["run_id"] for e in kept.entries() if e["event"] == "ended"} == {"first"}
    serve_until(Schedule("* * * * * *", Slots(lambda: RunOutcome("r", "done"), kept)), lambda: "r" in runs_of(kept))
    assert "r" in runs_of(kept), "once the first has stopped, another may serve"


def runs_of(kept: Journal) -> list[str]:
    return [entry["run_id"] for entry in kept.entries() if "run_id" in entry]


def test_a_regression_calls_the_command_and_the_webhook(tmp_path: Path) -> None:
    got: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kept = journal(tmp_path)
    said = tmp_path / "said.json"
    script = f"import sys; open({str(said)!r}, 'w').write(sys.stdin.read())"
    slots = Slots(
        lambda: RunOutcome("now", "done", regressed()),
        kept,
        command=f'{sys.executable} -c "{script}"',
        webhook=f"http://127.0.0.1:{server.server_port}/hook",
    )
    slots.run_slot(datetime.now(UTC))
    server.shutdown()
    thread.join()
    server.server_close()
    entry = kept.entries()[-1]
    assert entry["notified"] == ["command: exit code 0", "webhook: 204"]
    assert (entry["exit_code"], entry["gate"]) == (3, {"regressed": 1})
    assert json.loads(said.read_text()) == json.loads(got[0]) == json.loads(gate_json(regressed()))


def test_a_failed_notification_is_recorded(tmp_path: Path) -> None:
    kept = journal(tmp_path)
    slots = Slots(
        lambda: RunOutcome("now", "done", regressed()),
        kept,
        command="/no/such/program",
        webhook="http://127.0.0.1:9/hook",
    )
    slots.run_slot(datetime.now(UTC))
    command, webhook = kept.entries()[-1]["notified"]
    assert command.startswith("command failed")
    assert webhook == "webhook failed: ConnectError"
