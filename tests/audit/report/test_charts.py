"""What is drawn, and where."""

from __future__ import annotations

import json
import math
import re

import pytest
import vl_convert

from audit.report.charts import (
    FigureTable,
    Plot,
    components_plot,
    forest_plot,
    headline_plot,
    ladder_plot,
    suite_plots,
    ternary,
)
from audit.report.figures import Figures
from audit.report.page import report_page
from audit.report.phrases import suite_summary
from audit.results import AuditResult, VarianceComponents, where_key
from backends.base import Scalar
from suites.presentation import Chart, PublishedFigure
from tests.audit.report import made_up as mu

MODELS = ("smollm2", "gemma3", "hosted")


@pytest.fixture(scope="module")
def toy() -> AuditResult:
    return mu.result(MODELS, [mu.toy_suite()], mu.toy_measures(MODELS))


def _plots(result: AuditResult) -> dict[str, Plot]:
    return {p.kind: p for p in suite_plots(Figures(result), FigureTable(), "toy", result.suites[0].charts)}


def test_every_kind_of_chart_is_drawn_by_vega(toy: AuditResult) -> None:
    figures = Figures(toy)
    plots = [*_plots(toy).values(), headline_plot(figures, FigureTable())]
    assert {p.kind for p in plots if p} == {"dots", "ternary", "scatter", "lines", "ranking"}
    for plot in plots:
        assert plot is not None
        spec = plot.spec | {"datasets": {"rows": plot.panels[0].rows}, "width": 300}
        assert vl_convert.vegalite_to_svg(json.dumps(spec)).count("<path") > 5


@pytest.mark.parametrize("largest", [0.0003, 0.03, 0.3])
def test_the_axis_holds_the_papers_figures_too(largest: float) -> None:
    where = [{"told": level} for level in ("a", "b")]
    measures = [mu.measure("m", "gap", w, largest, largest / 2, neutral=0.0, unit="difference") for w in where]
    published = [PublishedFigure("GPT-3", "gap", w, value) for w, value in zip(where, (0.402, -0.2), strict=True)]
    info = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Gap", ("gap",), by="told")], published=published)
    (plot,) = _plots(mu.result(["m"], [info], measures)).values()
    svg = vl_convert.vegalite_to_svg(
        json.dumps(plot.spec | {"datasets": {"rows": plot.panels[0].rows}, "width": 300, "height": 100})
    )
    places = {
        float(x)
        for x in re.findall(r'transform="translate\(([-\d.]+),[-\d.]+\)"[^>]*aria-roledescription="point"', svg)
    }
    places |= {float(x) for x in re.findall(r'aria-roledescription="point"[^>]*transform="translate\(([-\d.]+),', svg)}
    assert places, svg[:3000]
    assert min(places) > 20


def test_a_margin_of_zero_leaves_a_small_difference_its_length() -> None:
    one, other = (mu.measure(name, "gap", {}, value, 1e-5, neutral=0.0) for name, value in (("a", 0.0), ("b", 2e-5)))
    found = mu.comparison(one, other, margin=0.0)
    plot = forest_plot(Figures(mu.result(["a", "b"], [mu.toy_suite()], [one, other], comparisons=[found])), "toy")
    assert plot is not None
    low, high = plot.panels[0].ends
    assert low < 0 < found.high < high


def test_a_chart_draws_exactly_its_figures(toy: AuditResult) -> None:
    dots = _plots(toy)["dots"]
    assert [p.title for p in dots.panels] == ["position: without dialogue", "position: with dialogue"]
    for panel, position in zip(dots.panels, mu.POSITIONS, strict=True):
        drawn = [(row["m"], row["k"], row["v"]) for row in panel.rows if "m" in row]
        wanted = [
            (MODELS.index(m.model), f"debiasing {'none' if m.where['debiasing'] is None else m.where['debiasing']}",
             None if m.value is None else pytest.approx(m.value, rel=1e-4))
            for m in toy.measures
            if m.measure == "gap" and m.where.get("position") == position
        ]  # fmt: skip
        assert sorted(drawn, key=lambda d: d[:2]) == sorted(wanted, key=lambda d: d[:2])


