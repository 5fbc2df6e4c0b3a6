"""The tutorial notebook runs from its first cell to its last, where a loop runs already, as in a notebook."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_every_cell_runs_and_shows_the_planted_bias(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLES / "fake.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "tutorial.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    gaps = names["gaps"].groupby("model").value.mean()
    assert gaps["careful"] == pytest.approx(0.0, abs=1e-9)
    assert gaps["stereotyped"] > 0.3
    assert names["files"]["html"].exists()
    assert names["files"]["html"].with_name("items.jsonl").stat().st_size > 10_000
