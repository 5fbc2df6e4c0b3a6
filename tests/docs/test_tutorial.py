"""The tutorial: its commands run as printed, and give the numbers that it quotes."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    audit = f'audit() {{ "{sys.executable}" -m audit.cli "$@"; }}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", audit + script], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tutorial's first command has run."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "examples").symlink_to(ROOT / "examples")
    done = shell(command("audit run"), folder)
    assert done.returncode == 0, done.stderr
    return folder


def command(start: str, section: str = "") -> str:
    """The first command of the tutorial, after ``section``, that starts so."""
    found = re.search(rf"^{start}.*$", TUTORIAL[TUTORIAL.index(section) :], re.MULTILINE)
    assert found is not None
    return found[0]


def test_the_tutorial_quotes_what_its_report_says(folder: Path) -> None:
    page = (folder / "audit-out" / "fake" / "report.html").read_text("utf-8")
    page = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    shown = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    quotes = re.findall(r"^> (.+)$", TUTORIAL, re.MULTILINE)
    assert len(quotes) == 3
    assert [quote for quote in quotes if quote not in shown] == []


def test_the_tutorials_gate_says_what_it_promises(folder: Path) -> None:
    again = TUTORIAL[TUTORIAL.index("## 4.") :]
    script = re.findall(r"```sh\n(.*?)```", again, re.DOTALL)[0]
    done = shell(script, folder)
    assert done.stdout.splitlines()[-1] == "0", done.stderr
    other = shell(
        f"{command('audit run', '## 4.').split('#')[0]} --seed 1; {command('audit gate').split(';')[0]}", folder
    )
    assert "inconclusive" in other.stdout
    assert "is within the margin of the baseline" not in other.stdout
