"""What a sheet shows of a suite: no figure that it was made to show is lost, and the most biased come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.report import write_report
from audit.report.charts.plots import FigureTable
from audit.report.charts.suite_charts import headline_plot
from audit.report.figures import Figures
from audit.report.phrases.comparisons import comparison_rows
from audit.report.phrases.first_page import first_rows
from audit.report.tables import rank_rows
from audit.results import AuditResult, Rank, Ranking
from suites.base import MeasureSpec
from suites.presentation import Chart
from tests.audit.report import made_up as mu

MEANINGS = {name: {"above": "prefers X by {points} points", "below": "prefers Y by {points} points"} for name in "mw"}
BY_GROUP = Chart("dots", "By group", ("m",), by="group")


def primary(name: str, where: dict[str, Any], value: float, model: str, suite: str) -> Any:
    spec = MeasureSpec(name, name, where, primary=True, neutral=0.5)
    return mu.measure(model, name, where, value, 0.05, suite=suite, neutral=0.5, spec=spec)


def result(groups: str, biased: str, *, suites: tuple[str, ...] = ("one",), charts: Any = (BY_GROUP,)) -> AuditResult:
    """Each group at 0.5, except for one."""
    infos = [mu.suite_info(n, n, charts=charts).model_copy(update={"meanings": MEANINGS}) for n in suites]
    measures = [
        primary("m", {"group": g}, 0.97 if g == biased else 0.5, model, suite)
        for suite in suites
        for model in ("p", "q")
        for g in groups
    ]
    return mu.result(["p", "q"], infos, measures)


def two_measures() -> AuditResult:
    infos = [mu.suite_info("one", "one", charts=[Chart("dots", "M", ("m",))]).model_copy(update={"meanings": MEANINGS})]
    measures = [primary(n, {}, v, model, "one") for n, v in (("m", 0.51), ("w", 0.95)) for model in ("p", "q")]
    pairs = [mu.comparison(*measures[i : i + 2], primary=True) for i in (0, 2)]
    pairs[1] = pairs[1].model_copy(update={"difference": 0.4, "low": 0.3, "high": 0.5, "verdict": "larger"})
    ranks = [Rank(model="p", best=1, worst=1, tied_with=[]), Rank(model="q", best=2, worst=2, tied_with=[])]
    rankings = [Ranking(suite="one", measure=name, where={}, ranks=ranks) for name in "mw"]
    found = mu.result(["p", "q"], infos, measures)
    return found.model_copy(update={"comparisons": pairs, "rankings": rankings})


CASES = {
    "the last of eight groups, of two suites": result("ABCDEFGH", "H", suites=("one", "two")),
    "the last of ten groups": result("ABCDEFGHIJ", "J"),
    "the last of ten groups, without a chart": result("ABCDEFGHIJ", "J", charts=()),
    "the second of two measures": two_measures(),
}


@pytest.mark.parametrize("case", CASES)
def test_every_sheet_shows_the_biased_figure(tmp_path: Path, case: str) -> None:
    found = CASES[case]
    for key, file in write_report(found, tmp_path, formats=["html", "certificate", "markdown"]).items():
        text = file.read_text("utf-8")
        if key == "html":
            text = text[text.index('<section id="answer">') : text.index('<section id="suite-0"')]
        assert "47 (42 to 52)" in text or "45 (40 to 50)" in text, (key, text)
    drawn = headline_plot(Figures(found), FigureTable())
    assert drawn is not None
    assert {row["v"] for panel in drawn.panels for row in panel.rows} & {0.97, 0.95}


def test_a_value_without_an_interval_comes_before_none() -> None:
    found = result("ABCDEFGHIJ", "J")
    unknown = dict.fromkeys(("value", "low", "high", "bound_low", "bound_high"))
    known = {"low": None, "high": None}
    made = [m.model_copy(update=known if m.where["group"] == "J" else unknown) for m in found.measures]
    shown, _ = Figures(found.model_copy(update={"measures": made})).chosen("one", 3)
    assert "J" in [one.where["group"] for one in shown]


def test_rows_left_out_are_counted() -> None:
    (shown,) = first_rows(Figures(result("ABCDEFGHIJ", "J")))
    assert len(shown.rows) == 8
    assert shown.rows[-1].condition == "J"
    assert shown.left_out == "2 more figures"


def test_models_that_differ_in_a_second_measure_have_a_row_of_it() -> None:
    figures = Figures(two_measures())
    rows = comparison_rows(figures)[0]
    assert [(row.condition, row.verdict) for row in rows] == [("m", "equivalent"), ("w", "higher")]
    assert [label for label, _ in rank_rows(figures, "one")] == ["m", "w"]
