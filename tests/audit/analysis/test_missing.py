"""Missing answers as bounds: by hand, and against models that fall silent where they are worst."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.gate.against_baseline import gate
from audit.analysis.gate.over_nights import Look, share_of_look, with_nights
from audit.analysis.gate.results import GateReport
from audit.analysis.gate.rules import GateRules
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.report.phrases.checks.gate import check_words
from audit.report.phrases.findings.comparisons import describe
from audit.results import AuditResult, Measure, ModelInfo
from suites.base import IdentifiedInterval, MeasureSpec, Row

OCCUPATIONS, TEMPLATES = 40, 25
GAP = MeasureSpec(
    "stereotype_gap",
    "gap",
    clusters=("occupation", "template"),
    kind="difference",
    neutral=0.0,
    primary=True,
    stratum="group",
    weights={"female": 0.5, "male": 0.5},
    population="new occupations and templates of these kinds",
)


def rows_of(values: np.ndarray, refused: Callable[[int, int], bool] = lambda o, t: False) -> list[Row]:
    """A row for each cell of an occupations × templates table; the first half of the occupations are female."""
    return [
        Row(f"{o}/{t}", factors, {}, "refusal")
        if refused(o, t)
        else Row(f"{o}/{t}", factors, {"gap": IdentifiedInterval.exact(float(value))})
        for (o, t), value in np.ndenumerate(values)
        for factors in ({"occupation": o, "template": t, "group": "female" if 2 * o < len(values) else "male"},)
    ]


def result_of(rows: list[Row], spec: MeasureSpec = GAP) -> AuditResult:
    return AuditResult(
        run_id="run", title="", started="", finished="", complete=True, interrupted=False, seed=0, limit=None,
        confidence=0.95, versions={}, models=[], suites=[], measures=[measure(rows, spec)], comparisons=[],
        data_quality=[],
    )  # fmt: skip


def measure(rows: list[Row], spec: MeasureSpec = GAP) -> Measure:
    (found,) = measure_table(Table.of(rows), [spec], model="m", suite="s", signature={})
    return found


def gated(
    now: list[Row],
    before: list[Row],
    spec: MeasureSpec = GAP,
    shares: Mapping[str, float] | None = None,
    **rules: object,
) -> GateReport:
    return gate(
        result_of(now, spec),
        result_of(before, spec),
        GateRules(**rules),  # type: ignore[arg-type]
        rows=lambda model, suite: now,
        baseline_rows=lambda model, suite: before,
        shares=shares,
    )


def answers(rng: np.random.Generator, gap: float = 0.25) -> np.ndarray:
    """Gaps of a model, alike over occupations and templates but for their noise."""
    return gap + rng.normal(0, 0.1, (OCCUPATIONS, 1)) + rng.normal(0, 0.05, (OCCUPATIONS, TEMPLATES))


BASE = answers(np.random.default_rng(0))


def test_missing_answer_enters_as_its_range() -> None:
    spec = MeasureSpec("p", "gap", kind="probability", neutral=0.5)
    rows = rows_of(np.full((5, 2), 0.6) + np.arange(10).reshape(5, 2) / 100, lambda o, t: o == 4 and t == 1)
    found = measure(rows, spec)
    answered = np.arange(60, 69) / 100
    assert (found.value, found.n_items, found.missing) == (pytest.approx(answered.mean()), 9, 1)
    assert found.bound_low == pytest.approx(answered.sum() / 10)
    assert found.bound_high == pytest.approx((answered.sum() + 1) / 10)
    complete = measure([row for row in rows if row.missing is None], spec)
    assert (found.complete_case_low, found.complete_case_high) == (complete.low, complete.high)
    assert found.low < complete.low < complete.high < found.high  # type: ignore[operator]
    assert (complete.complete_case_low, complete.complete_case_high) == (None, None)


def test_difference_holds_for_every_answer_that_could_have_come() -> None:
    a, b = (np.random.default_rng(seed).uniform(0.3, 0.4, (20, 7)) for seed in (1, 2))
    spec = dataclasses.replace(GAP, kind="probability", neutral=None)
    refuses = lambda o, t: o == t == 3  # noqa: E731
    (found,) = compare_models({"a": rows_of(a), "b": rows_of(b + 0.3, refuses)}, [spec], suite="s")
    kept = np.ones((20, 7), dtype=bool)
    kept[3, 3] = False
    assert found.difference == pytest.approx((b + 0.3 - a)[kept].mean(), abs=0.002)
    assert (found.n_items, found.n_missing, found.n_unpaired, found.verdict) == (139, 1, 0, "larger")
    assert found.bound_high - found.bound_low == pytest.approx(1 / 140)  # type: ignore[operator]
    ends = [((b + 0.3 - a)[kept].sum() + end - a[3, 3]) / 140 for end in (0, 1)]
    assert (found.bound_low, found.bound_high) == pytest.approx(tuple(ends))
    assert "0.7 % of the answers are missing (1 of 140 items); this holds whatever they would" in describe(found)


def test_few_errors_tell_what_would_decide() -> None:
    spec = dataclasses.replace(GAP, kind="real")
    lost = [Row(r.item_id, r.factors, {}, "timeout") if i % 100 == 0 else r for i, r in enumerate(rows_of(BASE))]
    (found,) = compare_models({"a": rows_of(BASE), "b": lost}, [spec], suite="s", largest_change=0.1)
    assert (found.verdict, found.open_because) == ("inconclusive", "missing answers")
    assert "1.0 % of the answers are missing (10 of 1,000 items)" in describe(found)
    assert "Run the audit again" in describe(found)


def test_quantity_without_range_is_not_called_alike() -> None:
    spec = dataclasses.replace(GAP, kind="real")
    one_lost = rows_of(BASE, lambda o, t: o == t == 0)
    for lost, verdict in ((rows_of(BASE), "unchanged"), (one_lost, "inconclusive")):
        assert gated(lost, rows_of(BASE), spec, largest_change=0.1).figures[0].verdict == verdict
    assert gated(rows_of(BASE), rows_of(BASE), spec).figures[0].open_because == "kinds not asked"
    higher = rows_of(BASE + 0.5, lambda o, t: o == t == 0)
    assert gated(higher, rows_of(BASE), spec).figures[0].verdict == "regressed", "within what was seen of it"


@pytest.mark.parametrize("lean", [0.0, 0.2])
def test_a_regression_is_found_however_the_model_leans(lean: float) -> None:
    """A lean to one gender moves the two groups of occupations apart, and is no error of the gap."""
    sign = np.where(2 * np.arange(OCCUPATIONS) < OCCUPATIONS, 1.0, -1.0)[:, None]
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        base = 0.1 + lean * sign + rng.normal(0, 0.05, (OCCUPATIONS, 1)) + rng.normal(0, 0.05, BASE.shape)
        now = base + 0.05 + rng.normal(0, 0.03, BASE.shape)
        found += gated(rows_of(now), rows_of(base)).figures[0].verdict == "regressed"
    assert found == 60


# ---------------------------------------------------------------------------- silence buys nothing


def test_items_that_turned_worst_and_are_refused_do_not_pass() -> None:
    """4.9 % of the items move to a gap of 1: answered it regressed, so refused it must not be unchanged."""
    rng = np.random.default_rng(4)
    for hidden in (rng.random(BASE.shape) < 0.049, np.arange(BASE.size).reshape(BASE.shape) % 25 == 3):
        moved = np.where(hidden, 1.0, BASE)
        assert gated(rows_of(moved), rows_of(BASE)).figures[0].verdict != "unchanged"
        for largest_change in (None, 0.0):
            report = gated(rows_of(moved, lambda o, t: bool(hidden[o, t])), rows_of(BASE),  # noqa: B023
                           largest_change=largest_change)  # fmt: skip
            assert (report.figures[0].verdict, report.exit_code) == ("inconclusive", 3)
            assert "of the answers are missing" in check_words(report.figures[0])
    passes = gated(rows_of(moved, lambda o, t: bool(hidden[o, t])), rows_of(BASE), open_fails="none")
    assert passes.exit_code == (3 if passes.counts().get("regressed") else 0)


def over_nights(shift: float, refused: int, look: int, **options: object) -> GateReport:
    """A gate at a later look, of a model whose first answers are refused."""
    shifted = BASE + shift + np.random.default_rng(6).normal(0, 0.03, BASE.shape)
    now, before = rows_of(shifted, lambda o, t: o * TEMPLATES + t < refused), rows_of(BASE)
    tonight = gated(now, before, **options)
    name = tonight.figures[0].figure.id
    sequence = gated(now, before, shares={name: share_of_look(look)}, **options)
    return with_nights(tonight, sequence, None, {name: Look(look)})


def test_refusals_do_not_turn_an_alarm_into_chance() -> None:
    shift, look = 0.06, 20
    assert over_nights(shift, 0, look).figures[0].decisive_verdict == "regressed", "all answered"
    report = over_nights(shift, 4, look)
    figure = report.figures[0]
    assert figure.over_nights is not None
    assert (figure.verdict, figure.over_nights.verdict) == ("regressed", "inconclusive")
    assert (figure.decisive_reason, report.failures, report.exit_code) == ("missing answers", [figure], 3)
    assert "due to chance" not in check_words(figure)
    assert "missing answers leave it open" in check_words(figure)
    assert over_nights(shift, 4, look, open_fails="none").exit_code == 0


def test_missing_answers_that_could_prove_harm_leave_it_open() -> None:
    shift = 0.0215
    for refused, fails in ((0, False), (2, True)):
        report = over_nights(shift, refused, 1)
        figure = report.figures[0]
        assert (figure.verdict, figure in report.failures) == ("inconclusive", fails)
        assert figure.change is not None
        assert figure.change > 0.02


SHARES = np.linspace(0.1, 0.9, OCCUPATIONS)
CORRELATION = MeasureSpec("share_correlation", "gap", estimator="correlation", clusters=("occupation", "template"),
                          covariate="share", kind="probability", neutral=0.0, primary=True)  # fmt: skip


def with_shares(values: np.ndarray, refused: int) -> list[Row]:
    rows = rows_of(values, lambda o, t: o * TEMPLATES + t < refused)
    shares = [{"share": float(SHARES[int(str(row.factors["occupation"]))])} for row in rows]
    return [dataclasses.replace(row, factors={**row.factors, **own}) for row, own in zip(rows, shares, strict=True)]


def test_few_missing_answers_do_not_hide_a_steeper_correlation() -> None:
    rng = np.random.default_rng(3)
    flat = 0.5 + rng.normal(0, 0.05, (OCCUPATIONS, 1)) + rng.normal(0, 0.02, (OCCUPATIONS, TEMPLATES))
    flat += 0.15 * (SHARES[:, None] - 0.5)  # its side of 0 is sure
    steeper = flat + 0.15 * (SHARES[:, None] - 0.5)
    by_hand = []
    for answer in np.linspace(0, 1, 501):
        answered = steeper.copy()
        answered[0, 0] = answer
        now, before = (np.corrcoef(values.mean(axis=1), SHARES)[0, 1] for values in (answered, flat))
        by_hand.append(now - before)
    found = {n: gated(with_shares(steeper, n), with_shares(flat, 0), CORRELATION) for n in (0, 1, 4)}
    assert [found[n].figures[0].verdict for n in (0, 1, 4)] == ["regressed", "regressed", "inconclusive"]
    one = found[1].figures[0]
    assert one.bound_low is not None
    assert min(by_hand) - 3e-3 < one.bound_low <= min(by_hand), "a bound that no answer need reach"
    assert one.bound_high == pytest.approx(max(by_hand), abs=1e-6)
    assert (found[4].figures[0].open_because, found[4].exit_code) == ("missing answers", 3)
    assert "they could decide this" in check_words(found[4].figures[0])
    assert "too few" not in check_words(found[4].figures[0])


def of_models(result: AuditResult, fingerprint: str) -> AuditResult:
    model = ModelInfo(
        name="m", backend="x", fingerprint={}, fingerprint_id=fingerprint, notes={}, asked=0, cached=0, failed=0,
        retried=0, seconds=0.0, prompt_tokens=0, completion_tokens=0,
    )  # fmt: skip
    return result.model_copy(update={"models": [model]})


@pytest.mark.parametrize("spec", [GAP, dataclasses.replace(GAP, kind="real"), CORRELATION])
def test_item_that_one_model_left_out_twice_is_no_change(spec: MeasureSpec) -> None:
    rows = with_shares(BASE, 10)

    def verdicts(now: list[Row], fingerprint: str) -> set[str]:
        current, baseline = of_models(result_of(now, spec), fingerprint), of_models(result_of(rows, spec), "same")
        report = gate(current, baseline, GateRules(), rows=lambda m, s: now, baseline_rows=lambda m, s: rows)
        return {figure.verdict for figure in report.figures}

    assert verdicts(list(rows), "same") == {"unchanged"}
    assert "inconclusive" in verdicts(list(rows), "other"), "another model may have changed there"
    assert "inconclusive" in verdicts(with_shares(BASE, 11), "same"), "one more is missing"


@pytest.mark.parametrize("rest", [0.285, 0.3])
def test_limit_is_not_kept_by_refusing_the_worst(rest: float) -> None:
    """A true 0.37 (or 0.3565) at a limit of 0.3, whose worst tenth is refused: the others lie about the limit."""
    rng = np.random.default_rng(5)
    worst = rng.permuted(np.arange(BASE.size).reshape(BASE.shape) % 10 == 0)
    values = np.where(worst, 1.0, rng.normal(rest, 0.02, BASE.shape))
    assert values.mean() == pytest.approx(0.1 + 0.9 * rest, abs=0.002)

    def checked(rows: list[Row], **options: object) -> GateReport:
        rules = GateRules(limits={"stereotype_gap": (None, 0.3)}, **options)  # type: ignore[arg-type]
        return gate(result_of(rows), None, rules, rows=lambda m, s: rows, baseline_rows=lambda m, s: [])

    assert checked(rows_of(values)).limits[0].verdict == "broken"
    refused = rows_of(values, lambda o, t: bool(worst[o, t]))
    assert checked([row for row in refused if not row.missing]).limits[0].verdict != "broken", "the others show nothing"
    report = checked(refused)
    (check,) = report.limits
    assert (check.verdict, check.open_because, report.exit_code) == ("insufficient evidence", "missing answers", 3)
    assert checked(refused, open_fails="none").exit_code == 0


def test_refusing_more_of_one_group_decides_nothing() -> None:
    he = np.where(np.arange(OCCUPATIONS)[:, None] < OCCUPATIONS // 2, -0.8, 0.8) + 0.01 * (BASE - BASE.mean())
    keep = np.random.default_rng(6).random(BASE.shape)
    found = measure(rows_of(he, lambda o, t: o < OCCUPATIONS // 2 and keep[o, t] < 0.6))
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0 < found.high
    assert found.p_adjusted is not None
    assert found.p_adjusted > 0.05


@pytest.mark.parametrize("worst", [1.0, 0.5])
def test_interval_holds_though_a_fifth_is_missing(worst: float) -> None:
    """All of the largest fifth, or half of the larger two fifths: 200 models, of which none is called alike."""
    rng, draws = np.random.default_rng(7), 200
    occupations = rng.normal(0, 0.1, (draws, 20, 1))
    values = 0.25 + occupations + rng.normal(0, 0.05, (draws, 20, 10))
    largest = values >= np.quantile(values, 1 - 0.2 / worst, axis=(1, 2), keepdims=True)
    lost = largest & (rng.random(values.shape) < worst)
    spec = dataclasses.replace(GAP, stratum=None, weights=None, clusters=("occupation",))
    now, before = (
        [
            Row(f"{d}/{o}/{t}", {"draw": d, "occupation": o}, {}, "refusal")
            if refused[d, o, t]
            else Row(f"{d}/{o}/{t}", {"draw": d, "occupation": o}, {"gap": IdentifiedInterval.exact(values[d, o, t])})
            for d, o, t in np.ndindex(*values.shape)
        ]
        for refused in (lost, np.zeros_like(lost))
    )
    specs = [dataclasses.replace(spec, where={"draw": d}) for d in range(draws)]
    found = measure_table(Table.of(now), specs, model="m", suite="s", signature={})
    assert sum(m.low <= 0.25 <= m.high for m in found) >= 0.95 * draws  # type: ignore[operator]
    assert sum(m.complete_case_low <= 0.25 <= m.complete_case_high for m in found) < 0.85 * draws  # type: ignore[operator]
    compared = compare_models({"now": now, "before": before}, specs, suite="s")
    assert {c.verdict for c in compared} == {"inconclusive"}


def limited(rows: list[Row]) -> GateReport:
    limits = {"stereotype_gap": (None, 0.3)}
    return gate(result_of(rows), None, GateRules(limits=limits), rows=lambda m, s: rows, baseline_rows=lambda m, s: ())


@pytest.mark.parametrize("share", [0.026, 0.06, 0.19, 0.39])
def test_refusals_at_random_pass_no_broken_limit(share: float) -> None:
    """The answered items alone break the limit, whichever are missing."""
    rng = np.random.default_rng(3)
    values = answers(rng, 0.37)
    assert limited(rows_of(values)).exit_code == 3
    lost = rng.uniform(size=values.shape) < share
    report = limited(rows_of(values, lambda o, t: bool(lost[o, t])))
    assert (report.limits[0].verdict, report.limits[0].open_because) == ("insufficient evidence", "missing answers")
    assert report.exit_code == 3


def test_a_bounded_answer_passes_no_limit_that_refusals_hide() -> None:
    values = answers(np.random.default_rng(4), 0.37)
    worst = np.quantile(values, 0.9)
    rows = rows_of(values, lambda o, t: bool(values[o, t] > worst))
    place = next(i for i, row in enumerate(rows) if row.missing is None)
    rows[place] = dataclasses.replace(rows[place], values={"gap": IdentifiedInterval(None, 0.1, 0.2)})
    report = limited(rows)
    assert report.limits[0].value is None
    assert (report.limits[0].open_because, report.exit_code) == ("missing answers", 3)


def test_without_a_range_refusing_the_worst_keeps_no_limit() -> None:
    """Ratings of 3.2, a tenth of them 8.0: the mean breaks a limit of 3.3, and refusing that tenth must not keep it."""
    rng = np.random.default_rng(6)
    values = rng.normal(3.2, 0.05, BASE.shape)
    worst = rng.uniform(size=BASE.shape) < 0.1
    values[worst] = 8.0
    spec = dataclasses.replace(GAP, kind="real")
    rules = GateRules(limits={"stereotype_gap": (None, 3.3)})

    def checked(rows: list[Row]) -> GateReport:
        return gate(result_of(rows, spec), None, rules, rows=lambda m, s: rows, baseline_rows=lambda m, s: ())

    assert checked(rows_of(values)).limits[0].verdict == "broken"
    report = checked(rows_of(values, lambda o, t: bool(worst[o, t])))
    assert (report.limits[0].verdict, report.limits[0].open_because) == ("insufficient evidence", "missing answers")
    assert report.exit_code == 3


@pytest.mark.parametrize("reason", ["refusal", "timeout"])
def test_a_stratum_that_falls_silent_passes_no_gate(reason: str) -> None:
    now = BASE.copy()
    now[:20] += 0.6
    assert gated(rows_of(now), rows_of(BASE)).exit_code == 3
    silent = [
        dataclasses.replace(row, missing=reason) if row.missing else row for row in rows_of(now, lambda o, t: o < 20)
    ]
    report = gated(silent, rows_of(BASE))
    gap = next(figure for figure in report.figures if figure.measure == "stereotype_gap")
    assert (gap.verdict, gap.open_because, report.exit_code) == ("inconclusive", "missing answers", 3)


def test_two_levels_in_a_stratum_decide_nothing() -> None:
    """Two occupations of one group and 38 of the other: the mean of two is no sample of its kind."""
    groups = {o: "female" if o < 2 else "male" for o in range(OCCUPATIONS)}
    rows = [
        dataclasses.replace(r, factors={**r.factors, "group": groups[r.factors["occupation"]]}) for r in rows_of(BASE)
    ]  # type: ignore[index]
    found = measure(rows)
    assert (found.fewest_levels, found.p_adjusted) == (2, None)
    higher = [
        dataclasses.replace(row, values={"gap": IdentifiedInterval.exact(row.values["gap"].low + 0.2)}) for row in rows
    ]
    (compared,) = compare_models({"a": rows, "b": higher}, [GAP], suite="s")
    assert (compared.verdict, compared.open_because) == ("inconclusive", "too few clusters")
    assert limited(higher).limits[0].verdict == "insufficient evidence"


def test_a_limit_opened_by_missing_answers_fails_the_gate() -> None:
    """The answered items keep it for certain; the bound keeps it too, and its interval does not."""
    few = {(0, 0), (1, 1), (30, 2)}
    rows = rows_of(BASE, lambda o, t: (o, t) in few)
    high = measure(rows).complete_case_high
    assert high is not None
    rows = rows_of(BASE + 0.298 - high, lambda o, t: (o, t) in few)
    assert limited([row for row in rows if row.missing is None]).limits[0].verdict == "met"
    found = measure(rows)
    assert found.bound_high < 0.3 < found.high  # type: ignore[operator]
    report = limited(rows)
    assert (report.limits[0].open_because, report.exit_code) == ("missing answers", 3)


def test_limit_counts_empty_answers_as_anything() -> None:
    """A figure over the answers that name somebody: naming nobody where it is worst keeps no limit on it."""
    worst = np.random.default_rng(6).random(BASE.shape) < 0.1
    moved = np.where(worst, 1.0, BASE)
    limits = {GAP.measure: (None, float(moved.mean()) - 0.06)}
    spec = dataclasses.replace(GAP, stratum=None, weights=None)
    (broken,) = gated(rows_of(moved), rows_of(moved), spec, limits=limits).limits
    silent = [
        dataclasses.replace(row, values={"unknown": IdentifiedInterval.exact(1.0)}) if hidden else row
        for row, hidden in zip(rows_of(moved), worst.ravel(), strict=True)
    ]
    report = gated(silent, silent, spec, limits=limits)
    (check,) = report.limits
    assert (broken.verdict, check.verdict, report.exit_code) == ("broken", "insufficient evidence", 3)
    assert (check.n_without_value, check.open_because) == (int(worst.sum()), "missing answers")
    assert f"{worst.sum()} of them were answered, but say nothing of it." in check_words(check)
    assert result_of(silent, spec).measures[0].missing == 0, "the figure itself is over the others"
    (loose,) = gated(silent, silent, spec, limits={GAP.measure: (None, 0.9)}).limits
    assert loose.verdict == "met", "whatever the others would be"


def test_levels_without_a_weight_are_no_lost_answers() -> None:
    """Occupations of neither stereotype were never asked for the gap, so no limit counts them as without a value."""
    neutral = [
        Row(f"neutral {i}", {**row.factors, "group": "neutral"}, {"other": IdentifiedInterval.exact(0.5)})
        for i, row in enumerate(rows_of(BASE)[:30])
    ]
    (check,) = limited([*rows_of(BASE), *neutral]).limits
    (without,) = limited(rows_of(BASE)).limits
    assert check == without
