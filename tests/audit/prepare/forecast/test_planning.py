"""From a pilot to the design that finds a wished difference."""

import asyncio
import hashlib
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from audit import Audit
from audit.analysis.components import Components, components
from audit.analysis.power import Design, smallest_found, with_pilot_error
from audit.cli.app import app
from audit.collect import leading_specs
from audit.prepare.forecast.designs import as_components
from audit.prepare.forecast.estimate import dry_run_audit
from audit.prepare.forecast.planning import needed, plan_audit
from audit.prepare.forecast.sample_power import sample_power
from audit.report.phrases.checks.forecast import plan_text, power_text
from backends.errors import ConfigError
from backends.stand_ins.fake import FakeBackend
from suites import MGBR, GenderPair, OccuGender
from tests.simulations import planned_power
from tests.suites.genderpair.planted import SMALL

SUITE = OccuGender(("implicit",))


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


def last_power(audit):
    """The last line of what an audit's items can detect."""
    return power_text(sample_power(audit)).splitlines()[-1]


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pilot")
    result = audit_of(folder, limit=200).run_sync()
    return folder, result


def test_the_run_keeps_components_of_models_and_pairs(pilot):
    _, result = pilot
    assert {(one.model, one.against) for one in result.components} == {("one", None), ("two", None), ("two", "one")}
    assert {one.measure for one in result.components} == {"stereotype_gap"}
    for one in result.components:
        assert set(one.factors) == {"occupation", "template"}
        assert one.cross > 10 * max(one.factors.values())  # planted: every prompt by itself
        assert one.sampling is None


def test_the_plan_meets_the_wish_and_no_smaller_one_does(pilot):
    folder, result = pilot
    planned = asyncio.run(plan_audit(audit_of(folder), 0.01))
    (figure,) = planned.figures
    (pair,) = [one for one in result.components if one.against]
    found = as_components(pair)
    assert figure.basis == "between one and two, item by item"
    at = {"alpha": figure.alpha}
    asked = found._replace(cross=found.cross * math.prod(pair.levels.values()) / 200)  # 200 combinations were asked
    without = asyncio.run(plan_audit(audit_of(folder))).figures[0].minimum_detectable_effect
    assert without == smallest_found(asked, Design(pair.levels), **at)
    assert without > asked.minimum_detectable_effect(pair.levels, **at) > 0.01
    careful = with_pilot_error(found, pair.levels, 0.01, 200, uneven=pair.uneven)
    thin = careful._replace(cross=careful.cross * math.prod(pair.levels.values()) / 200)
    assert figure.minimum_detectable_effect == smallest_found(thin, Design(pair.levels), **at) > without
    fewer = {name: math.floor(n * 0.8) for name, n in figure.levels.items()}
    assert smallest_found(careful, Design(figure.levels), **at) <= 0.01 < smallest_found(careful, Design(fewer), **at)
    assert figure.items == math.prod(figure.levels.values())
    assert [cost.requests for cost in planned.costs] == [figure.items] * 2
    assert all(cost.seconds is not None for cost in planned.costs)


def test_more_models_are_planned_at_their_level(pilot):
    folder, result = pilot
    tested = sum(one.primary and one.p is not None for one in result.comparisons)
    models = {"one": uneven("one", 0.0), "two": uneven("two", 0.05), "three": uneven("three", 0.0)}
    audit = Audit(models, [SUITE], db=folder / "a.db", out=folder / "out")
    (two,), (three,) = (asyncio.run(plan_audit(each, 0.01)).figures for each in (audit_of(folder), audit))
    assert two.alpha == 0.05 / tested  # one pair
    assert three.alpha == pytest.approx(0.05 / tested / 3)  # three pairs
    assert three.items > two.items
    assert three.minimum_detectable_effect > two.minimum_detectable_effect


def test_what_templates_hide_needs_templates():
    found = Components({"o": 0.01, "t": 0.05}, 0.01, None, {"o": 0.01, "t": 0.05}, 1.0)
    levels, draws = needed(found, 0.05)
    assert draws == 1
    assert levels["t"] > 3 * levels["o"]


def test_draws_are_planned_only_where_sampling_varies():
    quiet = Components({"o": 0.01}, None, 0.0, {"o": 0.01}, 1.0)
    noisy = Components({"o": 0.001, "t": 0.2}, 0.0, 4.0, {"o": 0.001, "t": 0.2}, 1.0)
    assert needed(quiet, 0.05)[1] == 1
    assert needed(noisy, 0.1) is not None


@pytest.mark.parametrize("process", planned_power.PROCESSES[::4], ids=lambda process: process.name)
def test_a_planned_design_finds_the_difference_as_promised(process):
    # From pilots of 1,000 items: 80 % is promised, whatever the pilot lacks.
    assert planned_power.power(process, 1, pilots=4, draws=20).mean() > 0.72