@pytest.mark.parametrize(
    ("levels", "bare", "labels"),
    [
        (("a_b", "a b", "c"), ["'a_b'", "'a b'", "c"], ["'a_b'", "'a b'", "c"]),
        ((None, "none"), ["None", "'none'"], ["told none", "none"]),
        ((True, "yes", 1), ["True", "'yes'", "1"], ["told yes", "yes", "told 1"]),
        ((1, "1"), ["1", "'1'"], ["told 1", "1"]),
        ((None, 1, "a_b"), ["none", "1", "a b"], ["told none", "told 1", "a b"]),
    ],
)
def test_levels_that_read_alike_keep_their_own_rows_and_panels(
    levels: tuple[Scalar, ...], bare: list[str], labels: list[str]
) -> None:
    charts = [
        Chart("dots", "Rows", ("gap",), by="told"),
        Chart("dots", "Panels", ("gap",), facet="told"),
        Chart("lines", "Bare", ("gap",), by="told"),
    ]
    measures = [mu.measure("a", "gap", {"told": level}, 0.1 * i) for i, level in enumerate(levels)]
    published = [PublishedFigure("GPT-3", "gap", {"told": level}, 0.3) for level in levels]
    info = mu.suite_info("toy", "Toy", charts=charts, published=published)
    figures = Figures(mu.result(["a"], [info], measures))
    rows, panels, lines = suite_plots(figures, FigureTable(), "toy", info.charts)
    (panel,) = rows.panels
    assert [row["k"] for row in panel.rows if "m" in row] == labels
    assert [row["k"] for row in panel.rows if "pub" in row] == labels
    assert rows.heights == [len(levels) * 22 + 6]
    assert [p.title for p in panels.panels] == [f"told: {label}" for label in bare]
    assert [len(p.rows) for p in panels.panels] == [1] * len(levels)
    assert [row["k"] for row in lines.panels[0].rows] == bare


def test_bounds_are_a_band_and_a_missing_figure_is_not_drawn(toy: AuditResult) -> None:
    rows = {(r["m"], r["k"]): r for r in _plots(toy)["dots"].panels[0].rows if "m" in r}
    bounded, missing, exact = rows[1, "debiasing 2"], rows[1, "debiasing 3"], rows[0, "debiasing 2"]
    assert (bounded["v"], bounded["bl"], bounded["bh"]) == (None, 0.2, 0.35)
    assert (missing["v"], missing["l"], "bl" in missing) == (None, None, False)
    assert "bl" not in exact
    assert "bounds" in _plots(toy)["dots"].marks


def test_published_figures_stand_in_the_rows_they_belong_to(toy: AuditResult) -> None:
    printed = [r for r in _plots(toy)["dots"].panels[0].rows if "u" in r]
    assert {r["pub"] for r in printed} == {"GPT-3"}
    assert len(printed) == len(mu.LEVELS)
    assert {r["u"] for r in printed} == {0.4}


def test_a_published_figure_of_another_design_is_not_drawn(toy: AuditResult) -> None:
    (info,) = toy.suites
    other = [{**p, "source": {"difference": "Other templates."}} for p in info.published]
    changed = toy.model_copy(update={"suites": [info.model_copy(update={"published": other})]})
    assert not [r for r in _plots(changed)["dots"].panels[0].rows if "u" in r]


def test_rows_lead_back_to_their_figures(toy: AuditResult) -> None:
    table = FigureTable()
    plots = suite_plots(Figures(toy), table, "toy", toy.suites[0].charts)
    for row in (r for p in plots for panel in p.panels for r in panel.rows if "f" in r):
        measure = table.measures[row["f"]]
        assert measure.model == MODELS[row["m"]]
        assert row["v"] == (None if measure.value is None else pytest.approx(measure.value, rel=1e-4))


def test_scatter_places_a_level_at_its_covariate(toy: AuditResult) -> None:
    scatter = _plots(toy)["scatter"]
    assert [p.model for p in scatter.panels] == [0, 1, 2]
    assert {r["k"]: r["x"] for r in scatter.panels[0].rows} == mu.SHARES
    assert "diagonal" in scatter.marks


def test_ranking_sorts_by_value_with_the_missing_last() -> None:
    chart = Chart("ranking", "r", ("p_female",), by="occupation")
    values = {"a": 0.2, "b": None, "c": 0.9, "d": 0.5}
    measures = [mu.measure("m", "p_female", {"occupation": k}, v, is_subgroup=True) for k, v in values.items()]
    result = mu.result(["m"], [mu.suite_info("toy", "Toy", charts=[chart])], measures)
    assert [r["k"] for r in _plots(result)["ranking"].panels[0].rows] == ["c", "d", "a", "b"]


def test_ternary_corners_and_middle() -> None:
    assert ternary.place((1, 0, 0)) == (0, 0)
    assert ternary.place((0, 1, 0)) == (1, 0)
    assert ternary.place((0, 0, 1)) == pytest.approx((0.5, math.sqrt(3) / 2))
    assert ternary.place((1 / 3, 1 / 3, 1 / 3)) == pytest.approx((0.5, math.sqrt(3) / 6))
    assert ternary.place((0.5, None, 0.5)) is None


