"""The gate: verdicts by hand, limits, output forms, and its error rates at the margin."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.analysis.comparing.paired import End, PairedDifference
from audit.analysis.gate.against_baseline import gate
from audit.analysis.gate.changes import Change
from audit.analysis.gate.results import GateReport
from audit.analysis.gate.rules import GateRules
from audit.analysis.measures import measure_rows
from audit.analysis.rows.table import RowTable
from audit.report.exports import gate_json, gate_markdown, junit_xml
from audit.report.phrases.checks.gate import check_words
from audit.results import AuditResult, FigureName
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, MeasureSpec, Row

GAP = MeasureSpec("stereotype_gap", "p", clusters=("occupation", "template"), neutral=0.0, unit="difference")
FEMALE = MeasureSpec("p_female", "p", clusters=("occupation", "template"), neutral=0.5)


class Run:
    """A run of one model on one suite: its result and its rows."""

    def __init__(self, values: np.ndarray, *specs: MeasureSpec, signature: Mapping[str, object] | None = None,
                 rows: list[Row] | None = None) -> None:  # fmt: skip
        self.rows = rows or [
            Row(f"{o}/{t}", {"occupation": o, "template": t}, {"p": IdentifiedInterval.exact(float(v))})
            for (o, t), v in np.ndenumerate(values)
        ]
        measures = measure_rows(
            RowTable(self.rows), specs or (GAP,), model="m", suite="s", signature=signature or {"data": "x"}
        )
        self.result = AuditResult(
            run_id="run", title="", started="", finished="", complete=True, interrupted=False, seed=0, limit=None,
            confidence=0.95, versions={}, models=[], suites=[], measures=measures, comparisons=[], data_quality=[],
        )  # fmt: skip

    def of(self, model: str, suite: str) -> list[Row]:
        assert (model, suite) == ("m", "s")
        return self.rows


def gate_of(current: Run, baseline: Run, **options: object) -> GateReport:
    given = {"rows": current.of, "baseline_rows": baseline.of}
    given |= {name: options.pop(name) for name in ("rows", "baseline_rows", "shares") if name in options}
    return gate(current.result, baseline.result, GateRules(**options), **given)  # type: ignore[arg-type]


def noise(seed: int, scale: float = 0.01, shape: tuple[int, int] = (20, 7)) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, shape)


BASE = np.random.default_rng(0).uniform(0.1, 0.3, (20, 7))


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [(0.05, "regressed", 3), (-0.05, "improved", 0), (0.004, "unchanged", 0), (0.02, "inconclusive", 0)],
)
def test_verdicts_by_the_distance_from_neutral(change: float, verdict: str, code: int) -> None:
    report = gate_of(Run(BASE + change + noise(1)), Run(BASE), largest_change=0.01)
    (figure,) = report.figures
    assert (figure.verdict, report.exit_code) == (verdict, code)
    assert figure.change == pytest.approx((change + noise(1)).mean())
    assert figure.baseline == pytest.approx(BASE.mean())
    assert figure.paired
    assert figure.n_items == 140


def test_a_change_of_few_occupations_says_so() -> None:
    few = np.where(np.arange(20) < 2, 0.6, 0.0)[:, None]
    (figure,) = gate_of(Run(BASE + few + noise(1)), Run(BASE)).figures
    assert figure.is_of_few
    assert "A few of its occupations or templates decide this, so its interval may be too short." in check_words(figure)
    (even,) = gate_of(Run(BASE + 0.05 + noise(1)), Run(BASE)).figures
    assert (even.verdict, even.is_of_few) == ("regressed", False)
    without_rows = gate_of(Run(BASE), Run(BASE), rows=lambda model, suite: []).figures[0]
    assert not without_rows.is_of_few


def test_an_improvement_says_what_kinds_not_asked_could_do() -> None:
    run = Run(BASE - 0.05 + noise(1), replace(GAP, kind="difference"))
    (figure,) = gate_of(run, Run(BASE, replace(GAP, kind="difference"))).figures
    assert figure.verdict == "improved"
    assert figure.is_of_kinds_asked
    farther = "were others apart by up to 2, the change is between"
    assert f"This is of kinds like those asked: {farther}" in check_words(figure)


OUTCOME = MeasureSpec("picks", "p", kind="share", neutral=0.5)


def outcomes(ones: int, n: int) -> np.ndarray:
    return np.repeat([1.0, 0.0], [ones, n - ones])[None]


def test_few_changed_outcomes_use_the_more_careful_test() -> None:
    def verdict(before: int, after: int, n: int) -> str:
        return gate_of(Run(outcomes(after, n), OUTCOME), Run(outcomes(before, n), OUTCOME)).figures[0].verdict

    assert verdict(150, 151, 200) == "inconclusive", "exactly, 1 of 200 has p = 0.089 against a change of 0.02"
    assert verdict(1500, 1501, 2000) == "unchanged"
    assert verdict(4, 8, 8) == "inconclusive", "McNemar's p is 0.125"
    assert verdict(10, 15, 20) == "inconclusive", "McNemar's p is 0.0625"
    assert verdict(50, 70, 100) == "regressed"


def test_correlation_of_equal_counts_is_inconclusive() -> None:
    spec = MeasureSpec("r", "p", estimator="correlation", clusters=("occupation",), covariate="occupation", neutral=0.0)
    counts = np.random.default_rng(3).integers(-1, 2, (12, 3)).astype(float)
    for values in (counts, counts / 3):  # what clusters of a kind not seen may do to a correlation has no bound
        (figure,) = gate_of(Run(values, spec), Run(values, spec)).figures
        assert (figure.change, figure.verdict) == (0, "inconclusive")
    (figure,) = gate_of(Run(counts, spec), Run(counts, spec)).figures
    assert "identical answers give no interval" in check_words(figure)


def test_missing_answers_are_reported_and_rule_out_unchanged() -> None:
    now = Run(BASE)
    for lost, unreadable in ((1, "inconclusive"), (60, "regressed")):
        rows = [Row(r.item_id, r.factors, {}, "refusal") if i < lost else r for i, r in enumerate(now.rows)]
        figure, share = gate_of(Run(BASE, rows=rows), Run(BASE)).figures
        assert (figure.verdict, figure.n_missing, figure.n_items) == ("inconclusive", lost, 140 - lost)
        assert f"of the answers are missing ({lost} of 140 items)" in check_words(figure)
        assert (share.measure, share.verdict) == ("unreadable_share", unreadable)
        assert (share.baseline, share.current) == (0, pytest.approx(lost / 140))
    worse = [Row(r.item_id, r.factors, {}, "refusal") if i < 2 else r for i, r in enumerate(Run(BASE + 0.3).rows)]
    bounded = dataclasses.replace(GAP, kind="difference")
    report = gate_of(Run(BASE, bounded, rows=worse), Run(BASE, bounded))
    assert report.figures[0].verdict == "regressed"
    assert "this holds whatever they would have been" in check_words(report.figures[0])


def test_worst_items_left_out_rule_out_unchanged_and_improved() -> None:
    base = np.random.default_rng(3).uniform(0.1, 0.3, (20, 25))
    bounded = dataclasses.replace(GAP, kind="difference")
    for change, hidden_verdict in ((0.0, "unchanged"), (-0.05, "improved")):
        run = Run(base + change + noise(4, 0.003, (20, 25)), bounded)
        (figure,) = gate_of(run, Run(base, bounded), largest_change=0.1).figures
        assert (figure.verdict, figure.open_because) == (hidden_verdict, None)
        kept = run.rows[22:]  # 4.4 % of the items: they moved to a gap of 1, and have no value any more
        report = gate_of(Run(base, bounded, rows=kept), Run(base, bounded))
        (figure,) = report.figures
        assert (figure.verdict, figure.open_because) == ("inconclusive", "unpaired items")
        assert report.exit_code == 3
        assert report.model_copy(update={"open_fails": "none"}).exit_code == 0
        assert (figure.n_unpaired, figure.n_items) == (22, 478)
        assert "They may hide a change, so it is not called unchanged." in check_words(figure)
    (figure,) = gate_of(Run(base, bounded, rows=run.rows[2:]), Run(base, bounded)).figures
    assert figure.verdict == "improved", "2 of 500 items can make up for 0.008 at most"
    assert figure.harm_high is not None
    assert figure.decided_high is not None
    assert figure.decided_high > figure.harm_high + 0.007, "the interval that decided holds them"


def test_refusals_are_judged_for_every_kind_of_item() -> None:
    """Two figures with the same condition may rest on different items."""
    rows = [
        *[Row(f"a{i}", {"k": None}, {"p": IdentifiedInterval.exact(0.5)}) for i in range(40)],
        *[Row(f"b{i}", {"k": None}, {"q": IdentifiedInterval.exact(0.5)}) for i in range(40)],
        *[Row(f"c{i}", {"k": "None"}, {}, "refusal") for i in range(40)],
        Row("d", {"k": "None"}, {"p": IdentifiedInterval.exact(0.5)}),
    ]
    specs = [MeasureSpec(name, name, {"k": level}) for name in ("p", "q") for level in (None, "None")]
    run = Run(BASE, *specs, rows=rows)
    rules = GateRules(limits={"refusals": (None, 0.2)})
    checked = gate(run.result, None, rules, rows=run.of, baseline_rows=run.of).limits
    assert {(c.measure, c.where["k"], c.verdict) for c in checked} >= {
        ("p", None, "met"),
        ("p", "None", "broken"),
        ("q", "None", "broken"),
    }


def test_harm_is_away_from_neutral_on_either_side() -> None:
    low, high = BASE + 0.1, BASE + 0.6  # below and above 0.5

    def verdict(before: np.ndarray, after: np.ndarray) -> str:
        return gate_of(Run(after + noise(2), FEMALE), Run(before, FEMALE)).figures[0].verdict

    assert verdict(low, low - 0.05) == "regressed"
    assert verdict(low, low + 0.05) == "improved"
    assert verdict(high, high + 0.05) == "regressed"
    assert verdict(high, high - 0.05) == "improved"
    assert verdict(low, 1 - low) == "inconclusive", "as far from neutral on the other side"
    crossing = BASE - BASE.mean() + 0.49
    (figure,) = gate_of(Run(crossing + 0.1 + noise(3, 0.001), FEMALE), Run(crossing, FEMALE)).figures
    harm = (figure.harm_low or 0) + (figure.harm_high or 0)
    assert harm / 2 == pytest.approx(0.08, abs=0.002)
    assert figure.verdict == "regressed"


@pytest.mark.parametrize("kind", ["real", "difference"])
def test_a_baseline_near_neutral_is_no_surer_than_its_error(kind: str) -> None:
    gap = dataclasses.replace(GAP, kind=kind, primary=True)  # type: ignore[arg-type]
    rng, found = np.random.default_rng(5), Counter[str]()
    for _ in range(40):  # the figure is 0 in truth, ± 0.05 in a sample; the run is 0.05 below: worse by 0.05
        base = rng.normal(0, 0.15, (20, 1)) + rng.normal(0, 0.15, (1, 15)) + rng.normal(0, 0.1, (20, 15))
        now = base - 0.05 + rng.normal(0, 0.01, (20, 1)) + rng.normal(0, 0.01, (20, 15))
        (figure,) = gate_of(Run(now, gap), Run(base, gap)).figures
        found[figure.verdict] += 1
        if figure.verdict == "inconclusive":
            assert figure.open_because == "side of neutral unknown"
            assert "uncertain whether towards its neutral value or away from it" in check_words(figure)
    assert found["improved"] <= 3
    assert found["unchanged"] == 0
    for shift, verdict in ((-0.05, "regressed"), (0.05, "improved")):  # far from neutral nothing is lost
        later = now + shift + rng.normal(0, 0.04, now.shape)
        (figure,) = gate_of(Run(later / 2 - 0.4, gap), Run(now / 2 - 0.4, gap), margins=0.01).figures
        assert figure.verdict == verdict


EFFECT = MeasureSpec("effect", "p", clusters=("occupation", "template"), neutral=0.0, unit="difference", contrast=True)


def test_contrast_is_gated_only_by_a_named_margin() -> None:
    works, better, dead = (Run(-noise(seed) - at, EFFECT) for seed, at in ((1, 0.3), (2, 0.6), (3, 0.0)))
    for margins in (0.02, {"default": 0.02}):
        for now, before in ((better, works), (dead, works)):
            report = gate_of(now, before, margins=margins)
            assert (report.figures, report.exit_code) == ([], 0)
    for now in (better, dead):
        (figure,) = gate_of(now, works, margins={"effect": 0.02}).figures
        assert (figure.verdict, figure.harm_low) == ("regressed", pytest.approx(0.3, abs=0.01))
        assert "moved away from the baseline by more than the margin" in check_words(figure)
    (figure,) = gate_of(works, works, margins={"effect": 0.02}, largest_change=0.01).figures
    assert figure.verdict == "unchanged"


def test_baseline_without_contrast_marks_takes_the_runs() -> None:
    specs = [EFFECT, dataclasses.replace(EFFECT, where={"template": 1})]
    now, before = Run(BASE + 0.2 + noise(1), specs[0]), Run(BASE, *specs)
    stored = before.result.model_dump()
    for measure in stored["measures"]:
        del measure["contrast"]
    before.result = AuditResult.model_validate(stored)
    assert before.result.measures[0].signature == now.result.measures[0].signature
    assert gate_of(now, before).figures == [], "neither the figure of both runs nor the one that is gone"
    named = gate_of(now, before, margins={"effect": 0.02}).figures
    assert [figure.verdict for figure in named] == ["regressed", "not comparable"]


@given(
    total=st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
    change=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
    neutral=st.floats(-1, 1),
    at=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_harm_interval_holds_every_harm_within(
    total: tuple[float, float], change: tuple[float, float], neutral: float, at: tuple[float, float]
) -> None:
    between = [
        PairedDifference(GAP, 0, 1, "", low=End(min(of), 0, 9), high=End(max(of), 0, 9)) for of in (change, total)
    ]
    harm = Change(FigureName("s", "gap", {}), neutral, *between).harm_at(0.95)
    moved, both = (min(of) + part * (max(of) - min(of)) for of, part in zip((change, total), at, strict=True))
    before = neutral + (both - moved) / 2
    within = abs(before + moved - neutral) - abs(before - neutral)
    assert harm[0] - 1e-9 <= within <= harm[1] + 1e-9


def test_figure_without_neutral_is_gated_by_name_both_ways() -> None:
    open_figure = MeasureSpec("p_diverse", "p", clusters=("occupation", "template"))
    before = Run(BASE, open_figure)
    after = Run(BASE - 0.05 + noise(4), open_figure)
    assert gate_of(after, before, margins=0.02).figures == []
    assert gate_of(after, before, margins={"p_diverse": 0.02}).figures[0].verdict == "regressed"
    (same,) = gate_of(before, before, margins={"p_diverse": 0.02}, largest_change=0.01).figures
    assert same.verdict == "unchanged"


def test_detail_figures_are_not_gated() -> None:
    is_subgroup = MeasureSpec("p_female", "p", {"occupation": 3}, clusters=("template",), neutral=0.5, is_subgroup=True)
    assert gate_of(Run(BASE, is_subgroup), Run(BASE, is_subgroup)).figures == []


def test_other_signature_is_not_comparable_and_says_why() -> None:
    report = gate_of(Run(BASE, signature={"data": "new", "limit": 5}), Run(BASE, signature={"data": "old", "limit": 9}))
    (figure,) = report.figures
    assert figure.verdict == "not comparable"
    assert "data (was 'old', is 'new')" in check_words(figure)
    assert "limit" not in check_words(figure)
    assert report.exit_code == 0
    assert gate_of(Run(BASE, signature={"data": "new"}), Run(BASE), open_fails="all").exit_code == 3


def test_figures_that_only_one_run_has_are_not_comparable() -> None:
    report = gate_of(Run(BASE, GAP), Run(BASE, FEMALE))
    assert {f.measure: f.verdict for f in report.figures} == {
        "stereotype_gap": "not comparable",
        "p_female": "not comparable",
    }


def test_without_rows_the_intervals_decide_and_are_wider() -> None:
    after, before = Run(BASE + 0.035 + noise(5)), Run(BASE)
    paired = gate_of(after, before).figures[0]
    apart = gate_of(after, before, baseline_rows=lambda model, suite: []).figures[0]
    assert (paired.paired, apart.paired) == (True, False)
    assert apart.change == pytest.approx(paired.change)
    now, then = after.result.measures[0], before.result.measures[0]
    half = np.hypot(now.high - now.value, then.value - then.low)  # type: ignore[operator]
    assert apart.high - apart.change == pytest.approx(half)  # type: ignore[operator]
    assert (apart.verdict, paired.verdict) == ("inconclusive", "regressed")


def test_bounded_items_leave_room_for_both_verdicts() -> None:
    before, after = Run(BASE), Run(BASE + 0.05 + noise(6))
    censored = [
        Row(r.item_id, r.factors, {"p": IdentifiedInterval(None, 0.0, 1.0)}) if r.factors["template"] == 2 else r
        for r in after.rows
    ]
    (figure,) = gate_of(Run(BASE, rows=censored), before).figures
    assert (figure.verdict, figure.change) == ("inconclusive", None)


def test_holm_runs_over_all_figures_of_the_gate() -> None:
    after = BASE + 0.0262 + noise(7, 0.015)
    alone = gate_of(Run(after), Run(BASE)).figures[0]
    assert alone.verdict == "regressed"
    many = [
        GAP,
        *(MeasureSpec(f"f{i}", "p", {"template": i}, ("mean"), ("occupation",), neutral=0.0) for i in range(7)),
    ]
    among = gate_of(Run(after, *many), Run(BASE, *many)).figures[0]
    assert among.p_regressed > alone.p_regressed  # type: ignore[operator]


def test_misspelt_margins_and_limits_are_refused() -> None:
    run = Run(BASE)
    for options in ({"margins": {"stereotype_gpa": 0.1}}, {"limits": {"stereotype_gpa": (None, 0.3)}}):
        with pytest.raises(ConfigError, match="stereotype_gpa"):
            gate_of(run, run, **options)


def test_a_specification_is_stored_with_its_measure() -> None:
    spec = MeasureSpec(
        "r", "p", {"template": 1}, "correlation", ("occupation",), "occupation", "correlation", 0.0, "f", True, "mass",
        contrast=True,
    )  # fmt: skip
    result = Run(BASE, spec).result
    assert result.measures[0].spec == spec
    assert AuditResult.model_validate_json(result.model_dump_json()) == result


# ------------------------------------------------------------------------------- limits


def limit(run: Run, **limits: tuple[float | None, float | None]) -> list[str]:
    return [check.verdict for check in gate_of(run, run, limits=limits).limits]


def test_limits_are_decided_on_the_interval() -> None:
    run = Run(BASE)
    measure = run.result.measures[0]
    assert measure.low is not None
    assert measure.high is not None
    assert limit(run, stereotype_gap=(None, measure.high + 0.001)) == ["met"]
    assert limit(run, stereotype_gap=(None, measure.high - 0.001)) == ["insufficient evidence"]
    assert limit(run, stereotype_gap=(None, measure.low - 0.001)) == ["broken"]
    assert limit(run, stereotype_gap=(measure.low - 0.001, None)) == ["met"]
    assert limit(run, stereotype_gap=(measure.high + 0.001, 0.9)) == ["broken"]
    assert gate_of(run, run, limits={"stereotype_gap": (None, 0.01)}).exit_code == 3


def test_levels_of_an_older_result_are_those_of_its_groups() -> None:
    spec = dataclasses.replace(GAP, kind="difference", stratum="group", weights={"f": 0.5, "m": 0.5})
    rows = [
        Row(f"{o}/{t}", {"occupation": o, "template": t, "group": "f" if o < 2 else "m"},
            {"p": IdentifiedInterval.exact(0.1 + o / 1000 + t / 1000)})
        for o in range(20) for t in range(7)
    ]  # fmt: skip
    run = Run(BASE, spec, rows=rows)
    (measure,) = run.result.measures
    assert measure.fewest_levels == 2
    older = run.result.model_copy(update={"measures": [measure.model_copy(update={"fewest_levels": None})]})
    for result in (run.result, older):
        report = gate(
            result, None, GateRules(limits={"stereotype_gap": (None, 0.9)}), rows=run.of, baseline_rows=run.of
        )
        assert [(c.verdict, c.open_because) for c in report.limits] == [("insufficient evidence", "too few clusters")]
        (figure,) = gate(
            result, result, GateRules(), rows=lambda model, suite: (), baseline_rows=lambda model, suite: ()
        ).figures
        assert (figure.verdict, figure.open_because) == ("inconclusive", "too few clusters")
        assert "only 2 of its 20 occupations or 7 templates, and fewer than 5" in check_words(figure)


def test_one_cluster_is_insufficient_evidence() -> None:
    assert limit(Run(BASE[:1, :1]), stereotype_gap=(None, 0.9)) == ["insufficient evidence"]


def refusing(count: int, of: int) -> Run:
    rows = [
        Row(str(i), {}, {}, "refusal")
        if i < count
        else Row(
            str(i), {}, {"p": IdentifiedInterval.exact(0.2), "mass": IdentifiedInterval.exact(0.9 if i % 2 else 0.8)}
        )
        for i in range(of)
    ]
    return Run(
        BASE, MeasureSpec("stereotype_gap", "p", neutral=0.0, unit="difference", probability_mass="mass"), rows=rows
    )


def test_limit_is_met_with_room_and_broken_without() -> None:
    gap = replace(GAP, kind="difference", range=(-1.0, 1.0))
    run = Run(0.2 + noise(3), gap)
    (measure,) = run.result.measures
    assert measure.low is not None
    assert measure.sampling_low is not None
    assert measure.high is not None
    assert measure.low < measure.sampling_low - 0.05
    between = (measure.low + measure.sampling_low) / 2
    (check,) = gate_of(run, run, limits={"stereotype_gap": (None, between)}).limits
    assert (check.verdict, check.low, check.high) == ("broken", measure.sampling_low, measure.sampling_high)
    assert limit(run, stereotype_gap=(None, measure.high - 0.01)) == ["insufficient evidence"]
    assert limit(run, stereotype_gap=(None, measure.high + 0.01)) == ["met"]


def test_share_of_refusals_and_coverage_have_limits_too() -> None:
    run = refusing(50, 200)
    (check,) = gate_of(run, run, limits={"refusals": (None, 0.1)}).limits
    assert (check.value, check.verdict) == (0.25, "broken")
    (check,) = gate_of(run, run, limits={"coverage": (0.55, None)}).limits
    assert (check.value, check.verdict) == (pytest.approx(0.85), "met")
    for one in run.rows:
        if not one.missing:
            one.values["mass"] = IdentifiedInterval(None, 0.7, 0.9)
    (check,) = gate_of(run, run, limits={"coverage": (0.55, None)}).limits
    assert check.value is None, "known only by bounds"
    (check,) = gate_of(run, run, limits={"coverage": (0.8, None)}).limits
    assert (check.verdict, check.open_because) == ("insufficient evidence", "missing answers"), "of a quarter, none"


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [("unparsable", "insufficient evidence"), ("timeout", "insufficient evidence"), ("tie", "met")],
)
def test_what_cannot_be_read_may_be_a_refusal(reason: str, verdict: str) -> None:
    """A model that answers "I would rather not say" to a suite that knows no refusals keeps no limit on them."""
    exact = IdentifiedInterval.exact
    rows = [Row(str(i), {}, {}, reason) if i < 50 else Row(str(i), {}, {"p": exact(0.2)}) for i in range(200)]
    run = Run(BASE, MeasureSpec("accuracy", "p", neutral=0.0), rows=rows)
    (check,) = gate_of(run, run, limits={"refusals": (None, 0.1)}).limits
    assert check.verdict == verdict
    assert check.open_because == ("missing answers" if verdict != "met" else None)


def test_answers_that_are_known_less_closely_do_not_pass() -> None:
    """Items that turned to 1 and are now known only by bounds hide a regression as refusals do."""
    spec = MeasureSpec("stereotype_gap", "p", clusters=("occupation", "template"), kind="difference", neutral=0.0)
    before = np.random.default_rng(3).uniform(0.1, 0.3, (40, 25))
    rows = Run(before + 0.001, spec).rows
    bounds = IdentifiedInterval(None, 0.1, 1.0)
    hidden = [replace(row, values={"p": bounds}) if i % 20 == 0 else row for i, row in enumerate(rows)]
    report = gate_of(Run(before, spec, rows=hidden), Run(before, spec))
    (figure,) = report.figures
    assert (figure.verdict, figure.open_because, report.exit_code) == ("inconclusive", "wider bounds", 3)
    assert "known less closely than the baseline's, which may hide a change" in check_words(figure)
    as_before = gate_of(Run(before, spec, rows=hidden), Run(before, spec, rows=hidden))
    assert as_before.figures[0].open_because != "wider bounds", "a server that always lists few tokens"


@pytest.mark.parametrize("level", [0.3, 0.01])
def test_groups_apart_make_no_coverage_limit_wider(level: float) -> None:
    spec = MeasureSpec("stereotype_gap", "p", clusters=("occupation", "template"), kind="difference", neutral=0.0,
                       stratum="group", weights={"f": 0.5, "m": 0.5}, probability_mass="mass")  # fmt: skip
    rng = np.random.default_rng(1)
    parts = rng.normal(0, 0.3, (16, 1)) + rng.normal(0, 0.3, (1, 5)) + rng.normal(0, 0.3, (16, 5))
    widths = {}
    for lean in (0.0, 0.9):
        group = np.where(np.arange(16) < 8, 1.0, -1.0)[:, None]
        mass = level * np.exp(parts) * (1 + lean * group)
        rows = [
            Row(f"{o}/{t}", {"occupation": o, "template": t, "group": "fm"[o // 8]},
                {"p": IdentifiedInterval.exact(0.1), "mass": IdentifiedInterval.exact(min(m, 1.0))})
            for (o, t), m in np.ndenumerate(mass.tolist())
        ]  # fmt: skip
        run = Run(BASE, spec, rows=rows)
        (check,) = gate_of(run, run, limits={"coverage": (1e-4, None)}).limits
        assert check.low is not None
        assert check.high is not None
        assert check.verdict == "met"
        widths[lean] = (check.high - check.low) / (check.value or 0)
    assert widths[0.9] < 1.5 * widths[0.0], "what lies between fixed groups is no sampling error"


def test_limits_on_shares_are_of_the_figures_own_items() -> None:
    """Occupations of no group have a coverage and may refuse, but the gap is not about them."""
    spec = MeasureSpec("stereotype_gap", "p", clusters=("occupation", "template"), kind="difference", neutral=0.0,
                       stratum="group", weights={"f": 0.5, "m": 0.5}, probability_mass="mass")  # fmt: skip
    rng = np.random.default_rng(2)
    exact = IdentifiedInterval.exact

    def row(o: int, t: int) -> Row:
        group = "fmn"[o // 8]
        factors = {"occupation": o, "template": t, "group": group}
        mass = exact({"f": 0.3, "m": 0.8, "n": 0.01}[group] + 0.05 * rng.random())
        if group == "n":
            return Row(f"{o}/{t}", factors, {}, "refusal") if t < 3 else Row(f"{o}/{t}", factors, {"mass": mass})
        return Row(f"{o}/{t}", factors, {"p": exact(0.1), "mass": mass})

    rows = [row(o, t) for o in range(24) for t in range(6)]
    of_groups, with_others = (Run(BASE, spec, rows=given) for given in (rows[: 16 * 6], rows))
    for limits in ({"coverage": (0.2, None)}, {"refusals": (None, 0.2)}):
        (alone,), (found,) = (gate_of(run, run, limits=limits).limits for run in (of_groups, with_others))
        assert (found.value, found.low, found.high) == pytest.approx((alone.value, alone.low, alone.high))
        assert (found.verdict, found.n_items) == ("met", 96)


def test_no_refusal_among_few_items_proves_nothing() -> None:
    assert limit(refusing(0, 10), refusals=(None, 0.05)) == ["insufficient evidence"]
    assert limit(refusing(0, 200), refusals=(None, 0.05)) == ["met"]
    # One refusal more never makes the share surer to be small.
    assert [limit(refusing(k, 200), refusals=(None, 0.016)) for k in (0, 1, 2)] == [["insufficient evidence"]] * 3


def test_one_changed_outcome_is_no_surer_than_none() -> None:
    spec = MeasureSpec("picks", "p", clusters=("occupation", "template"), kind="share", neutral=0.5)
    picks = np.random.default_rng(4).integers(0, 2, (27, 34)).astype(float)
    one_changed = picks.copy()
    one_changed[3, 4] = 1 - picks[3, 4]
    (same,), (changed,) = (
        gate_of(Run(picks, spec), Run(now, spec), largest_change=0.02).figures for now in (picks, one_changed)
    )
    assert (same.verdict, changed.verdict) == ("unchanged", "unchanged")
    assert same.low is not None
    assert same.high is not None
    assert changed.low is not None
    assert changed.high is not None
    assert same.high - same.low < changed.high - changed.low


# ------------------------------------------------------------------------- output forms


def test_reports_for_ci_systems() -> None:
    specs = (GAP, MeasureSpec("p|\x01female", "p", {"occupation": 1}, clusters=("template",), neutral=0.5))
    after, before = Run(BASE + 0.05 + noise(8), *specs), Run(BASE, *specs)
    report = gate_of(after, before, limits={"stereotype_gap": (None, 0.4)})
    written = json.loads(gate_json(report))
    assert written["exit_code"] == 3
    assert sum(written["counts"].values()) == 3
    assert written["figures"][0]["verdict"] == "regressed"
    root = ElementTree.fromstring(junit_xml(report))
    (suite,) = root.findall("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("message", "").startswith("regressed: stereotype_gap of m on s moved away")
    markdown = gate_markdown(report)
    assert markdown.startswith("# Gate failed: 1 of 3 checks")
    assert "p\\|" in markdown
    assert gate_markdown(gate_of(before, before, largest_change=0.01)).startswith("# Gate passed: 2 checks")


def test_gate_without_conclusive_checks_decided_nothing() -> None:
    refused = [Row(r.item_id, r.factors, {}, "refusal") for r in Run(BASE).rows]
    unanswered = gate_of(Run(BASE, rows=refused), Run(BASE))
    assert [one.verdict for one in unanswered.figures] == ["not comparable", "regressed"]
    page = gate_markdown(unanswered)
    assert page.startswith("# Gate failed: 2 of 2 checks")
    assert "- **not comparable**: stereotype_gap of m on s: the two runs answered no item in common." in page
    assert unanswered.exit_code == 3
    failed = [Row(r.item_id, r.factors, {}, "timeout") for r in Run(BASE).rows]
    for open_fails, code in (("missing", 3), ("none", 0)):
        unasked = gate_of(Run(BASE, rows=failed), Run(BASE), open_fails=open_fails)
        assert ([one.verdict for one in unasked.figures], unasked.exit_code) == (["not comparable"], code)
    assert gate_markdown(unasked).startswith("# Gate without conclusive checks: 1 check")


def test_figure_undefined_in_one_run_is_reported_so() -> None:
    full = Run(BASE)
    other = [Row(r.item_id, r.factors, {"q": IdentifiedInterval.exact(0.5)}) for r in full.rows]
    for now, before, which in (
        (Run(BASE, rows=other), full, "is not defined for this run"),
        (full, Run(BASE, rows=other), "is not defined for the baseline"),
    ):
        (figure,) = gate_of(now, before).figures
        assert figure.verdict == "not comparable"
        assert check_words(figure) == f"stereotype_gap of m on s: on the items that both runs answered, it {which}."


@pytest.mark.parametrize("bad", ["\x00", "\x1f", "\r", "\ud800", "\ufffe", "\uffff"])
def test_junit_is_xml_whatever_characters_a_name_has(bad: str) -> None:
    report = gate_of(Run(BASE), Run(BASE))
    named = report.figures[0].model_copy(update={"measure": f"p{bad}\ud7ff\ue000\ufffd\U0001f600"})
    written = junit_xml(report.model_copy(update={"figures": [named]})).encode("utf-8")
    (case,) = ElementTree.fromstring(written).iter("testcase")
    assert case.get("name") == "p\ufffd\ud7ff\ue000\ufffd\U0001f600"


# ------------------------------------------- simulated nights (through the engine: test_gate_nights.py)

OCCUPATIONS, TEMPLATES = 40, 25


def night(rng: np.random.Generator, truth: np.ndarray) -> np.ndarray:
    """One night's answers: sampled texts, so each item is noisy, and occupations drift a little."""
    return truth + rng.normal(0, 0.015, (len(truth), 1)) + rng.normal(0, 0.12, truth.shape)


@pytest.mark.simulation
def test_shift_of_the_margin_rarely_alarms() -> None:
    rng = np.random.default_rng(9)
    nights, alarms = 200, 0
    for _ in range(nights):
        truth = rng.normal(0.25, 0.1, (OCCUPATIONS, 1)) + rng.normal(0, 0.05, (1, TEMPLATES))
        before, after = night(rng, truth), night(rng, truth + 0.02)
        alarms += gate_of(Run(after), Run(before), margins=0.02).figures[0].verdict == "regressed"
    assert alarms <= 0.06 * nights


@pytest.mark.simulation
def test_a_smaller_sample_never_gets_a_better_grade() -> None:
    # Over many nights of a model whose limit is truly broken, fewer items give "met" no more often than 2.5 %.
    rng = np.random.default_rng(10)
    for size in (2, 3, 5, 10, 40):
        grades = []
        for _ in range(150):
            truth = rng.normal(0.25, 0.1, (size, 1)) + rng.normal(0, 0.05, (1, 5))
            grades += limit(Run(night(rng, truth)), stereotype_gap=(None, 0.2))
        assert grades.count("met") <= 0.05 * 150
