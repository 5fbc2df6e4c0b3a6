"""The scripts of examples/slurm, with an `sbatch` that runs each job of an array in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "slurm"
CONFIG = """
from audit import Audit
from backends import FakeBackend
from suites import OccuGender

audit = Audit({"m": FakeBackend("m")}, [OccuGender(("implicit",))], limit=40, small_sample=True)
"""
SBATCH = """#!/bin/bash
# Like Slurm's: a job a number of the array, one after the other; a job that depends on others runs if they succeeded.
while [[ $1 == --* ]]; do
  case $1 in
    --array=1-*) of=${1#--array=1-} ;;
    --dependency=afterok:*) [ "$(cat job)" = "${1#*:} ok" ] || exit 1 ;;
  esac
  shift
done
[ -n "${of:-}" ] || exec bash "$@" > join.log
echo "7 ok" > job
for part in $(seq "$of"); do
  SLURM_ARRAY_TASK_ID=$part SLURM_ARRAY_TASK_COUNT=$of bash "$@" > "parts/$part.log" || echo "7 failed" > job
done
echo 7
"""
COMMANDS = {"sbatch": SBATCH, "srun": '#!/bin/bash\nexec "$@"\n'}


@pytest.fixture
def cluster(tmp_path):
    """Submit the config in parts; the exit code."""
    commands = {**COMMANDS, "audit": f'#!/bin/bash\nexec "{sys.executable}" -m audit.cli "$@"\n'}
    (tmp_path / "bin").mkdir()
    for name, text in commands.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "big.py").write_text(CONFIG)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def submit(parts):
        command = ["bash", SCRIPTS / "submit.sh", "big.py", str(parts)]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return submit


def test_a_slurm_array_gives_the_report_of_the_whole(cluster, tmp_path):
    done = cluster(2)
    assert done.returncode == 0, done.stderr
    assert "Part 2 of 2" in (tmp_path / "parts" / "2.log").read_text()
    assert not list(tmp_path.glob("parts/*/report.html"))
    report = json.loads((tmp_path / "audit-out" / "report.json").read_text())
    assert (report["models"][0]["asked"], report["models"][0]["cached"], report["shard"]) == (0, 40, None)
    assert report["source"]["db"] == "stores/whole.db", "the node's own path is gone"
    assert [path.name for path in (tmp_path / "stores").glob("whole*")] == ["whole.db"]
    assert not (tmp_path / "stores" / "whole.db").is_symlink()


@pytest.mark.battery
def test_no_report_is_written_where_a_part_failed(cluster, tmp_path):
    failing = CONFIG.replace('"m")}', '"m", faults=Faults(1.0, permanent=True))}')
    (tmp_path / "big.py").write_text(f"from backends.stand_ins.fake import Faults\n{failing}")
    assert cluster(2).returncode == 1
    assert not (tmp_path / "audit-out" / "report.json").exists()


def test_parts_are_not_joined_while_one_is_missing(tmp_path):
    (tmp_path / "stores").mkdir()
    (tmp_path / "stores" / "1-of-2.db").touch()
    joined = subprocess.run(["bash", SCRIPTS / "join.sh", "big.py", "2"], cwd=tmp_path, capture_output=True, text=True)
    assert joined.returncode == 1
    assert "Of 2 parts there are only: stores/1-of-2.db" in joined.stderr
    assert not (tmp_path / "audit-out" / "report.json").exists()