def test_a_ternary_whisker_keeps_the_ratio_of_the_others() -> None:
    at = ternary.place((0.5, 0.3, 0.2))
    assert at is not None
    low, high = ternary.whisker(at, ternary.CORNERS[0], 0.5, 0.4, 0.75)
    assert low == pytest.approx(ternary.place((0.4, 0.36, 0.24)))
    assert high == pytest.approx(ternary.place((0.75, 0.15, 0.1)))


def test_ternary_arrows_start_at_the_untreated_level(toy: AuditResult) -> None:
    rows = [r for r in _plots(toy)["ternary"].panels[0].rows if "k" in r]
    start = next(r for r in rows if r["k"] == "none")
    assert "x0" not in start
    treated = [r for r in rows if r["k"] != "none"]
    assert {(r["x0"], r["y0"]) for r in treated} == {(start["x"], start["y"])}
    # From 0.7 women, 0.28 men, 0.02 diverse towards diverse: up, and left.
    assert all(-90 < r["a"] < 0 for r in treated)


def test_forest_has_the_headline_first_and_every_interval(toy: AuditResult) -> None:
    forest = forest_plot(Figures(toy), "toy")
    assert forest is not None
    assert forest.panels[0].title == "gap: position without dialogue · debiasing none"
    for panel in forest.panels:
        assert panel.ends is not None
        ends = [x for r in panel.rows for x in (r["l"], r["h"], -r["g"], r["g"]) if x is not None]
        assert panel.ends[0] < min(ends)
        assert panel.ends[1] > max(ends)
    first = [c for c in toy.comparisons if c.measure == "gap"][: len(forest.panels[0].rows)]
    assert [r["v"] for r in forest.panels[0].rows] == [pytest.approx(c.difference, rel=1e-4) for c in first]


def test_a_step_draws_its_decisions_and_the_items_behind_them(toy: AuditResult) -> None:
    step = mu.step([c for c in toy.comparisons if c.measure == "gap"], "toy", MODELS[0], MODELS[1])
    plot = ladder_plot(Figures(toy.model_copy(update={"ladder": [step]})), "toy")
    assert plot is not None
    decisions = [[row for row in panel.rows if "w" in row] for panel in plot.panels]
    shown = {(m, where_key(w)) for m, w in Figures(toy).headline("toy")}
    expected = [c for c in step.comparisons if (c.measure, where_key(c.where)) in shown]
    assert [row["v"] for (row,) in decisions] == [pytest.approx(c.difference, rel=1e-4) for c in expected]
    assert [sum("t" in row for row in panel.rows) for panel in plot.panels] == [50, 0]  # items of the first condition
    for panel in plot.panels:
        assert panel.ends is not None
        drawn = [row[end] for row in panel.rows for end in ("l", "h", "t") if row.get(end) is not None]
        assert panel.ends[0] < min(drawn)
        assert panel.ends[1] > max(drawn)
    assert ladder_plot(Figures(toy), "toy") is None


def test_the_components_are_shares_of_one_items_variance(toy: AuditResult) -> None:
    (first, *_) = Figures(toy).headline("toy")
    one = VarianceComponents(
        suite="toy", measure=first[0], where=dict(first[1]), model=MODELS[0], factors={"word": 0.03, "form": 0.01},
        cross=0.06, sampling=None, in_figure={}, engine=0.02, levels={}, n_items=9,
        generalisability=0.912,
    )  # fmt: skip
    plot = components_plot(Figures(toy.model_copy(update={"components": [one]})), "toy")
    assert plot is not None
    (panel,) = plot.panels
    assert {row["part"]: row["q"] for row in panel.rows} == pytest.approx(
        {"word": 30, "form": 10, "their combination": 40, "engine": 20}
    )
    assert "of each word: smollm2 0.91" in plot.caption
    spec = plot.spec | {"datasets": {"rows": panel.rows}, "width": 300}
    assert vl_convert.vegalite_to_svg(json.dumps(spec)).count("<path") > 4
    assert components_plot(Figures(toy), "toy") is None


def test_a_chart_without_any_figure_is_left_out() -> None:
    charts = [Chart("dots", "t", ("nothing",)), Chart("scatter", "t", ("nothing",), by="occupation", covariate={})]
    result = mu.result(["m"], [mu.suite_info("toy", "Toy", charts=charts)], [mu.measure("m", "gap", {}, 0.1)])
    assert _plots(result) == {}


