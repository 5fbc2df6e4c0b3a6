"""`audit schedule` as a user meets it: real processes, a real store."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from audit.cli import main
from audit.report.exports.gate import gate_json
from audit.results import GatedFigure, GateReport
from audit.schedule.journal import Journal
from audit.schedule.scheduled_audit import RunOutcome, run_slot

#: With the file `slow` beside it, the model is another one, takes a second an answer, and `slow-seen` says it gave one.
CONFIG = """
from pathlib import Path
from audit import Audit
from backends.stand_ins.fake import FakeBackend, PlantedBias
from suites import OccuGender

here = Path(__file__).parent
suite = OccuGender(("implicit",))
WORDS = {"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}

def fair(prompt):
    return {"male": 0.45, "female": 0.45, "diverse": 0.10}

def stereotyped(prompt):
    share = max((o for o in suite.occupations if o.name in prompt), key=lambda o: len(o.name)).female_share
    return {"male": 0.9 * (1 - share), "female": 0.9 * share, "diverse": 0.10}

def seen(prompt):
    (here / "slow-seen").touch()
    return fair(prompt)

model = FakeBackend("fair", score=PlantedBias(fair, WORDS))
if (here / "slow").exists():
    model = FakeBackend("slow", score=PlantedBias(seen, WORDS), latency=1.0, batch_size=1, max_in_flight=1)
if (here / "stereotyped").exists():
    model = FakeBackend("stereotyped", score=PlantedBias(stereotyped, WORDS))
audit = Audit(
    {"model": model}, [suite], title="Nightly", db=here / "audit.db", out=here / "out", limit=LIMIT, small_sample=True
)
"""


def config(folder: Path, limit: int) -> Path:
    path = folder / "config.py"
    path.write_text(CONFIG.replace("LIMIT", str(limit)))
    return path


def journal(folder: Path) -> Journal:
    return Journal(folder / "audit-schedule.jsonl")


def events(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["event"] for entry in entries]


def start(path: Path) -> subprocess.Popen[str]:
    """`audit schedule` on a config whose model is slow, in the midst of its run."""
    seen = path.parent / "slow-seen"
    seen.unlink(missing_ok=True)
    (path.parent / "slow").touch()
    command = [sys.executable, "-m", "audit.cli", "schedule", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until = time.monotonic() + 120
    while not seen.exists():
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    return process


def end(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


def test_a_regression_calls_the_command_and_a_failed_call_is_recorded(tmp_path: Path) -> None:
    figure = GatedFigure(model="m", suite="s", measure="gap", where={}, verdict="regressed")
    gate = GateReport(
        run_id="now", baseline_run_id="then", confidence=0.95, open_fails="missing", figures=[figure], limits=[]
    )
    said = tmp_path / "said.json"
    script = f"import sys; open({str(said)!r}, 'w').write(sys.stdin.read())"

    def slot(*command: str) -> dict[str, Any]:
        return run_slot(lambda: RunOutcome("now", "done", gate), journal(tmp_path), command)

    entry = slot(sys.executable, "-c", script)
    assert (entry["notified"], entry["exit_code"], entry["gate"]) == (["command: exit code 0"], 3, {"regressed": 1})
    assert said.read_text() == gate_json(gate)
    assert slot("/no/such/program")["notified"][0].startswith("command failed")


def test_runs_do_not_overlap_and_one_that_raises_is_recorded(tmp_path: Path) -> None:
    kept = journal(tmp_path)

    def run() -> RunOutcome:
        run_slot(lambda: RunOutcome("r", "done"), kept)
        raise RuntimeError("no model today")

    assert run_slot(run, kept)["error"] == "RuntimeError: no model today"
    assert events(kept.entries()) == ["started", "busy", "ended"]
    assert run_slot(lambda: RunOutcome("next", "done"), kept)["run_id"] == "next"


def test_a_killed_run_is_recorded_by_the_next_one_and_a_signal_ends_a_run(tmp_path: Path) -> None:
    path = config(tmp_path, 8)
    assert end(start(path), signal.SIGKILL)[0] == -signal.SIGKILL
    with journal(tmp_path).path.open("a") as file:
        file.write('{"event": "star')  # a line that a kill cut off
    code, printed = end(start(path), signal.SIGTERM)
    assert code == 130
    started, killed, again, ended = journal(tmp_path).entries()
    assert events([started, killed, again, ended]) == ["started", "killed", "started", "ended"]
    assert killed["slot"] == started["slot"]
    assert ended["status"] == "interrupted"
    assert "killed" in printed
    assert printed.splitlines()[-1].endswith(": interrupted")
    history = subprocess.run(
        [sys.executable, "-m", "audit.cli", "history", "--db", str(tmp_path / "audit.db"), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "its process ended before the run did" in history.stdout


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    return int(left.value.code or 0)


def test_one_slot_checks_the_run_and_reports_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, db = config(tmp_path, 100), tmp_path / "audit.db"
    assert run("run", path) == 0
    assert run("baseline", "save", "good", "--db", db) == 0
    capsys.readouterr()
    script = f"import sys; open({str(tmp_path / 'said.json')!r}, 'w').write(sys.stdin.read())"
    options = ["--baseline", "good", "--on-regression", f'{sys.executable} -c "{script}"']
    assert run("schedule", path, *options) == 0
    assert "gate passed" in capsys.readouterr().out
    assert not (tmp_path / "said.json").exists()
    (tmp_path / "stereotyped").touch()
    assert run("schedule", path, *options) == 3
    assert "gate failed" in capsys.readouterr().out
    assert json.loads((tmp_path / "said.json").read_text())["exit_code"] == 3
    assert run("history", "--db", db, "--measure", "stereotype_gap", "--json") == 0
    (series,) = [s for s in json.loads(capsys.readouterr().out)["series"] if len(s["where"]) == 2]
    assert [point["changes"] for point in series["points"]] == [[], [], ["model name: fair → stereotyped"]]
    assert run("history", "--db", db, "--measure", "stereotype_gap") == 0
    assert "fair → stereotyped" in " ".join(capsys.readouterr().out.split())
    assert run("history", "--db", db, "--html", tmp_path / "trend.html") == 0
    assert "fair → stereotyped" in (tmp_path / "trend.html").read_text()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--baseline", "none"], "--baseline"),
        (["--on-regression", "true"], "--on-regression"),
        (["--baseline", __file__, "--on-regression", "/no/such/program"], "--on-regression"),
    ],
)
def test_wrong_options_are_reported_before_the_run(
    options: list[str], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("schedule", config(tmp_path, 8), *options) == 2
    assert capsys.readouterr().err.startswith(f"Error: {field} = ")
    assert not (tmp_path / "audit.db").exists()
