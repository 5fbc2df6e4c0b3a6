"""The recipes' shell scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = """
from audit import Audit
from backends import FakeBackend
from suites import OccuGender

audit = Audit({"m": FakeBackend("m")}, [OccuGender(("implicit",))], limit=40, small_sample=True)
"""


def shell(script, folder, **variables):
    """Run a script with `audit` and `srun` as commands."""
    audit = f'audit() {{ "{sys.executable}" -m audit.cli "$@"; }}\nsrun() {{ "$@"; }}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(["bash", "-c", audit + script], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.battery
def test_slurm_array_gives_the_whole_result(tmp_path):
    recipes = (ROOT / "docs" / "recipes.md").read_text("utf-8")
    job, join = re.findall(r"```sh\n(.*?)```", recipes[recipes.index("`--shard I/N`") :], re.DOTALL)[:2]
    (tmp_path / "big.py").write_text(CONFIG)
    (tmp_path / "stores").mkdir()
    for part in ("1", "2", "3", "4", "2"):  # one is started again
        done = shell(job, tmp_path, SLURM_ARRAY_TASK_ID=part)
        assert done.returncode == 0, done.stderr
    done = shell(join, tmp_path)
    assert done.returncode == 0, done.stderr
    (model,) = json.loads((tmp_path / "audit-out" / "report.json").read_text())["models"]
    assert (model["asked"], model["cached"]) == (0, 40)