def test_an_uneven_difference_takes_more_levels():
    found = Components({"o": 0.001, "t": 0.0}, 0.01, None, {"o": 0.001, "t": 0.0}, 1.0)
    pilot = {"o": 40, "t": 25}
    even, uneven = (needed(with_pilot_error(found, pilot, detect, 1000), 0.08)[0] for detect in (0.0, 0.08))
    assert min(uneven.values()) > min(even.values())
    for asked, behind in ((1000, 40), (100, 4)):  # a template's mean rests on so many occupations
        careful = with_pilot_error(found, pilot, 0.08, asked)
        assert careful.factors["t"] == pytest.approx(0.06**2 + 0.01 / behind * (24 / stats.chi2.ppf(0.2, 24) - 1))
        within = asked - 40 - 25 + 1
        assert careful.cross == pytest.approx(0.01 * within / stats.chi2.ppf(0.2, within))


@pytest.mark.parametrize(("female", "male"), [(5, 35), (8, 32)])
def test_groups_of_unequal_size_are_reckoned_with(female, male):
    found = Components({"o": 0.02, "t": 0.0}, 0.01, None, {"o": 0.02, "t": 0.0}, 1.0)
    levels, uneven = {"o": 40, "t": 10}, {"o": [(0.5, female), (0.5, male)]}
    even, finds = (smallest_found(found, Design(levels, uneven=of), alpha=0.05) for of in ({}, uneven))
    rng = np.random.default_rng(0)

    def power(by):  # Welch's t on the occupations' means, scipy's
        own = [by + rng.normal(0, (0.02 + 0.01 / 10) ** 0.5, (n, 2000)) for n in (female, male)]
        tested = stats.ttest_ind(own[0], -own[1], equal_var=False)
        return ((tested.pvalue < 0.05) & (tested.statistic > 0)).mean()

    assert power(even) < 0.6, "what groups of equal size would find"
    assert 0.77 < power(finds) < 0.92, "Welch's finds a little more than the test used, which allows for skewness"
    few = {"o": [(0.5, 2), (0.5, 38)]}
    assert smallest_found(found, Design(levels, uneven=few), alpha=0.05) == math.inf


def test_a_large_design_of_yes_and_no_finds_what_it_says():
    process = planned_power.PROCESSES[2]
    rng, levels = np.random.default_rng(3), {"occupation": 70, "template": 70}
    pilot = process.differences(rng, 70, 70, 0.0, 1)[..., 0]
    found = components(pilot.ravel(), dict(zip(levels, (c.ravel() for c in np.indices(pilot.shape)), strict=True)))
    finds = smallest_found(found, Design(levels), alpha=0.05, is_count=True)
    assert finds > 1.1 * found.minimum_detectable_effect(levels)
    power = planned_power.found(replace(process, detect=finds), levels, rng, primaries=1, draws=40)
    assert power >= 0.65  # 80 % is promised, of 40 draws


def test_a_plan_beyond_the_suite_says_what_is_lacking(pilot):
    folder, _ = pilot
    (within,), (beyond,) = (asyncio.run(plan_audit(audit_of(folder), detect)).figures for detect in (0.04, 0.002))
    assert within.available == beyond.available == {"occupation": 40, "template": 25}
    assert within.lacking == {}
    assert all(within.levels[name] <= n for name, n in within.available.items())
    assert beyond.lacking
    said = plan_text(asyncio.run(plan_audit(audit_of(folder), 0.002)))
    for factor, n in beyond.lacking.items():
        assert f"the suite has {beyond.available[factor]} {factor}s: you would have to write {n:,} more" in said
    assert "(equally many of each dominated_by)" in said


def test_a_plan_of_unequal_groups_counts_each_of_them(pilot):
    """8 + 20 occupations hold 16 in equal groups; a plan of 24 would ask for 4 that the suite does not have."""
    folder, _ = pilot
    of = [[o for o in SUITE.occupations if o.dominated_by == group] for group in ("female", "male")]
    names = [{"occupation": o.name, "dominated_by": o.dominated_by} for o in of[0][:8] + of[1]]
    suite = OccuGender(("implicit",), occupations=names)
    audit = Audit(audit_of(folder).models, [suite], db=folder / "a.db")
    small, whole, beyond = (asyncio.run(plan_audit(audit, detect)).figures[0] for detect in (0.2, 0.048, 0.004))
    assert small.levels["occupation"] <= 16
    assert (small.lacking, small.is_whole_suite) == ({}, False)
    assert (whole.levels, whole.lacking, whole.is_whole_suite) == ({"occupation": 28, "template": 25}, {}, True)
    assert (whole.items, whole.limit) == (700, 700)
    assert "(all that the suite has)" in plan_text(asyncio.run(plan_audit(audit, 0.048)))
    each = beyond.levels["occupation"] // 2
    assert beyond.lacking["occupation"] == (each - 8) + max(0, each - 20)
    assert "the suite has 28 occupations, 8 of one dominated_by:" in plan_text(asyncio.run(plan_audit(audit, 0.004)))


