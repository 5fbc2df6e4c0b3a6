"""What is drawn, and where."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import vl_convert

from audit.report import write_report
from audit.report.charts.differences import forest_plot
from audit.report.charts.plots import FigureTable, Plot, lane_labels
from audit.report.charts.suite_charts import headline_plot, suite_plots
from audit.report.figures import Figures
from audit.report.formatting import short_level
from audit.report.page.report_page import report_page
from audit.report.phrases.summary import suite_summary
from audit.results import AuditResult
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
    assert {p.kind for p in plots if p} == {"dots", "scatter", "lines", "ranking"}
    for plot in plots:
        assert plot is not None
        spec = plot.spec | {"datasets": {"rows": plot.panels[0].rows}, "width": 300}
        assert vl_convert.vegalite_to_svg(json.dumps(spec)).count("<path") > 5


def test_a_chart_draws_exactly_its_figures(toy: AuditResult) -> None:
    dots = _plots(toy)["dots"]
    assert [p.title for p in dots.panels] == ["position: without dialogue", "position: with dialogue"]
    for panel, position in zip(dots.panels, mu.POSITIONS, strict=True):
        drawn = [(row["m"], row["k"], row["v"]) for row in panel.rows if "m" in row]
        wanted = [
            (MODELS.index(m.model), short_level("debiasing", m.where["debiasing"]),
             None if m.value is None else pytest.approx(m.value, rel=1e-4))
            for m in toy.measures
            if m.measure == "gap" and m.where.get("position") == position
        ]  # fmt: skip
        assert sorted(drawn, key=lambda d: d[:2]) == sorted(wanted, key=lambda d: d[:2])


@pytest.mark.parametrize(
    ("levels", "bare", "labels"),
    [
        (("a_b", "a b", "c"), ["'a_b'", "'a b'", "c"], ["'a_b'", "'a b'", "c"]),
        ((None, "none"), ["None", "'none'"], ["without told", "none"]),
        ((True, "yes", 1), ["True", "'yes'", "1"], ["told yes", "yes", "told 1"]),
        ((1, "1"), ["1", "'1'"], ["told 1", "1"]),
        ((None, 1, "a_b"), ["none", "1", "a b"], ["without told", "told 1", "a b"]),
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


def test_forest_has_the_headline_first_and_every_interval(toy: AuditResult) -> None:
    forest = forest_plot(Figures(toy), "toy")
    assert forest is not None
    assert forest.panels[0].title == "gap: without dialogue"
    for panel in forest.panels:
        assert panel.ends is not None
        ends = [x for r in panel.rows for x in (r["l"], r["h"], -r["g"], r["g"]) if x is not None]
        assert panel.ends[0] < min(ends)
        assert panel.ends[1] > max(ends)
    first = [c for c in toy.comparisons if c.measure == "gap"][: len(forest.panels[0].rows)]
    assert [r["v"] for r in forest.panels[0].rows] == [pytest.approx(c.difference, rel=1e-4) for c in first]


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


@pytest.mark.parametrize(("unit", "has_diagonal"), [("probability", True), ("difference", False)])
def test_probabilities_beside_shares_have_a_diagonal(unit: str, has_diagonal: bool) -> None:
    made = [mu.measure("a", "p_female", {"occupation": word}, 0.2, unit=unit) for word in mu.WORDS]
    suite = mu.suite_info("toy", "Toy", charts=[chart for chart in mu.TOY_CHARTS if chart.kind == "scatter"])
    (plot,) = suite_plots(Figures(mu.result(["a"], [suite], made)), FigureTable(), "toy", suite.charts)
    assert ("diagonal" in plot.marks) is has_diagonal


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


def test_every_chart_is_a_file_for_papers(toy: AuditResult, tmp_path: Path) -> None:
    written = write_report(toy, tmp_path, formats=["svg", "pdf"])
    pictures = [path for name, path in written.items() if name.startswith("svg ")]
    assert len(pictures) > 5
    assert tmp_path / "charts" / "headline.svg" in pictures
    for path in pictures:
        svg = path.read_text("utf-8")
        assert "var(" not in svg, "a paper has no style sheet"
        assert "white" in svg
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_long_names_that_begin_alike_are_told_apart() -> None:
    names = [f"organisation/Very-Long-Model-Name-{size}B-Instruct-v{n}" for size in (1, 70) for n in (1, 2)]
    labels = lane_labels(names)
    assert labels[names[0]] == "…1B-Instruct-v1"
    assert len(set(labels.values())) == 4
    middles = lane_labels(["begin" + middle * 20 + "end" for middle in "xy"] + ["begin" + "xy" * 20 + "end", "z"])
    assert len(set(middles.values())) == 4
    assert all(len(label) < 33 for label in middles.values())
