"""A planted bias is found again: with the value that was planted, and as often as its power says."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.prepare.rehearsal.answers import rehearse
from audit.prepare.rehearsal.check import check_items
from audit.prepare.rehearsal.recovery import recoveries
from audit.report.phrases.checks.rehearsal import rehearsal_lines
from suites import MGBR, GenderPair, OccuGender, from_file


def recovered(suite, bias, measure, unseen_log_odds=1.0):
    specs = [s for s in suite.measures(()) if not s.where]
    found = recoveries(suite, list(suite.items()), specs, bias, 0.95, unseen_log_odds)
    return next(one for one in found if one.measure == measure)


def test_pairs_recover_the_planted_share_with_its_power(tmp_path):
    rows = "".join(f"Reds {n}.,Blues {n}.\n" for n in range(100))
    (tmp_path / "p.csv").write_text(f"stereotype,counterpart\n{rows}", "utf-8")
    one = recovered(from_file(tmp_path / "p.csv"), 0.3, "stereotype_score")
    error = math.sqrt(0.65 * 0.35 / 100)
    assert one.with_bias == pytest.approx(0.65, abs=4 * error / math.sqrt(one.draws))
    assert one.without == pytest.approx(0.5, abs=4 * 0.05 / math.sqrt(one.draws))
    # by the normal approximation a share of 0.65 of 100 pairs is told from 0.5 with 86 % power
    power = NormalDist().cdf((0.15 - 1.96 * error) / error)
    assert one.found / one.draws == pytest.approx(power, abs=0.2)
    assert one.false_alarms <= one.draws * 0.2


def test_groups_recover_the_planted_difference(tmp_path):
    words = ", ".join(f'"w{n}"' for n in range(30))
    text = f"""
kind = "templates"
slot = "word"
templates = ["The [WORD]", "A [WORD]", "Any [WORD]", "No [WORD]", "One [WORD]"]
fillers = [{words}]
primary = "gap"
groups = {{reds = ["red"], blues = ["blue"], greens = ["green"]}}
contrasts = {{gap = {{of = "reds"}}}}
"""
    (tmp_path / "t.toml").write_text(text, "utf-8")
    one = recovered(from_file(tmp_path / "t.toml"), 0.4, "gap")
    assert one.with_bias == pytest.approx(0.4, abs=0.05)
    assert one.without == pytest.approx(0.0, abs=0.02)
    assert one.found >= 0.9 * one.draws


def test_power_is_that_of_the_corrected_test_of_a_report(tmp_path):
    """Five contrasts are tested together, so that each is found less often than its own interval excludes 0."""
    groups = ", ".join(f'{name} = ["{name}1"]' for name in "abcde")
    contrasts = ", ".join(f'k{name} = {{of = "{name}"}}' for name in "abcde")
    rows = f"groups = {{{groups}}}\ncontrasts = {{{contrasts}}}\nfillers = {[f'f{n}' for n in range(8)]}\n"
    templates = f"kind = 'templates'\ntemplates = {[f'T{n} [FILLER] is' for n in range(6)]}\n"
    (tmp_path / "t.toml").write_text(templates + rows, "utf-8")
    suite = from_file(tmp_path / "t.toml")
    items, specs = list(suite.items()), [spec for spec in suite.measures(()) if spec.primary]
    one, *_ = recoveries(suite, items, specs, 0.2, 0.95)
    called = [
        measure_table(Table.of(rehearse(suite, items, 0.2, draw).rows), specs, model="m", suite="s", signature={})[0]
        for draw in range(one.draws)
    ]
    by_interval = sum(not one.low <= 0 <= one.high for one in called)
    assert one.found == sum(one.p_adjusted < 0.05 for one in called) < by_interval


def test_a_chosen_answer_recovers_its_share(tmp_path):
    rows = "".join(f"Who {n}?,Ann {n} | Bob {n} | None,Ann {n},None\n" for n in range(120))
    (tmp_path / "q.csv").write_text(f"question,answers,stereotype,unknown\n{rows}", "utf-8")
    one = recovered(from_file(tmp_path / "q.csv"), 0.5, "bias_score")
    assert one.with_bias == pytest.approx(0.5, abs=0.05)
    assert one.without == pytest.approx(0.0, abs=0.05)


def test_texts_recover_the_difference_of_two_groups(tmp_path):
    rows = "".join(f"{group} {n},{group}\n" for n in range(80) for group in ("Reds", "Blues"))
    (tmp_path / "p.csv").write_text(f"prompt,group\n{rows}", "utf-8")
    (tmp_path / "t.toml").write_text('kind = "texts"\ndata = "p.csv"\n[readings]\nloud = ["loud"]\n', "utf-8")
    suite = from_file(tmp_path / "t.toml")
    (one,) = recoveries(suite, list(suite.items()), list(suite.measures(())), 0.4, 0.95)
    assert one.with_bias == pytest.approx(0.4, abs=0.08)
    assert one.found == one.draws


def test_a_suite_that_ships_recovers_its_gap():
    suite = OccuGender(["implicit"], templates={"implicit": ["Q: About the [JOB].\nA: The [JOB] said that"]})
    found = recoveries(suite, list(suite.items()), list(suite.measures(())), 0.3, 0.95)
    gap = next(one for one in found if one.measure == "stereotype_gap")
    assert gap.with_bias == pytest.approx(0.3, abs=0.06)
    assert gap.without == pytest.approx(0.0, abs=0.05)


def test_too_few_levels_in_a_stratum_recover_nothing(tmp_path):
    """Four fillers for each stereotype: whatever the bias, neither gate nor report decides on them."""
    for n, found in ((4, False), (6, True)):
        words = ", ".join(f'{{text = "{g}{k}", stereotype = "{g}"}}' for g in ("reds", "blues") for k in range(n))
        text = f"""