def test_a_dry_run_of_unequal_groups_says_what_they_find(pilot, tmp_path):
    folder, _ = pilot

    def said(female, male):
        of = [[o for o in SUITE.occupations if o.dominated_by == group] for group in ("female", "male")]
        names = [{"occupation": o.name, "dominated_by": o.dominated_by} for o in of[0][:female] + of[1][:male]]
        suite = OccuGender(("implicit",), occupations=names)
        return [
            last_power(Audit(audit_of(folder).models, [suite], db=db)) for db in (folder / "a.db", tmp_path / "b.db")
        ]

    def number(text, before):
        return float(re.search(rf"{before}([0-9.e-]+) with", text).group(1))

    even, uneven, few = said(12, 12), said(6, 18), said(2, 20)
    assert number(uneven[0], ": ") > 1.1 * number(even[0], ": ")
    assert number(uneven[1], "at worst ") > 1.1 * number(even[1], "at worst ")
    assert all("nothing with 22 occupations" in text for text in few)


def test_without_a_wish_the_plan_and_the_dry_run_agree(pilot):
    folder, _ = pilot
    planned = asyncio.run(plan_audit(audit_of(folder)))
    (figure,) = planned.figures
    said = f"{figure.whole_suite:.3f}"
    assert f": {said} with 40 occupations, 25 templates" in last_power(audit_of(folder))
    assert f"all of the suite's items: 40 occupations, 25 templates; they detect {said}" in plan_text(planned)
    assert figure.whole_suite < figure.minimum_detectable_effect
    assert (figure.levels, figure.items, planned.costs[0].requests) == (None, 1000, 1000)
    assert "needed:" not in plan_text(planned)


@pytest.mark.parametrize("detect", [0.02, 0.04])
def test_what_a_plan_says_is_found_agrees_with_what_it_needs(pilot, detect):
    """All items were said to detect 0.014, and 0.02 to take more than twice as many."""
    folder, _ = pilot
    planned = asyncio.run(plan_audit(audit_of(folder), detect))
    (figure,) = planned.figures
    assert (figure.whole_suite <= detect) == (not figure.lacking)
    assert figure.whole_suite > 0.0142
    assert "Every size here uses upper limits of the components estimated from the pilot" in plan_text(planned)


@pytest.mark.parametrize("detect", [None, 0.02])
def test_a_pilot_of_few_templates_is_too_small_to_plan_from(tmp_path, detect):
    asked = [f"Q: What does a [JOB] {verb}?\nA:" for verb in ("like", "read", "eat")]
    suite = OccuGender(("implicit",), templates={"implicit": asked})
    models = {"one": uneven("one", 0.0), "two": uneven("two", 0.05)}
    audit = Audit(models, [suite], db=tmp_path / "a.db", out=tmp_path / "out")
    audit.run_sync()
    planned = asyncio.run(plan_audit(audit, detect))
    assert [(one.pilot_too_small, one.levels, one.whole_suite) for one in planned.figures] == [(True, None, None)]
    said = plan_text(planned)
    assert "3 templates (between one and two, item by item): too few to plan from" in said
    assert "needed" not in said
    assert "detects" not in said


def test_a_plan_tells_a_figures_items_from_the_suites(tmp_path):
    """A suite of two biases asks two items for each one of a figure. Groups of occupations are equally large."""
    models = {"one": uneven("one", 0.0), "two": uneven("two", 0.05)}
    audit = Audit(models, [OccuGender()], db=tmp_path / "a.db", out=tmp_path / "out", limit=200)
    audit.run_sync()
    planned = asyncio.run(plan_audit(audit, 0.05))
    for figure in planned.figures:
        assert figure.items == math.prod(figure.levels.values())
        assert figure.limit == 2 * figure.items
        assert figure.levels["occupation"] % 2 == 0
        assert f"{figure.items:,} items of this figure (--limit {figure.limit} asks that many)" in plan_text(planned)
    assert planned.costs[0].requests == max(figure.limit for figure in planned.figures)


def test_a_plan_knows_the_time_after_a_run_from_the_store(tmp_path):
    def planned():
        return asyncio.run(plan_audit(audit_of(tmp_path), 0.05)).costs

    audit_of(tmp_path, limit=200).run_sync()
    first = planned()
    audit_of(tmp_path, limit=200).run_sync()  # asks nothing
    assert all(cost.seconds for cost in first)
    assert planned() == first


