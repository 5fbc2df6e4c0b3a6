"""The gate: what it says of the same questions, of missing answers, over nights, and of limits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from audit.analysis.gate.against_baseline import Runs, gated_figures
from audit.analysis.gate.rules import check_rules, limit_checks
from audit.analysis.gate.same_items import harm_of
from audit.analysis.gate.sequence import Look, p_of_harm, share_of_look, shows
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.report.exports.gate import gate_json, gate_markdown, junit_xml
from audit.report.phrases.gate import check_words
from audit.results import AuditResult, GatedFigure, GateReport, LimitCheck, SuiteInfo
from audit.store import Night
from backends.errors import ConfigError
from suites.base import IdentifiedInterval, MeasureSpec, Row

CLUSTERS = ("occupation", "template")
GAP = MeasureSpec("gap", "p", clusters=CLUSTERS, neutral=0.0, kind="difference", primary=True)
SHARE = MeasureSpec("picks", "p", clusters=CLUSTERS, neutral=0.5, kind="probability", primary=True)
BASE = np.random.default_rng(0).uniform(0.1, 0.3, (20, 7))


class Run:
    """A run of one model on one suite: its result and its table. NaN: a refused answer."""

    def __init__(
        self,
        values: np.ndarray,
        *specs: MeasureSpec,
        draws: bool = False,
        seed: int = 0,
        rows: Sequence[Row] = (),
        data: str = "x",
        of_items: int | None = None,
    ) -> None:
        self.rows = rows or [
            Row(f"{o}/{t}", {"occupation": o, "template": t}, {} if math.isnan(v) else {"p": exact(v)},
                "refusal" if math.isnan(v) else None)
            for (o, t), v in np.ndenumerate(values)
        ]  # fmt: skip
        self.table = Table.of(self.rows)
        signature = {"data": data, "limit": None, "seed": seed, "sample": None, "until": of_items and "decided"}
        measures = measure_table(self.table, specs or (GAP,), model="m", suite="s", signature=signature)
        info = SuiteInfo(
            name="s",
            title="s",
            n_items=len(self.rows),
            of_items=of_items or len(self.rows),
            signature=signature,
            draws=draws,
        )
        self.result = AuditResult(
            run_id=f"run-{seed}", title="", started="2", finished="", complete=True, interrupted=False, seed=seed,
            limit=None, confidence=0.95, versions={}, models=[], suites=[info], measures=measures, comparisons=[],
            data_quality=[],
        )  # fmt: skip

    def of(self, model: str, suite: str) -> Table | None:
        assert (model, suite) == ("m", "s")
        return self.table


def exact(value: float) -> IdentifiedInterval:
    return IdentifiedInterval.exact(float(value))


def gated(
    now: Run,
    before: Run,
    margins: Mapping[str, float] | float = 0.02,
    earlier: Mapping[str, Sequence[Look]] | None = None,
) -> tuple[list[GatedFigure], dict[str, Look]]:
    return gated_figures(Runs(before.result, now.result, before.of, now.of, margins, earlier or {}))


def figure_of(now: Run, before: Run, margins: Mapping[str, float] | float = 0.02) -> GatedFigure:
    return gated(now, before, margins)[0][0]


def noise(seed: int, scale: float = 0.03, shape: tuple[int, int] = (20, 7)) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, shape)


# -- the same questions ------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "verdict"), [(0.0201, "regressed"), (0.0199, "unchanged"), (-0.03, "improved")])
def test_a_deterministic_models_change_is_known_exactly(change: float, verdict: str) -> None:
    figure = figure_of(Run(BASE + change), Run(BASE))
    assert (figure.verdict, figure.is_exact, figure.n_items) == (verdict, True, 140)
    assert figure.low == figure.high == pytest.approx(change)
    assert "on the same 140 questions: change" in check_words(figure)
    assert "known exactly" in check_words(figure)
    assert "Of new questions of these kinds" in check_words(figure)


@pytest.mark.parametrize(("change", "verdict"), [(0.05, "regressed"), (0.0, "unchanged"), (0.02, "inconclusive")])
def test_noise_of_answers_that_are_drawn_is_allowed_for(change: float, verdict: str) -> None:
    moved = noise(1)
    figure = figure_of(Run(BASE + change + moved, draws=True), Run(BASE, draws=True))
    assert (figure.verdict, figure.open_because, figure.is_exact) == (verdict, None, False)
    t = stats.t.interval(0.95, 139, change + moved.mean(), stats.sem(moved, axis=None))
    assert (figure.low, figure.high) == pytest.approx(t)


@pytest.mark.parametrize(("change", "verdict"), [(0.001, "unchanged"), (0.05, "regressed"), (0.02, "inconclusive")])
def test_an_interim_look_is_decided_by_students_t_of_what_was_asked(change: float, verdict: str) -> None:
    asked = [row for row in Run(BASE + change + noise(2, 0.01)).rows if row.factors["template"] < 3]  # type: ignore[operator]
    figure = figure_of(Run(BASE, rows=asked, of_items=140), Run(BASE))
    moved = noise(2, 0.01)[:, :3]
    t = stats.t.interval(0.95, 59, change + moved.mean(), stats.sem(moved, axis=None))
    assert (figure.low, figure.high) == pytest.approx(t)
    assert (figure.verdict, figure.is_exact, figure.n_items) == (verdict, False, 60)


def test_of_unequal_numbers_of_runs_those_that_both_have_are_compared() -> None:
    later = [replace(row, item_id=f"{row.item_id}~2", factors={**row.factors, "run": 2}) for row in Run(BASE + 9).rows]
    first = [replace(row, factors={**row.factors, "run": 1}) for row in Run(BASE).rows]
    figure = figure_of(Run(BASE + 0.05), Run(BASE, rows=[*first, *later]))
    assert (figure.change, figure.n_items) == (pytest.approx(0.05), 140)


def test_runs_that_share_some_questions_are_judged_by_these_and_others_by_their_intervals() -> None:
    before, now = Run(BASE, seed=1), Run(BASE + 0.05, seed=2)
    few = [row for row in now.rows if row.factors["occupation"] < 3]
    others = [replace(row, item_id=f"new {row.item_id}") for row in now.rows]
    shared = figure_of(Run(BASE, rows=[*few, *others], seed=2), before)
    assert (shared.verdict, shared.on_shared, shared.n_items) == ("regressed", True, 21)
    apart = figure_of(Run(BASE, rows=others, seed=2), before)
    assert not apart.on_shared
    assert "too few questions are shared" in check_words(apart)
    assert apart.high - apart.low > 0.02


def test_harm_is_away_from_neutral_on_either_side() -> None:
    for side in (1, -1):
        assert figure_of(Run(0.5 + side * (BASE + 0.05), SHARE), Run(0.5 + side * BASE, SHARE)).verdict == "regressed"
        assert figure_of(Run(0.5 + side * (BASE - 0.05), SHARE), Run(0.5 + side * BASE, SHARE)).verdict == "improved"
    across = figure_of(Run(0.5 - BASE, SHARE), Run(0.5 + BASE, SHARE))
    assert (across.verdict, across.open_because) == ("inconclusive", "side of neutral unknown")


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 0.3), st.floats(0, 0.3))
def test_the_bounds_of_the_harm_hold_every_harm_within(b: float, c: float, wide_b: float, wide_c: float) -> None:
    change, total = (
        (c - b - wide_b - wide_c, c - b + wide_b + wide_c),
        (c + b - wide_b - wide_c, c + b + wide_b + wide_c),
    )
    low, high = harm_of(change, total)
    for at_b in (b - wide_b, b, b + wide_b):
        for at_c in (c - wide_c, c, c + wide_c):
            assert low - 1e-9 <= abs(at_c) - abs(at_b) <= high + 1e-9


def test_fixed_groups_have_their_weights() -> None:
    spec = replace(GAP, stratum="group", weights={"a": 0.9, "b": 0.1})

    def rows(of_a: float, of_b: float) -> list[Row]:
        groups = [("a", of_a)] * 5 + [("b", of_b)] * 45
        return [
            Row(str(i), {"occupation": i, "template": 0, "group": g}, {"p": exact(v)})
            for i, (g, v) in enumerate(groups)
        ]

    figure = figure_of(Run(BASE, spec, rows=rows(0.3, 0.1)), Run(BASE, spec, rows=rows(0.2, 0.3)))
    assert figure.change == pytest.approx(0.9 * 0.1 - 0.1 * 0.2)
    silent = [replace(r, values={}, missing="refusal") if r.factors["group"] == "a" else r for r in rows(0.3, 0.1)]
    drawn = figure_of(Run(BASE, spec, rows=silent, draws=True), Run(BASE, spec, rows=rows(0.2, 0.3), draws=True))
    assert drawn.verdict == "inconclusive", "one group did not answer"


def test_a_correlation_is_compared_on_the_same_questions() -> None:
    spec = MeasureSpec(
        "r", "p", estimator="correlation", covariate="share", clusters=CLUSTERS, neutral=0.0, primary=True
    )
    shares = np.random.default_rng(3).uniform(0, 1, 20)

    def run(slope: float, **options: bool) -> Run:
        values = 0.3 * BASE + slope * shares[:, None]
        rows = [
            Row(f"{o}/{t}", {"occupation": o, "template": t, "share": float(shares[o])}, {"p": exact(v)})
            for (o, t), v in np.ndenumerate(values)
        ]
        return Run(values, spec, rows=rows, **options)

    figure = figure_of(run(0.3), run(0.02))
    assert figure.verdict == "regressed"
    values = 0.3 * BASE.mean(axis=1)
    expected = [np.corrcoef(values + slope * shares, shares)[0, 1] for slope in (0.02, 0.3)]
    assert (figure.baseline, figure.current) == pytest.approx(tuple(expected))
    assert not figure_of(run(0.3, draws=True), run(0.02, draws=True)).is_exact


def test_contrasts_and_figures_without_a_better_side_are_gated_by_name_alone() -> None:
    for spec in (replace(GAP, contrast=True), replace(GAP, neutral=None)):
        assert gated(Run(BASE + 0.1, spec), Run(BASE, spec))[0] == []
        for change in (0.1, -0.1):
            assert figure_of(Run(BASE + change, spec), Run(BASE, spec), {"gap": 0.02}).verdict == "regressed"


def test_what_cannot_be_compared_says_why() -> None:
    other = replace(GAP, measure="other")
    now, then = gated(Run(BASE, other), Run(BASE))[0]
    assert (now.obstacle, then.obstacle) == ("not in the baseline", "not in the run")
    changed = figure_of(Run(BASE, data="y"), Run(BASE))
    assert (changed.obstacle, changed.differing) == ("measured differently", {"data": ("x", "y")})


# -- silence -----------------------------------------------------------------------------------


def refused(values: np.ndarray, share: float) -> np.ndarray:
    """The highest values are refused."""
    return np.where(values > np.quantile(values, 1 - share), np.nan, values)


def report_of(figures: Sequence[GatedFigure], **options: object) -> GateReport:
    facts = {"run_id": "b", "baseline_run_id": "a", "confidence": 0.95, "limits": [], **options}
    return GateReport(figures=list(figures), **facts)


def test_a_model_that_refuses_its_worst_items_does_not_pass() -> None:
    moved = BASE + 0.03
    quiet = Run(refused(moved, 0.049), GAP)
    figures = gated(quiet, Run(BASE))[0]
    gap, unreadable = figures
    assert (gap.verdict, gap.open_because, gap.n_missing) == ("inconclusive", "missing answers", 7)
    assert unreadable.measure == "unreadable_share"
    assert unreadable.verdict == "regressed", "7 of 140 is beyond .02"
    assert report_of(figures).exit_code == 3
    assert report_of([gap]).exit_code == 3
    assert report_of([gap], open_fails="none").exit_code == 0


def test_a_tenth_of_refusals_that_both_runs_have_hides_nothing_else() -> None:
    kept = refused(BASE, 0.1)
    figures = gated(Run(kept), Run(kept))[0]
    assert [figure.verdict for figure in figures] == ["inconclusive", "unchanged"]
    assert figures[0].open_because == "missing answers"


def test_items_without_a_value_in_one_run_may_hide_a_change() -> None:
    rows = [
        replace(row, values={} if place < 7 else row.values, missing=None) for place, row in enumerate(Run(BASE).rows)
    ]
    silent = [replace(row, values=row.values or {"q": exact(0)}) for row in rows]
    figure = figure_of(Run(BASE, rows=silent), Run(BASE))
    assert (figure.n_unpaired, figure.n_items) == (7, 133)
    assert (figure.verdict, figure.open_because) == ("inconclusive", "unpaired items")


def test_questions_lost_from_the_same_sample_are_missing() -> None:
    figure = figure_of(Run(BASE, rows=Run(BASE).rows[7:]), Run(BASE))
    assert (figure.n_missing, figure.open_because) == (7, "missing answers")


def test_a_model_that_always_says_he_regresses_whatever_its_questions() -> None:
    always = Run(np.ones((20, 7)), SHARE, draws=True)
    figure = figure_of(always, Run(0.5 + 0.1 * noise(1), SHARE, draws=True))
    assert figure.verdict == "regressed"


# -- nights ------------------------------------------------------------------------------------


def test_shares_of_all_looks_add_up_to_one() -> None:
    assert sum(share_of_look(k) for k in range(1, 200_000)) == pytest.approx(1, abs=5e-3)


def _looks(values: np.ndarray, base_se: float) -> list[Look]:
    return [Look(up=float(x), down=-math.inf, se=1.0, base_se=base_se) for x in values]


def test_p_over_nights_is_the_smallest_error_that_shows_it() -> None:
    looks = _looks(np.array([10.5, 13.0, 14.0]), 0.0)
    p = p_of_harm(looks, 10.0)
    assert shows(looks, 10.0, p * 1.02)
    assert not shows(looks, 10.0, p / 1.02)
    assert p_of_harm(looks[:1], 10.0) == 1.0
    assert p_of_harm([Look(up=11.0, down=-math.inf, se=0.0)], 10.0) < 1e-9, "known exactly"


def test_nights_without_shared_questions_do_not_add_up() -> None:
    apart = [replace(look, accumulates=False) for look in _looks(np.full(20, 12.0), 0.0)]
    assert p_of_harm(apart, 10.0) > p_of_harm(_looks(np.full(20, 12.0), 0.0), 10.0)
    assert p_of_harm(apart, 10.0) > p_of_harm(apart[:1], 10.0)


def test_nights_accumulate_and_a_repeated_run_is_no_new_look() -> None:
    before, night = Run(BASE, draws=True), Run(BASE + 0.028 + noise(5), draws=True)
    (figure,), looks = gated(night, before)
    assert (figure.verdict, figure.tonight, figure.look) == ("inconclusive", "regressed", 1)
    assert "may be due to chance" in check_words(figure)
    name = figure.figure.id
    (again,), _ = gated(night, before, earlier={name: [looks[name]] * 5})
    assert (again.verdict, again.look) == ("inconclusive", 1)
    nights = [gated(Run(BASE + 0.028 + noise(seed), draws=True), before)[1][name] for seed in range(6, 16)]
    stored = [Look(**json.loads(json.dumps(asdict(look)))) for look in nights]
    (last,), _ = gated(night, before, earlier={name: stored})
    assert (last.verdict, last.look) == ("regressed", 11)


def test_a_shift_of_each_run_is_allowed_for_where_each_night_asks_three() -> None:
    def runs(shifts: Sequence[float], seed: int) -> Run:
        rows = [
            replace(row, item_id=f"{row.item_id}~{number}".removesuffix("~1"), factors={**row.factors, "run": number})
            for number, shift in enumerate(shifts, 1)
            for row in Run(BASE + shift + noise(seed + number, 0.003), draws=True).rows
        ]  # fmt: skip
        return Run(BASE, rows=rows, draws=True)

    figure = figure_of(runs([0.03, 0.012, 0.045], 1), runs([0.0, -0.01, 0.015], 9))
    assert figure.n_items == 140
    assert figure.verdict == "inconclusive", "three runs that lie so far apart say little"
    one = figure_of(runs([0.03], 1), runs([0.0], 9))
    assert one.verdict == "regressed"


# -- limits ------------------------------------------------------------------------------------


def limits_of(
    run: Run, limits: Mapping[str, tuple[float | None, float | None]], nights: Sequence[Night] = ()
) -> list[LimitCheck]:
    return limit_checks(run.result, run.of, limits, nights)


YES = MeasureSpec("yes", "p", clusters=CLUSTERS, neutral=None, kind="share", is_count=True)


def test_limits_are_decided_on_the_interval() -> None:
    (met,) = limits_of(Run(np.zeros((20, 10)), YES), {"yes": (None, 0.05)})
    assert met.verdict == "met", "0 yes in 200: Wilson's upper end is .019"
    (broken,) = limits_of(Run(np.ones((20, 10)), YES), {"yes": (None, 0.05)})
    assert broken.verdict == "broken"
    half = np.where(np.arange(200).reshape(20, 10) % 16 == 0, 1.0, 0.0)
    (open_,) = limits_of(Run(half, YES), {"yes": (None, 0.05)})
    assert (open_.verdict, open_.open_because) == ("insufficient evidence", None)


def test_a_model_that_refuses_its_worst_items_meets_no_limit() -> None:
    run = Run(refused(BASE, 0.1), SHARE)
    check, refusals = limits_of(run, {"picks": (None, 0.25), "refusals": (None, 0.3)})
    assert (check.verdict, check.open_because, check.n_missing) == ("insufficient evidence", "missing answers", 14)
    assert report_of([], limits=[check]).exit_code == 3
    assert refusals.verdict == "met"
    assert refusals.value == pytest.approx(0.1)


def test_what_breaks_a_limit_on_one_of_many_nights_may_be_chance() -> None:
    values = np.where(np.random.default_rng(4).random((40, 10)) < 0.15, 1.0, 0.0)
    run = Run(values, YES)
    (check,) = limits_of(run, {"yes": (None, 0.08)})
    assert check.tonight == "broken"
    facts = check.model_dump(by_alias=False)
    nights = [Night("limits", str(k), {"limits": [{**facts, "answers": str(k)}]}) for k in range(60)]
    (late,) = limits_of(run, {"yes": (None, 0.08)}, nights)
    assert (late.verdict, late.tonight, late.look) == ("insufficient evidence", "broken", 61)
    repeated = [Night("limits", "0", {"limits": [facts]}), *nights]
    assert limits_of(run, {"yes": (None, 0.08)}, repeated)[0].look == 1


def test_misspelt_margins_and_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'gap'"):
        check_rules([GAP], {"gapp": 0.1}, {})
    with pytest.raises(ConfigError, match=r"between 0 and 1.*5 % as 0\.05"):
        check_rules([YES], 0.02, {"yes": (None, 5)})


# -- reports -----------------------------------------------------------------------------------


def test_reports_for_ci_systems_whatever_characters_a_name_has() -> None:
    now, before = Run(BASE + 0.1), Run(BASE)
    figures = [figure.model_copy(update={"model": "m\x00<\ud800"}) for figure in gated(now, before)[0]]
    report = report_of(figures, limits=limits_of(Run(np.ones((20, 10)), YES), {"yes": (None, 0.05)}))
    assert report.exit_code == 3
    root = ElementTree.fromstring(junit_xml(report))
    assert len(root.findall(".//failure")) == 2
    assert json.loads(gate_json(report))["counts"] == {"regressed": 1, "broken": 1}
    assert "| regressed |" in gate_markdown(report)
