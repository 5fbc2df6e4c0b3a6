import pytest

from suites import DebiasingPositions


def test_table_cells_name_measured_and_published_figures():
    suite = DebiasingPositions(variant="as_released")
    specs = [(s.measure, s.where) for s in suite.measures([])]
    assert len(specs) == len({(m, tuple(sorted(w.items(), key=str))) for m, w in specs})
    published = [(f.measure, f.where) for f in suite.published() if f.model == "GPT-3 curie"]
    explicit, _ = suite.tables()
    assert [label for label, _ in explicit.rows] == [
        "None", "1", "2", "3", "4", "5", "6", "Average high", "Average medium", "Average low",
    ]  # fmt: skip
    assert len(explicit.columns) == 2 * 2 * 3
    for table in suite.tables():
        for _, row in table.rows:
            for column in table.columns:
                cell = (column.measure, {**row, **column.where})
                assert cell in specs
                assert cell in published


def test_published_averages_are_means_of_printed_figures():
    figures = DebiasingPositions(variant="as_released").published()

    def value(**where):
        (one,) = [f for f in figures if f.model == "GPT-3 davinci" and f.measure == "p_diverse" and f.where == where]
        return one.value

    here = {"bias": "explicit", "position": "without_dialogue", "dominated_by": "female"}
    assert value(**here, debiasing=5) == pytest.approx(0.991)
    assert value(**here, debiasing=6) == pytest.approx(0.893)
    assert value(**here, abstraction="low") == pytest.approx(0.942)
    assert not DebiasingPositions("occugender").published()


def test_charts_name_figures_that_are_measured():
    for suite in (DebiasingPositions(), DebiasingPositions("occugender", prompt_format="chat", placebo=False)):
        specs = list(suite.measures([]))
        for chart in suite.charts():
            keys = {*chart.where, *(k for k in (chart.by, chart.facet) if k)}
            for measure in chart.measures:
                drawn = [
                    s
                    for s in specs
                    if s.measure == measure and set(s.where) == keys and chart.where.items() <= s.where.items()
                ]
                assert drawn, f"{chart.title}: nothing to draw of {measure}"
