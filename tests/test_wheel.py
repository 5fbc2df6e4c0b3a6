"""The wheel holds what the program needs; in full, installed where there is no source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "examples" / "plugin"


def wheel_of(folder: Path, into: Path) -> Path:
    return Path(next(iter(WheelBuilder(str(folder)).build(directory=str(into), versions=["standard"]))))


def test_the_wheel_holds_every_file_of_the_packages(tmp_path):
    with zipfile.ZipFile(wheel_of(ROOT, tmp_path)) as wheel:
        held = set(wheel.namelist())
        entry_points = wheel.read(next(name for name in held if name.endswith("entry_points.txt"))).decode()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in packages["packages"]
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"suites/data/occugender.json", "audit/report/page/templates/report.html.j2"} <= wanted
    assert wanted - held == set()
    assert "audit = audit.cli:main" in entry_points
    assert "bias_audit = audit.pytest_plugin" in entry_points


#: Extras that no message or page for users names.
OF_DEVELOPERS = {"dev", "bench", "vllm", "docs"}


def extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"]) - OF_DEVELOPERS


def test_each_install_command_names_an_extra_there_is():
    """Those that README, recipes and messages print, and those that a missing package's message makes."""
    files = [ROOT / "README.md", *(ROOT / "examples").rglob("*.yml"), *(ROOT / "docs").rglob("*.md")]
    for package in ("audit", "backends", "suites"):
        files += (ROOT / package).rglob("*.py")
    told: set[str] = set()
    for file in files:
        text = file.read_text("utf-8")
        told |= {part for names in re.findall(r"bias-audit\[([\w,-]+)\]", text) for part in names.split(",")}
        told |= set(
            re.findall(
                r"""(?:MissingExtra|need_package)\([^)]*?"(\w+)"(?:, "gemma3[^"]*")?(?:, self\._package)?\)""", text
            )
        )
        told |= set(re.findall(r"[Ee]xtra:? `(\w+)`", text))
    assert {"all", "frames", "hf", "scorers", "embedded", "datasets", "azure"} <= told
    assert told <= extras()


def run(*command: object, cwd: Path) -> str:
    """What a command prints, away from this project's source tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.battery
@pytest.mark.timeout(2400)
def test_wheels_work_in_a_clean_environment(tmp_path):
    """`bias-audit` and the example plugin, each from its own wheel: no source tree, no extra."""
    wheels = [wheel_of(folder, tmp_path / "dist") for folder in (ROOT, PLUGIN)]
    venv.create(tmp_path / "env")
    bin_ = tmp_path / "env" / "bin"
    install = [sys.executable, "-m", "pip", "--python", bin_ / "python", "install", "--quiet", "--no-compile"]
    run(*install, "--constraint", ROOT / "constraints.txt", *wheels, "pytest", cwd=tmp_path)
    assert "bias-audit-example" in run(bin_ / "audit", "ls", "suites", cwd=tmp_path)
    for config in ("fake.py", "audit.toml"):
        (tmp_path / config).write_text((ROOT / "examples" / config).read_text("utf-8"), "utf-8")
        run(bin_ / "audit", "run", config, "--limit", "200", "--small-sample", cwd=tmp_path)
    run(bin_ / "audit", "run", "--suite", "Siblings", "--model", "even", "--db", "own.db", cwd=tmp_path)
    rows = "".join(f"Reds {n} lie.,Blues {n} lie.\n" for n in range(10))
    (tmp_path / "pairs.csv").write_text(f"stereotype,counterpart\n{rows}", "utf-8")
    assert "Mistakes: none." in run(bin_ / "audit", "check", "--suite", "pairs.csv", cwd=tmp_path)
    test = 'def test_it(audit):\n    audit.run("fake", "pairs.csv").assert_at_most("stereotype_score", 1.0)\n'
    (tmp_path / "test_it.py").write_text(test, "utf-8")
    run(bin_ / "python", "-m", "pytest", "-q", "test_it.py", cwd=tmp_path)


@pytest.mark.battery
@pytest.mark.timeout(2400)
def test_each_extra_can_be_installed_from_the_wheel(tmp_path):
    """``pip install "bias-audit[…]"`` as messages print it: all of them resolved, the light ones installed and used."""
    dist = tmp_path / "dist"
    wheel_of(ROOT, dist)
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--find-links", dist]
    install += ["--constraint", ROOT / "constraints.txt"]
    for extra in sorted(extras()):
        run(*install, "--dry-run", f"bias-audit[{extra}]", cwd=tmp_path)
    run(*install, "--no-compile", "bias-audit[frames,datasets]", cwd=tmp_path)
    rows = "".join(f"Reds {n} lie.,Blues {n} lie.\n" for n in range(10))
    (tmp_path / "pairs.csv").write_text(f"stereotype,counterpart\n{rows}", "utf-8")
    made = "import pandas; pandas.read_csv('pairs.csv').to_parquet('pairs.parquet')"
    run(python, "-c", made, cwd=tmp_path)
    assert "Mistakes: none." in run(python.parent / "audit", "check", "--suite", "pairs.parquet", cwd=tmp_path)
