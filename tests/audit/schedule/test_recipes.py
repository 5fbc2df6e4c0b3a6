"""The recipes in examples/schedules, done as they say: in a shell, on the example of planted models.

Only what needs another machine is left out: cron's and systemd's own clocks, and installing from the network.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from audit.analysis.history import History
from audit.schedule.journal import Journal

ROOT = Path(__file__).parents[3]
RECIPES = ROOT / "examples" / "schedules"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as the recipes suppose it: ~/audits with a config, and the program in its .venv."""
    audits = tmp_path / "audits"
    (audits / ".venv" / "bin").mkdir(parents=True)
    program = audits / ".venv" / "bin" / "audit"
    program.symlink_to(Path(sys.executable).with_name("audit"))  # the console script, as installed
    example = (ROOT / "examples" / "fake.py").read_text()
    own, replaced = re.subn(r'db="[^"]*",\s*out="[^"]*"', 'db="audit.db", out="audit-out", limit=60', example)
    assert replaced == 1
    (audits / "nightly.py").write_text(own)
    return tmp_path


def worsen(home: Path) -> None:
    """From now on the careful model follows stereotypes."""
    config = home / "audits" / "nightly.py"
    fair = 'FakeBackend("careful", score=PlantedBias(fair, words))'
    assert fair in config.read_text()
    config.write_text(config.read_text().replace(fair, 'FakeBackend("worse", score=PlantedBias(stereotyped, words))'))


def shell(command: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The command as cron, systemd or a CI's runner starts it: from the home, with a bare environment."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        ["/bin/bash", "-e", "-c", command], cwd=home, env=environment, text=True, capture_output=True, timeout=120
    )


def done(command: str, home: Path, **more: str) -> str:
    ran = shell(command, home, **more)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_crontab_does_what_its_comment_says(home: Path) -> None:
    text = (RECIPES / "crontab").read_text()
    (line,) = [line for line in text.splitlines() if line and not line.startswith("#") and "=" not in line.split()[0]]
    *fields, command = line.split(maxsplit=5)
    assert fields == ["0", "3", "*", "*", "*"]
    (first,) = re.findall(r"Save the baseline first:\s+(.*)", text)
    done(f'cd "$HOME/audits" && PATH=".venv/bin:$PATH" && {first}', home)
    printed = done(command, home)
    assert len(printed.splitlines()) == 1, "one line a night"
    assert "gate passed" in printed
    audits = home / "audits"
    assert [e["event"] for e in Journal(Journal.path_beside(audits / "audit.db")).entries()] == ["started", "ended"]
    assert (audits / "audit-out" / "trend.html").is_file()
    assert 'href="trend.html"' in (audits / "audit-out" / "report.html").read_text()
    worsen(home)
    ran = shell(command, home)
    assert ran.returncode == 3, ran.stderr
    assert "gate failed" in ran.stdout


@pytest.mark.battery
def test_the_hosted_ci_fails_when_a_figure_regressed(home: Path) -> None:
    workflow = yaml.safe_load((RECIPES / "bias-audit.yml").read_text())
    (job,) = workflow["jobs"].values()
    steps = {step["name"]: step["run"] for step in job["steps"] if "run" in step and "name" in step}
    (install,) = [step["run"] for step in job["steps"] if "run" in step and "name" not in step]
    assert install.startswith('pip install "bias_audit-'), "test_wheel.py runs it"
    assert list(steps) == ["Audit", "Gate", "Trend and summary"]
    assert workflow[True]["schedule"][0]["cron"] == "0 3 * * *"  # YAML 1.1 reads the key `on` as true
    repository, summary = home / "audits", home / "summary.md"
    runner = {"PATH": f"{repository / '.venv' / 'bin'}:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(summary)}

    def step(name: str) -> subprocess.CompletedProcess[str]:
        return shell(f"cd audits\n{steps[name]}", home, **runner)

    done("cd audits && audit run nightly.py --out accepted && cp accepted/report.json baseline.json && rm audit.db*",
         home, **runner)  # fmt: skip
    for name in steps:
        assert step(name).returncode == 0, name
    assert "Gate passed" in summary.read_text()
    for name in ("report.html", "trend.html", "gate.xml", "gate.md"):
        assert (repository / "audit-out" / name).is_file(), name
    worsen(home)
    assert [step(name).returncode for name in steps] == [0, 3, 0]
    assert "Gate failed" in summary.read_text()
    history = History.model_validate_json(done("cd audits && audit history --db audit.db --json", home, **runner))
    assert len(history.runs) == 2
