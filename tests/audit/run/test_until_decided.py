"""Runs that ask until their question is decided: how much they ask, in which order, and what they say then."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from audit import Audit
from audit.analysis.gate.stored import gate_run
from audit.collect import ShutdownRequest
from audit.results import AuditResult
from audit.run import run_audit
from audit.store import Store
from backends import FakeBackend, PlantedBias
from backends.errors import ConfigError
from suites import OccuGender

PRONOUNS = {"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}
SUITE = OccuGender(("implicit",))
FEMALE = {o.name for o in SUITE.occupations if o.dominated_by == "female"}
NAMES = sorted((o.name for o in SUITE.occupations), key=len, reverse=True)
ITEMS, MARGIN = 1000, 0.02


def uniform(*parts: str) -> float:
    """A number in (-1, 1) that depends on the parts alone."""
    return int.from_bytes(hashlib.sha256(" ".join(parts).encode()).digest()[:8], "big") / 2**63 - 1


def planted(name: str, shift: float = 0.0, noise: float = 0.03) -> FakeBackend:
    def groups(prompt: str) -> Mapping[str, float]:
        job = next(job for job in NAMES if job in prompt)
        gap = 0.25 + shift + noise * uniform(name, prompt)
        stereotyped, other = (0.9 + gap) / 2, (0.9 - gap) / 2
        female = job in FEMALE
        return {
            "male": other if female else stereotyped,
            "female": stereotyped if female else other,
            "diverse": 0.1,
        }

    return FakeBackend(name, score=PlantedBias(groups, PRONOUNS), batch_size=ITEMS)


def audit_of(folder: Path, *models: FakeBackend, **options: Any) -> Audit:
    options = {"margins": MARGIN, **options}
    return Audit({model.name: model for model in models}, [SUITE], db=folder / "a.db", out=folder, **options)


def run(audit: Audit, **options: Any) -> AuditResult:
    return asyncio.run(run_audit(audit, **options))


def nightly(folder: Path, version: FakeBackend, **options: Any) -> Audit:
    return Audit({"m": version}, [SUITE], db=folder / "a.db", out=folder, margins=MARGIN, **options)


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with the released version, whole, and its run."""
    folder = tmp_path_factory.mktemp("released")
    return folder / "a.db", nightly(folder, planted("released")).run_sync().run_id


@pytest.fixture
def released(tmp_path: Path, first_night: tuple[Path, str]) -> str:
    """Of each test its own copy."""
    db, run_id = first_night
    shutil.copy(db, tmp_path)
    return run_id


@pytest.mark.parametrize(("shift", "verdict"), [(0.01, "unchanged"), (0.04, "regressed")])
def test_gate_question_ends_the_run_early(tmp_path: Path, released: str, shift: float, verdict: str) -> None:
    version = planted("next", shift)
    result = run(nightly(tmp_path, version, until="decided"), baseline=released)
    assert result.until is not None
    assert result.complete
    assert result.until.decided
    assert result.until.of_items == ITEMS
    assert result.until.items == result.suites[0].n_items == sum(version.asked.values()) <= 0.4 * ITEMS
    assert result.confidence > 0.99
    with Store.open(tmp_path / "a.db") as store:
        report = gate_run(store, result.run_id, released)
    (gap,) = [f for f in report.figures if f.measure == "stereotype_gap"]
    assert (gap.verdict, report.exit_code) == (verdict, 3 if verdict == "regressed" else 0)
    assert gap.n_items == result.until.items
    assert gap.n_unpaired == 0


def test_the_same_run_again_asks_nothing_and_ends_alike(tmp_path: Path, released: str) -> None:
    first = run(nightly(tmp_path, planted("next"), until="decided"), baseline=released)
    with Store.open(tmp_path / "a.db") as store:
        gate_run(store, first.run_id, released)
    again = planted("next")
    second = run(nightly(tmp_path, again, until="decided"), baseline=released)
    assert again.asked.total() == 0
    assert first.until == second.until
    assert [m.value for m in first.measures] == [m.value for m in second.measures]


def test_without_baseline_the_models_are_compared(tmp_path: Path) -> None:
    result = run(audit_of(tmp_path, planted("a"), planted("b", 0.05), until="decided"))
    assert result.until is not None
    assert (result.until.question, result.until.decided) == ("comparison", True)
    assert result.until.items <= 0.4 * ITEMS
    (gap,) = [c for c in result.comparisons if c.measure == "stereotype_gap" and not c.is_subgroup]
    assert gap.verdict == "larger"


def test_one_model_without_a_question_is_refused(tmp_path: Path, released: str) -> None:
    with pytest.raises(ConfigError, match="nothing to decide"):
        run(audit_of(tmp_path, planted("a"), until="decided"))
    with pytest.raises(ConfigError, match="asks everything"):
        run(audit_of(tmp_path, planted("a")), baseline=released)
    with pytest.raises(ConfigError, match="decided"):
        audit_of(tmp_path, planted("a"), until="tired")


def test_an_interrupted_run_resumes_in_the_same_order(tmp_path: Path, released: str) -> None:
    class Interrupted(FakeBackend):
        async def run(self, batch: Any) -> Any:
            if self.asked.total() >= 60:
                stop.request("test")
            return await super().run(batch)

    stop = ShutdownRequest()
    whole = run(nightly(tmp_path, planted("whole"), until="decided"), baseline=released)
    broken = planted("next", MARGIN)
    broken.__class__ = Interrupted
    broken.batch_size = 20
    first = run(nightly(tmp_path, broken, until="decided"), baseline=released, stop=stop)
    assert first.interrupted
    rest = planted("next", MARGIN)
    second = run(nightly(tmp_path, rest, until="decided"), baseline=released)
    assert not rest.asked.keys() & broken.asked.keys()
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        asked = [{row.row.item_id for row in store.runs.read_rows(r.run_id, "m", SUITE.name)} for r in (whole, second)]
    assert asked[0] <= asked[1] or asked[1] <= asked[0], "every look is the beginning of one order"
