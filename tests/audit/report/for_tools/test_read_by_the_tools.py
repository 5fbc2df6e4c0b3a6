"""Exported runs read by the tools that they are for, in an environment of their own: `make test-exports`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
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


def test_wandbs_own_file_holds_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    from audit.report.trackers import log_result, metrics_of
    from tests.audit.report.test_trackers import result

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    assert log_result(result(), "wandb", "a-project") == "run-1"
    wandb.teardown()  # its service writes the rest of the files
    stored: dict[str, Any] = {}
    for path in tmp_path.rglob("*.wandb"):
        name, summary = "", {}
        for data in records_of(path.read_bytes()):
            record = Record.FromString(data)
            name = record.run.display_name or name
            summary |= {"/".join(u.nested_key) or u.key: json.loads(u.value_json) for u in record.summary.update}
        stored[name] = summary
    assert set(stored) == {"a", "b"}
    for model in ("a", "b"):
        assert metrics_of(result(), model).items() <= stored[model].items()


def records_of(file: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format in blocks of 32 KiB, after a header of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(file):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(file[at + 4 : at + 6], "little"), file[at + 6]
        parts += file[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""