def test_without_a_pilot_the_plan_says_how_to_make_one(tmp_path):
    with pytest.raises(ConfigError, match="that is the pilot"):
        asyncio.run(plan_audit(audit_of(tmp_path), 0.02))
    with pytest.raises(ConfigError, match="above 0"):
        asyncio.run(plan_audit(audit_of(tmp_path), 0))


def test_a_dry_run_says_what_its_sample_could_show(pilot, tmp_path):
    folder, result = pilot
    (pair,) = [one for one in result.components if one.against]
    found = as_components(pair)
    said = last_power(audit_of(folder, limit=100))
    primary = sum(spec.primary for spec in leading_specs(SUITE))
    of_100 = found._replace(cross=10 * found.cross)  # a tenth of the 1,000 combinations
    finds = smallest_found(of_100, Design({"occupation": 40, "template": 25}), alpha=0.05 / primary)
    assert f": {finds:.3f} with 40 occupations, 25 templates in 100 combinations" in said
    assert "by an earlier run" in said
    unknown = last_power(audit_of(tmp_path, limit=100))
    assert "at worst" in unknown
    assert "no earlier run" in unknown
    usual = [
        float(re.search(r"about ([0-9.]+)", last_power(audit_of(tmp_path, limit=limit))).group(1))
        for limit in (40, 120, 400)
    ]
    assert sorted(usual, reverse=True) == usual
    assert usual[0] > usual[2]


def test_plan_prints_text_and_json(pilot):
    folder, _ = pilot
    config = folder / "mine.py"
    config.write_text(
        "from pathlib import Path\nfrom audit import Audit\nfrom backends import FakeBackend\n"
        "from suites import OccuGender\n"
        "here = Path(__file__).parent\n"
        "audit = Audit({'one': FakeBackend('one')}, [OccuGender(('implicit',))], db=here / 'a.db', out=here / 'out')\n"
    )
    said = CliRunner().invoke(app, ["plan", str(config), "--detect", "0.02"])
    assert said.exit_code == 0
    assert "To detect a difference of 0.02 with 80% power" in said.output
    assert "estimated from the pilot" in said.output
    assert "alpha 0.0" in said.output
    assert "largest_change" in said.output
    machine = CliRunner().invoke(app, ["plan", str(config), "--detect", "0.02", "--json"])
    assert json.loads(machine.output)["detect"] == 0.02


def test_a_plan_of_lists_says_that_new_occupations_take_more(tmp_path):
    lists = MGBR(n=12, conditions=["zero-shot"])
    audit = Audit({"one": uneven("one", 0.0)}, [lists], db=tmp_path / "a.db", out=tmp_path / "out")
    audit.run_sync()
    (female, male) = asyncio.run(plan_audit(audit, 0.1)).figures
    assert set(female.pilot_levels) == set(male.pilot_levels) == {"instance"}
    assert female.basis.endswith("; for the same occupations, new ones take more")


def test_a_pilot_of_answers_all_alike_plans_nothing(tmp_path):
    """41 equal answers were said to detect a difference of 0.000."""
    same = {name: FakeBackend(name, score=lambda prompt, text: 0.1) for name in ("one", "two")}
    audit = Audit(same, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", limit=200)
    audit.run_sync()
    planned = asyncio.run(plan_audit(audit, 0.05))
    assert [(one.alike, one.levels, one.whole_suite) for one in planned.figures] == [(True, None, None)]
    assert math.isinf(planned.figures[0].minimum_detectable_effect)
    assert "its values are all alike (between" in plan_text(planned)
    assert "detect 0.000" not in plan_text(planned)
    assert "0.000" not in last_power(audit)


def test_a_plan_counts_what_follows(tmp_path):
    texts = GenderPair(pairs=SMALL, toxicity=None, regard=None)
    audit = Audit({"writer": uneven("writer", 0.1)}, [texts], db=tmp_path / "a.db", out=tmp_path / "out")
    audit.run_sync()
    planned = asyncio.run(plan_audit(audit))
    with_empty_store = asyncio.run(dry_run_audit(audit.only(suites=list(audit.suites), db=tmp_path / "none.db")))
    (model,) = with_empty_store.models
    assert model.follow_ups > 0
    assert planned.costs[0].requests == model.requests + model.follow_ups


def test_a_stopped_pilot_is_corrected_for_all_figures(tmp_path):
    """It had come to two of four primary figures, and promised too small differences at an alpha of 0.05."""
    models = {"one": uneven("one", 0.0), "two": uneven("two", 0.05)}
    whole = Audit(models, [OccuGender()], db=tmp_path / "a.db", out=tmp_path / "out", limit=200)
    Audit(models, {"OccuGender": OccuGender(("implicit",))}, db=tmp_path / "a.db", limit=200).run_sync()
    assert {figure.alpha for figure in asyncio.run(plan_audit(whole, 0.05)).figures} == {0.0125}
