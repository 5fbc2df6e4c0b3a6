"""Exported runs read by the tools that they are for, in an environment of their own: `make test-exports`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest

from audit.report.exports.for_tools import Tool
from suites import GenderPair, OccuGender
from tests.audit.report.for_tools.test_for_tools import audited, headline

pytestmark = [
    pytest.mark.battery,
    pytest.mark.skipif("READERS_PYTHON" not in os.environ, reason="READERS_PYTHON names no Python with the tools"),
]


def test_every_export_is_read_by_its_own_tool(tmp_path: Path) -> None:
    result = audited(tmp_path, [OccuGender(("implicit",)), GenderPair()])
    for tool in get_args(Tool):
        result.write_for(tool, tmp_path / tool)
    script = Path(__file__).with_name("readers.py")
    done = subprocess.run(
        [os.environ["READERS_PYTHON"], script, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    figure = headline(result, "org/planted")
    (log,) = [log for log in found["inspect"] if (log["model"], log["task"]) == ("org/planted", "OccuGender")]
    assert figure.value in log["metrics"].values()
    assert len(log["samples"]) == 100
    assert len(found["inspect"]) == 4
    (table,) = [r["table"] for r in found["lm-eval"] if r["folder"] == "org-planted" and "OccuGender" in r["table"]]
    assert f"{round(figure.value, 4):g}" in table
    assert 100 in [r["samples"] for r in found["lm-eval"]]
