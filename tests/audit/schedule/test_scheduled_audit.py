"""The command `audit schedule` as a user meets it: real processes, a real store, and the trend in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from audit.cli import main
from audit.schedule.journal import Journal
from tests.audit.report.length import unfold_all

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

#: With the file `slow` beside it, the model is another one, takes a second an answer, and `slow-seen` says it is used.
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

model = FakeBackend("fair", score=PlantedBias(fair, WORDS))
if (here / "slow").exists():
    (here / "slow-seen").touch()
    model = FakeBackend("slow", score=PlantedBias(fair, WORDS), latency=1.0, batch_size=1, max_in_flight=1)
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


class Process:
    """`audit schedule` on a config, every other second."""

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path.parent / "audit-schedule.jsonl")
        command = [sys.executable, "-m", "audit.cli", "schedule", str(path), "--cron", "*/2 * * * * *"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self, enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 120) -> None:
        until = time.monotonic() + seconds
        while not enough(self.journal.entries()):
            assert time.monotonic() < until, self.journal.entries()
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.05)

    def run_slowly(self) -> None:
        """Return in the midst of a run that takes some seconds."""
        folder = self.journal.path.parent
        (folder / "slow-seen").unlink(missing_ok=True)
        (folder / "slow").touch()
        self.wait(lambda _: (folder / "slow-seen").exists())
        time.sleep(1.0)

    def end(self, number: int) -> tuple[int, str]:
        os.kill(self.process.pid, number)
        printed, _ = self.process.communicate(timeout=30)
        return self.process.returncode, printed


def events(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["event"] for entry in entries]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Three runs, a kill in the fourth, missed slots, a restart that runs a missed slot, and an interrupt."""
    folder = tmp_path_factory.mktemp("night")
    path, seen = config(folder, 8), {}
    first = Process(path)
    first.wait(lambda entries: events(entries).count("ended") >= 3)
    first.run_slowly()
    seen["killed"], seen["first"] = first.end(signal.SIGKILL)
    time.sleep(3)
    (folder / "slow").unlink()
    second = Process(path)
    ended = events(second.journal.entries()).count("ended")
    second.wait(lambda entries: events(entries).count("ended") > ended)
    second.run_slowly()
    seen["stopped"], seen["second"] = second.end(signal.SIGTERM)
    seen["entries"] = second.journal.entries()
    return folder, seen


def test_each_run_of_a_night_reports_its_outcome(night: tuple[Path, dict[str, Any]]) -> None:
    _, seen = night
    done = [line for line in seen["first"].splitlines() if ": done" in line]
    assert len(done) >= 3, "slots between them may be missed on a slow machine"
    slots = [entry["slot"] for entry in seen["entries"] if entry["event"] == "started"]
    assert len(set(slots)) == len(slots) >= 5


def test_a_kill_and_missed_slots_are_recorded_and_caught_up(night: tuple[Path, dict[str, Any]]) -> None:
    _, seen = night
    entries = seen["entries"]
    assert seen["killed"] == -signal.SIGKILL
    killed = events(entries).index("killed")
    assert entries[killed]["slot"] == entries[killed - 1]["slot"]
    assert entries[killed - 1]["event"] == "started"
    missed = entries[killed + 1]
    assert (missed["event"], missed["action"]) == ("missed", "caught up by one run")
    assert missed["slots"] >= 1
    assert events(entries)[killed + 2 : killed + 4] == ["started", "ended"]
    assert entries[killed + 3]["status"] == "done"
    assert "killed" in seen["second"].splitlines()[0]
    assert "caught up by one run" in seen["second"].splitlines()[1]


def test_a_signal_ends_the_current_run_and_keeps_it(night: tuple[Path, dict[str, Any]]) -> None:
    _, seen = night
    assert seen["stopped"] == 130
    assert seen["entries"][-1]["event"] == "ended"
    assert seen["entries"][-1]["status"] == "interrupted"
    assert seen["second"].splitlines()[-1].endswith(": interrupted")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_trend_is_drawn_with_its_gaps_and_changes(night: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = night
    complaints, requests = [], []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        address = (folder / "out" / "trend.html").as_uri()
        page.goto(address)
        page.wait_for_selector("html[data-plots=drawn]", timeout=60_000)
        assert page.locator("details.fold .canvas svg").count() == 0, "what is folded waits"
        unfold_all(page)
        panels = page.locator(".panel")
        assert panels.count() >= 4
        assert page.locator(".canvas svg").count() == panels.count()
        gap = page.locator(".panel", has_text="dominated by").first
        assert gap.locator("svg g.mark-line path").count() >= 2  # the line ends at the kill
        absent = page.locator("#gaps").inner_text()
        assert "killed: its process ended before the run did" in absent
        assert "caught up by one run" in absent
        assert "name: fair → slow" in page.locator("#changes").inner_text()
        mark = gap.locator("svg [aria-roledescription=point]").last
        mark.scroll_into_view_if_needed()
        mark.hover()
        assert page.locator("#hover").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        chromium.close()
    assert complaints == []
    assert requests == [address]


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
    options = ["--once", "--baseline", "good", "--on-regression", f'{sys.executable} -c "{script}"']
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
        ([], "--cron"),
        (["--once", "--cron", "0 3 * * *"], "--cron"),
        (["--cron", "0 25 * * *"], "--cron"),
        (["--cron", "0 3 * * *", "--baseline", "none"], "--baseline"),
        (["--once", "--webhook", "http://127.0.0.1:9/"], "--webhook"),
        (["--once", "--on-regression", "true"], "--on-regression"),
    ],
)
def test_wrong_options_are_reported_before_serving(
    options: list[str], field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("schedule", config(tmp_path, 8), *options) == 2
    assert capsys.readouterr().err.startswith(f"Error: {field} = ")
    assert not (tmp_path / "audit.db").exists()


def test_a_wrong_policy_is_reported_with_the_right_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schedule", config(tmp_path, 8), "--cron", "0 3 * * *", "--missed", "later") == 2
    assert "'later' is not one of 'run', 'skip'" in capsys.readouterr().err
    assert not (tmp_path / "audit.db").exists()