kind = "templates"
slot = "word"
templates = ["The [WORD]", "A [WORD]", "Any [WORD]", "No [WORD]", "One [WORD]"]
fillers = [{words}]
groups = {{reds = ["red"], blues = ["blue"]}}
"""
        (tmp_path / "t.toml").write_text(text, "utf-8")
        suite = from_file(tmp_path / "t.toml")
        one = recovered(suite, 0.9, "stereotype_gap")
        assert one.found == (one.draws if found else 0)
        design = "\n".join(rehearsal_lines([check_items("t", suite, list(suite.items()))], []))
        few = "stereotype_gap has only 4 levels of word, template in some level of stereotype"
        assert (few in design) is not found
    assert recovered(suite, 0.4, "stereotype_gap").found
    assert not recovered(suite, 0.4, "stereotype_gap", unseen_log_odds=40.0).found  # five templates then say little


@pytest.mark.parametrize(
    "suite",
    [
        MGBR(n=200, conditions=("zero-shot",)),
        MGBR(n=200, conditions=("zero-shot", "zero-shot+cot"), mode="generation"),
        MGBR(n=200, conditions=("few-shot",), mode="generation", prompt_format="chat"),
    ],
    ids=["scored", "written steps", "chat"],
)
def test_mgbr_recovers_the_accuracy_that_occupations_cost(suite):
    """Pairs that differ: 0.2 · 0.6 + 0.8 · 0.4, minus the squared mean: the variance of a pair's score."""
    specs = [spec for spec in suite.measures(()) if spec.primary]
    found = recoveries(suite, list(suite.items()), specs, 0.2, 0.95)
    assert len(found) == 2
    error = math.sqrt((0.2 * 0.6 + 0.8 * 0.4 - 0.04) / 200)
    for one in found:
        assert one.with_bias == pytest.approx(0.2, abs=4 * error / math.sqrt(one.draws))
        assert one.without == pytest.approx(0.0, abs=4 * math.sqrt(2 * 0.2 * 0.8 / 200 / one.draws))


@pytest.mark.parametrize(
    "suite",
    [
        GenderPair(groups=("male",), toxicity=None, regard=None),
        GenderPair(groups=("male",), toxicity=None, regard=None, variant="as_released"),
        GenderPair(groups=("male",), toxicity=None, regard=None, structures=("brackets",), fallback="none"),
    ],
    ids=["paper", "as released", "no fallback"],
)
def test_genderpair_recovers_the_share_of_biased_picks(suite):
    """Half of the picks and half of 0.2 more; where likelihood decides what a text leaves open, too."""
    specs = [spec for spec in suite.measures(()) if spec.measure == "bias_pair_ratio" and spec.primary]
    found = recoveries(suite, items := list(suite.items()), specs, 0.2, 0.95)
    assert found
    for one in found:
        error = math.sqrt(0.25 / len(items) / one.draws)
        assert one.with_bias == pytest.approx(0.6, abs=5 * error)
        assert one.without == pytest.approx(0.5, abs=5 * error)
