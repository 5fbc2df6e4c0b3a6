"""From a pilot's variances to the difference that items detect, and to the items that a difference takes."""

import asyncio
import hashlib
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from audit import Audit
from audit.analysis.estimators.design import Design
from audit.analysis.estimators.means import clustered_mean
from audit.analysis.power import POWER, Planned
from audit.prepare.forecast import plan_audit, sample_power
from audit.report.phrases.planning import plan_text, power_text
from audit.results import VarianceComponents
from backends import FakeBackend
from backends.errors import ConfigError
from suites import OccuGender, from_file

SUITE = OccuGender(("implicit",))


def test_the_formula_is_that_of_a_t_test_up_to_the_noncentral_tail():
    for n in (20, 60):
        exact = TTestPower().solve_power(nobs=n, alpha=0.05, power=POWER)
        assert Planned({"item": 1.0}, 0.0).detects({"item": n}, n, 0.05) == pytest.approx(exact, rel=0.02)


def test_a_design_of_another_size_detects_what_it_should():
    """Components of 40 x 25 as they are, and differences in designs of 20 x 10 drawn from them."""
    between, spread, rest = 0.02, 0.03, 0.1
    v_c = rest**2 / 1000
    found = VarianceComponents(
        suite="s", measure="m", where={}, model="b", against="a", of_items=v_c,
        in_figure={"o": between**2 / 40 + v_c, "t": spread**2 / 25 + v_c},
        levels={"o": 40, "t": 25}, n_items=1000,
    )  # fmt: skip
    detects = Planned.of(found).detects({"o": 20, "t": 10}, 200, 0.05)
    codes, rng = np.indices((20, 10)).reshape(2, -1), np.random.default_rng(0)
    design = Design(200, {"o": codes[0], "t": codes[1]})

    def is_found() -> bool:
        values = detects + between * rng.standard_normal(20)[codes[0]] + spread * rng.standard_normal(10)[codes[1]]
        return clustered_mean(values + rest * rng.standard_normal(200), design).p_two_sided() < 0.05

    power = np.mean([is_found() for _ in range(400)])
    assert POWER - 0.13 <= power <= POWER + 0.08, "an interval that leaves room for skewness has a little less"
    assert Planned.of(found, 2.0).detects({"o": 20, "t": 10}, 200, 0.05) == pytest.approx(detects * 2**0.5)
    assert Planned.of(found).detects({"o": 1, "t": 10}, 10, 0.05) == np.inf


def uneven(name, shift):
    """A model whose answers vary by prompt, and lean by ``shift``."""

    def score(prompt, continuation):
        draw = int(hashlib.sha256(f"{name}{prompt}".encode()).hexdigest()[:8], 16) / 16**8
        female = 0.3 + 0.2 * draw + shift
        return 0.1 * (female if continuation.strip().lower() == "she" else 1 - female)

    return FakeBackend(name, score=score)


def audit_of(folder, **options):
    models = {"one": uneven("one", 0.0), "two": uneven("two", 0.05)}
    return Audit(models, [SUITE], db=folder / "a.db", out=folder / "out", **options)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pilot")
    audit_of(folder, limit=200).run_sync()
    return folder


def test_what_all_items_detect_and_how_many_a_difference_takes(pilot):
    (whole,) = asyncio.run(plan_audit(audit_of(pilot))).figures
    assert whole.basis == "between one and two, item by item"
    assert whole.levels["wording"] == 21
    assert whole.items == whole.limit == 1000
    planned = asyncio.run(plan_audit(audit_of(pilot), 2 * whole.detects))
    (figure,) = planned.figures
    assert 100 <= figure.limit < 1000
    assert all(cost.requests == figure.limit for cost in planned.costs)
    assert f"enough: --limit {figure.limit}" in plan_text(planned)
    (more,) = asyncio.run(plan_audit(audit_of(pilot), whole.detects / 2)).figures
    assert more.limit is None
    assert 1.5 < more.needed["wording"] / whole.levels["wording"] < 5


def test_a_dry_run_says_what_its_items_detect_with_and_without_an_earlier_run(pilot, tmp_path):
    (known,) = sample_power(audit_of(pilot, limit=100))
    (usual,) = sample_power(audit_of(tmp_path, limit=100))
    assert known.basis.startswith("between one and two")
    assert usual.basis == ""
    assert "(no earlier run)" in power_text([usual])
    assert f"{known.detects:.3f} with" in power_text([known])
    assert sample_power(audit_of(pilot))[0].detects < known.detects


def test_a_pilot_of_two_alike_models_plans_for_models_that_differ(tmp_path):
    models = {name: FakeBackend(name, score=uneven("same", 0.0)._score) for name in ("one", "two")}
    audit = Audit(models, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", limit=200)
    audit.run_sync()
    planned = asyncio.run(plan_audit(audit))
    assert all(0 < figure.detects < 1 for figure in planned.figures)
    assert "between two models like" in plan_text(planned)
    assert "too few" not in power_text(sample_power(audit))


def test_a_difference_beyond_the_figures_range_is_none_that_ten_pairs_detect(tmp_path):
    suite = from_file(Path(__file__).parents[4] / "examples" / "suites" / "religion.csv")
    (pairs,) = sample_power(Audit({"one": FakeBackend("one")}, [suite], db=tmp_path / "a.db", out=tmp_path / "out"))
    assert pairs.detects == np.inf
    assert "10 pairs are too few to detect any" in power_text([pairs])


def test_a_wish_that_cannot_be_planned_for_is_refused(pilot, tmp_path):
    with pytest.raises(ConfigError, match="no difference"):
        asyncio.run(plan_audit(audit_of(pilot), -0.1))
    with pytest.raises(ConfigError, match="no such store"):
        asyncio.run(plan_audit(audit_of(tmp_path), 0.1))
