"""The Dockerfile's steps, without Docker: what it copies is what a wheel needs; in full, each step is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from tests.test_wheel import ROOT, wheel_of


def steps() -> list[tuple[str, str]]:
    """(instruction, what it says) of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def copied(into: Path) -> Path:
    """The folder /src as its COPY lines make it."""
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    for name, said in steps():
        if name == "COPY":
            *sources, target = said.split()
            folder = into / target.lstrip("/")
            for source in sources:
                assert source not in ignored
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    folder.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / source, folder)
    return into / "src"


def held(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_the_image_gets_every_file_that_a_wheel_needs(tmp_path: Path) -> None:
    here, there = wheel_of(ROOT, tmp_path / "here"), wheel_of(copied(tmp_path), tmp_path / "there")
    assert held(here) == held(there)


@pytest.mark.battery
@pytest.mark.timeout(1800)
def test_each_step_works_in_a_clean_environment(tmp_path: Path) -> None:
    """RUN lines but the one that adds a user; then the documented command, by a user without a home."""
    source = copied(tmp_path)
    venv.create(tmp_path / "env", with_pip=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PATH"] = f"{tmp_path / 'env' / 'bin'}:{clean['PATH']}"
    run = [said for name, said in steps() if name == "RUN"]
    assert run[-1] == "useradd --create-home auditor"
    for said in run[:-1]:
        subprocess.run(said.replace("/src", str(source)), shell=True, check=True, env=clean, timeout=1500)
    work = tmp_path / "work"
    shutil.copytree(ROOT / "examples", work / "examples")
    entry = [shlex.split(said.strip("[]").replace(",", " ")) for name, said in steps() if name in ("ENTRYPOINT", "CMD")]
    assert entry == [["audit"], ["--help"]]
    documented = re.search(r"bias-audit (run .*)", (ROOT / "Dockerfile").read_text("utf-8"))
    assert documented is not None
    homeless = {**clean, "HOME": "/nowhere"}
    done = subprocess.run(
        ["audit", *documented[1].split(), "--limit", "200"], cwd=work, env=homeless, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (work / "audit-out" / "fake" / "report.html").exists()
    brought = "import pandas, torch, transformers; print(torch.version.cuda)"
    python = [tmp_path / "env" / "bin" / "python", "-c", brought]
    assert subprocess.check_output(python, cwd=work, env=homeless, text=True) == "None\n"