def test_a_picture_without_any_value_is_left_out_and_named() -> None:
    made = [m.model_copy(update={"value": None, "low": None, "high": None, "bound_low": None, "bound_high": None,
                                 "n_items": 0}) if "length" in m.where else m
            for m in mu.toy_measures(MODELS)]  # fmt: skip
    result = mu.result(MODELS, [mu.toy_suite()], made, comparisons=[])
    assert "lines" not in _plots(result)
    assert "none of their figures has a value: Gap by length" in " ".join(report_page(result).split())
    half = [m for m in made if m.where.get("position") != "with dialogue" or m.measure != "gap"]
    half += [m.model_copy(update={"value": None, "low": None, "high": None, "bound_low": None, "bound_high": None})
             for m in made if m not in half]  # fmt: skip
    dots = _plots(mu.result(MODELS, [mu.toy_suite()], half, comparisons=[]))["dots"]
    assert [panel.title for panel in dots.panels] == ["position: without dialogue"]
    assert len(dots.heights) == 1


def test_shares_have_an_axis_from_0_to_1() -> None:
    made = [mu.measure(m, "accuracy", {"length": n}, 1.0, 0.0, unit="share") for m in MODELS for n in (1, 2)]
    suite = mu.suite_info("toy", "Toy", charts=[Chart("lines", "Accuracy", ("accuracy",), by="length")])
    (plot,) = suite_plots(Figures(mu.result(MODELS, [suite], made, comparisons=[])), FigureTable(), "toy", suite.charts)
    scales = [layer["encoding"]["y"].get("scale") for layer in plot.spec["layer"] if "y" in layer["encoding"]]
    assert [scale["domain"] for scale in scales if scale] == [[0.0, 1.0]]


def test_a_negative_difference_lies_on_its_axis() -> None:
    made = [mu.measure(m, "gap", {}, -0.23, 0.1, neutral=0.0) for m in MODELS]  # in the default unit
    suite = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Gap", ("gap",))])
    (plot,) = suite_plots(Figures(mu.result(MODELS, [suite], made, comparisons=[])), FigureTable(), "toy", suite.charts)
    scales = [layer["encoding"].get("x", {}).get("scale") for layer in plot.spec["layer"]]
    ((low, high),) = {tuple(scale["domain"]) for scale in scales if scale}
    assert low < -0.33
    assert high > 0


@pytest.mark.parametrize(("neutrals", "rules", "ticks"), [((0.5, 0.5), 1, 0), ((0.5, 0.0), 0, 2)])
def test_measures_with_different_neutral_values_share_no_line(
    neutrals: tuple[float, float], rules: int, ticks: int
) -> None:
    named = zip(("plain", "weighted"), neutrals, strict=True)
    made = [mu.measure("m", name, {}, 0.5, 0.1, neutral=neutral) for name, neutral in named]
    suite = mu.suite_info("toy", "Toy", charts=[Chart("dots", "Two", ("plain", "weighted"))])
    (plot,) = suite_plots(Figures(mu.result(["m"], [suite], made, comparisons=[])), FigureTable(), "toy", suite.charts)
    shown = plot.spec | {"datasets": {"rows": plot.panels[0].rows}, "width": 300}
    svg = vl_convert.vegalite_to_svg(json.dumps(shown).replace("var(--neutral)", "#123456"))
    assert len(re.findall(r'<line[^>]*stroke="#123456"', svg)) == rules
    assert len(re.findall(r'<path[^>]*fill="#123456"', svg)) == ticks
    said = suite_summary(Figures(mu.result(["m"], [suite], made)), "toy")
    assert not [s for s in said if s.text.startswith("Two (")]  # which of the two is not said


def test_headline_panels_of_one_unit_share_their_axis() -> None:
    infos = [mu.suite_info(name, name) for name in ("one", "two", "three")]
    gaps = [
        mu.measure("a", "gap", {}, value, 0.01, neutral=0.0, unit=unit).model_copy(update={"suite": info.name})
        for info, value, unit in zip(
            infos,
            (0.02, 0.5, 0.9),
            ("difference of probabilities", "difference of probabilities", "share"),
            strict=True,
        )
    ]
    drawn = headline_plot(Figures(mu.result(["a"], infos, gaps)), FigureTable())
    assert drawn is not None
    first, second, third = (panel.ends for panel in drawn.panels)
    assert first == second != third
    assert first is not None
    assert first[0] <= 0.01
    assert first[1] >= 0.51
