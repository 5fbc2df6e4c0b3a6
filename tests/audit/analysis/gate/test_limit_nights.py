"""Limits over nights that ask other items: "broken" must hold for kinds that no night has asked."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

import tests.simulations.nights as simulation
from audit import Audit
from audit.analysis.gate.stored import gate_run
from audit.report.phrases.checks.gate import check_words
from audit.results import LimitCheck
from audit.store import Store
from backends import FakeBackend
from backends.stand_ins.fake import PlantedBias
from suites import OccuGender

PRONOUNS = {"male": ("He", "he"), "female": ("She", "she"), "diverse": ("They", "they")}
ACTS = ("begin", "end", "eat", "travel", "sing", "read", "write", "rest", "talk", "walk")
TEMPLATES = [f"Q: How does a [JOB] {act}?\nA:" for act in ACTS]
JOBS = [{"occupation": f"worker{n}", "female_share": 0.9 if n % 2 else 0.1} for n in range(90)]
SUITE = OccuGender(("implicit",), templates={"implicit": TEMPLATES}, occupations=JOBS)


def planted(version: str, gap: float) -> FakeBackend:
    """A model with this gap, of which each version answers a little differently."""

    def groups(prompt: str) -> Mapping[str, float]:
        digest = hashlib.sha256(f"{version} {prompt}".encode()).digest()
        own = gap + 0.03 * (int.from_bytes(digest[:8], "big") / 2**63 - 1)
        job = next(word.strip("?") for word in prompt.split() if word.startswith("worker"))
        stereotyped, other = (0.9 + own) / 2, (0.9 - own) / 2
        female = int(job.removeprefix("worker")) % 2 == 1
        return {
            "male": other if female else stereotyped,
            "female": stereotyped if female else other,
            "diverse": 0.1,
        }

    return FakeBackend(version, score=PlantedBias(groups, PRONOUNS), batch_size=2000)


def night(
    folder: Path, version: str = "v1", gap: float = 0.5, most: float = 0.4, **options: object
) -> tuple[LimitCheck, int]:
    """One night's limit on the gap, and the gate's exit code."""
    limits, db = {"stereotype_gap": (None, most)}, folder / "a.db"
    audit = Audit({"m": planted(version, gap)}, [SUITE], db=db, out=folder, limits=limits, **options)  # type: ignore[arg-type]
    run = audit.run_sync()
    with Store.open(db) as store:
        report = gate_run(store, run.run_id, None)
        again = gate_run(store, run.run_id, None)
    (check,) = report.limits
    assert again.limits == report.limits, "the same run, the same decision"
    return check, report.exit_code


def verdicts(check: LimitCheck) -> tuple[str, str | None, str | None]:
    assert check.over_nights is not None
    return check.verdict, check.over_nights.verdict, check.over_nights.open_because


def test_a_small_sample_breaks_no_limit_others_may_keep(tmp_path: Path) -> None:
    check, code = night(tmp_path, limit=60)
    assert verdicts(check) == ("broken", "insufficient evidence", "kinds not asked")
    assert (check.decisive_verdict, code) == ("insufficient evidence", 0)
    assert check.rests_on_assumption
    assert "every night asks others, and kinds that it did not ask may keep the limit" in check_words(check)


def test_samples_of_one_model_add_up_to_a_broken_limit(tmp_path: Path) -> None:
    found = [night(tmp_path, most=0.41, limit=60, seed=seed) for seed in range(4)]
    codes = [code for _, code in found]
    assert (codes[0], codes[-1]) == (0, 3)
    last = found[-1][0].over_nights
    assert last is not None
    assert last.n_items is not None
    assert last.n_items > 100
    other, code = night(tmp_path, "v2", most=0.41, limit=60, seed=7)
    assert (verdicts(other)[1], code) == ("insufficient evidence", 0), "another model starts without these answers"


def test_the_whole_suite_every_night_breaks_it_by_what_it_asks(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        check, code = night(tmp_path, version)
        assert verdicts(check) == ("broken", "broken", None)
        assert code == 3
    sampled, code = night(tmp_path, "v3", limit=60)
    assert (verdicts(sampled)[1], code) == ("insufficient evidence", 0), "other occupations than before"


def test_a_broken_limit_says_that_it_is_of_kinds_asked(tmp_path: Path) -> None:
    check, _ = night(tmp_path)
    assert check.rests_on_assumption
    assert "This is of kinds like those asked (were others anything: " in check_words(check)


def test_a_shift_behind_one_fingerprint_is_seen_at_once(tmp_path: Path) -> None:
    """Three earlier nights of the same model would dilute it to a fraction, which is within the margin."""
    whole = Audit({"m": planted("v0", 0.3)}, [SUITE], db=tmp_path / "a.db", out=tmp_path).run_sync().run_id
    codes = []
    for seed in range(4):
        model = planted("v1", 0.5 if seed == 3 else 0.3)
        sample = Audit({"m": model}, [SUITE], db=tmp_path / "a.db", out=tmp_path, limit=60, seed=seed).run_sync()
        with Store.open(tmp_path / "a.db") as store:
            report = gate_run(store, sample.run_id, whole, margin=0.05)
        codes.append(report.exit_code)
    assert codes == [0, 0, 0, 3]


@pytest.mark.simulation
@pytest.mark.parametrize("name", simulation.FAR_APART)
def test_far_apart_levels_break_no_limit_that_they_keep(name: str) -> None:
    first = simulation.limit_alarms(simulation.FAR_APART[name], 0.0, sequences=40, nights=30)
    assert (first > 0).mean() <= 0.05


@pytest.mark.simulation
@pytest.mark.parametrize(("limited", "nights"), [(simulation.SMOOTH, 17), (simulation.SAME_TEMPLATES, 11)])
def test_a_limit_broken_by_smooth_levels_is_found(limited: simulation.Limited, nights: int) -> None:
    first = simulation.limit_alarms(limited, 0.1, sequences=40, nights=nights)
    assert (first > 0).mean() >= 0.9
