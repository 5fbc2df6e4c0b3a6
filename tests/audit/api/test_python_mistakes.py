"""Mistakes in Python: each is a `ConfigError` that names the field and says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backends as b
import suites as s
from audit import Audit, StoredResult, load_audit, load_result
from backends.errors import ConfigError

FAKE: Any = b.FakeBackend("m")
MODELS = {"m": FAKE}
ASKED = [s.OccuGender(("implicit",))]
NO_SUCH = "http://localhost:9/v1"


def audited(**options: Any) -> Audit:
    return Audit(MODELS, ASKED, **{"limit": 100, **options})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StoredResult:
    folder = tmp_path_factory.mktemp("python")
    return audited(db=folder / "a.db", out=folder / "out").run_sync()


#: What was written → what the error begins with, and a word of its hint.
SET_UP: tuple[tuple[Callable[[], object], str, str], ...] = (
    (lambda: Audit({}, ASKED), "models = {}", "HFBackend"),
    (lambda: Audit([FAKE], ASKED), "models = [FakeBackend]", "by name"),
    (lambda: Audit({"m": "gpt2"}, ASKED), "models.m = 'gpt2'", "HFBackend"),
    (lambda: Audit({" ": FAKE}, ASKED), "models", "Name each model"),
    (lambda: Audit(MODELS, s.OccuGender()), "suites", "as a list"),
    (lambda: Audit(MODELS, [s.OccuGender]), "suites[0]", "OccuGender()"),
    (lambda: Audit(MODELS, ["OccuGender"]), "suites[0] = 'OccuGender'", "from_file"),
    (lambda: Audit(MODELS, []), "suites = []", "at least one"),
    (lambda: Audit(MODELS, [*ASKED, *ASKED]), "suites", "Give a mapping"),
    (lambda: Audit(MODELS), "suites = None: missing", "Give it"),
    (lambda: audited(limt=3), "limt = 3", "'limit'"),
    (lambda: audited(limit="10"), "limit = '10'", "1 or more"),
    (lambda: audited(limit=True), "limit = True", "1 or more"),
    (lambda: audited(confidence=95), "confidence = 95", "between 0 and 1"),
    (lambda: audited(margins={"gap": "0.1"}), "margins.gap = '0.1'", "without quotes"),
    (lambda: audited(limits={"gap": 0.3}), "limits.gap = 0.3", "(None, 0.3)"),
    (lambda: audited(limits={"gap": (0.4, 0.3)}), "limits.gap", "lower limit exceeds"),
    (lambda: audited(db=""), "db = ''", "Give a path"),
    (lambda: audited(out=""), "out = ''", "Give a path"),
    (lambda: audited(until="later"), "until = 'later'", "decided"),
    (lambda: audited(shard=(3, 2)), "shard = (3, 2)", "2/3"),
    (lambda: audited(ladder=[("m", "n")]), "ladder = 'n'", "Known: m"),
    (lambda: load_audit("nowhere.py"), "CONFIG = 'nowhere.py'", ".toml"),
    (lambda: load_result("nowhere.db"), "db = ", "Run an audit first"),
    (lambda: b.HFBackend("gpt2", devise="cpu"), "devise = 'cpu'", "'device'"),
    (lambda: b.OpenAIBackend(NO_SUCH, model="m", samples=0), "samples = 0", "1 or more"),
    (lambda: s.OccuGender(("implict",)), "bias = ('implict',)", "explicit, implicit"),
    (lambda: s.from_file("nowhere.csv"), "nowhere.csv", "another path"),
)
#: What was written of a finished result → the same.
AFTERWARDS: tuple[tuple[Callable[[StoredResult], object], str, str], ...] = (
    (lambda r: r.write(formats=["docx"]), "formats = 'docx'", "html, certificate"),
    (lambda r: r.write(formats="htm"), "formats = 'htm'", "html, certificate"),
    (lambda r: r.items_df("Nope"), "suite = 'Nope'", "Known: OccuGender"),
    (lambda r: r.write_items("items.xlsx"), "FILE = 'items.xlsx'", ".parquet"),
    (lambda r: r.write_for("excel", "out"), "tool = 'excel'", "lm-eval"),
    (lambda r: r.log_to("excel"), "tracker = 'excel'", "mlflow"),
    (lambda r: load_result(r._db, "xyz"), "run = 'xyz'", "audit ls runs"),
    (lambda r: load_result(r._db, 3), "run = 3", "last"),
    (lambda r: audited(db=r._db, limits={"gab": (None, 0.3)}).run_sync(), "limits.gab", "stereotype_gap"),
    (lambda r: audited(db=r._db, limit=3).run_sync(), "limit = 3", "small_sample"),
    (lambda r: audited(db=r._db).run_sync(baseline="old"), "--baseline = 'old'", "until decided"),
    (lambda r: asyncio.run(audited(db=r._db.parent).run()), "db = ", "is a folder"),
)


@pytest.mark.parametrize(("written", "says", "hint"), SET_UP, ids=[says for _, says, _ in SET_UP])
def test_a_mistake_of_the_set_up_is_told(
    written: Callable[[], object], says: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as told:
        written()
    _is_clear(str(told.value), says, hint)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("written", "says", "hint"), AFTERWARDS, ids=[says for _, says, _ in AFTERWARDS])
def test_a_mistake_with_a_result_is_told(
    written: Callable[[StoredResult], object],
    says: str,
    hint: str,
    result: StoredResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as told:
        written(result)
    _is_clear(str(told.value), says, hint)


def _is_clear(told: str, says: str, hint: str) -> None:
    assert told.startswith(says)
    assert hint in told
    assert len(told) < 600
