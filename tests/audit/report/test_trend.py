"""The trend page's data: what is drawn where, what is joined, and that no name acts."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from audit.analysis.history import Absence, history
from audit.report.charts.trend import trend_pictures
from audit.report.page.trend_page import trend_page
from audit.results import AuditResult
from tests.audit.report import made_up as mu


def nights(models: list[str], count: int = 4, **changes: Any) -> list[AuditResult]:
    measures = [m.model_copy(update={"signature": 'suite:"toy"'}) for m in mu.toy_measures(models)]
    return [
        mu.result(models, [mu.toy_suite()], measures).model_copy(
            update={"run_id": f"run{n}", "started": f"2026-01-0{n}T03:00:00+00:00", **changes}
        )
        for n in range(1, count + 1)
    ]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


def points(data: dict[str, Any], model: int = 0) -> list[dict[str, Any]]:
    return [row for row in data["pictures"][0]["panels"][0] if row.get("m") == model]


def test_every_figure_of_every_run_is_drawn_and_in_the_table() -> None:
    models = ["one", "two"]
    found = history(nights(models))
    page = trend_page(found, "Nightly")
    data = data_of(page)
    rows = [row for picture in data["pictures"] for panel in picture["panels"] for row in panel]
    told = [point for series in found.series for point in series.points]
    assert len(rows) == len(told) == page.count('scope="row"><svg')
    assert sorted(row["v"] or 0 for row in rows) == sorted(float(f"{p.value or 0:.8g}") for p in told)
    for row in points(data):
        assert row["l"] < row["v"] < row["h"]
    assert [row["t"] for row in points(data)] == [1767236400000.0 + day * 86_400_000 for day in range(4)]


def test_lines_end_at_an_absent_run_with_its_reason() -> None:
    gap = Absence(at="2026-01-02T12:00:00+00:00", why="1 slot missed, skipped")
    page = trend_page(history(nights(["one"]), [gap]), "Nightly")
    assert [row["g"] for row in points(data_of(page))] == [0, 0, 1, 1]
    marks = [row for row in data_of(page)["pictures"][0]["panels"][0] if "a" in row]
    assert marks == [{"t": 1767355200000.0, "a": "1 slot missed, skipped"}]
    assert "1 slot missed, skipped" in page.split('id="gaps"')[1]


def test_a_change_is_marked_at_its_run_and_listed_once() -> None:
    first, second = nights(["one"], 2)
    changed = {"fingerprint": {**second.models[0].fingerprint, "engine": "2.0"}, "fingerprint_id": "e" * 16}
    model = second.models[0].model_copy(update=changed)
    found = history([first, second.model_copy(update={"models": [model]})])
    page = trend_page(found, "Nightly")
    (mark,) = [row for row in data_of(page)["pictures"][0]["panels"][0] if "c" in row]
    assert mark["t"] == points(data_of(page))[1]["t"]
    assert len(mark["c"]) == 1
    assert "engine" in mark["c"][0]
    table = page.split('id="changes"')[1].split("</section>")[0]
    assert table.count("→ 2.0") == 1
    assert f'<td class="n">{len(found.series)}</td>' in table


def test_another_sample_of_the_same_questions_joins_the_line() -> None:
    first, second = nights(["one"], 2)
    signatures = ('suite:"toy"|limit:200', 'suite:"toy"|limit:null')
    for result, signature in zip((first, second), signatures, strict=True):
        result.measures[:] = [m.model_copy(update={"signature": signature}) for m in result.measures]
    found = history([first, second])
    page = trend_page(found, "Nightly")
    assert {row["g"] for row in points(data_of(page))} == {0}
    assert "suite limit: 200 → none" in page
    assert "→ None" not in page


def test_a_figure_that_no_run_defines_is_said_to_have_no_value() -> None:
    first, second = nights(["one", "two"], 2)
    unknown = dict.fromkeys(("value", "low", "high", "bound_low", "bound_high"))
    for result in (first, second):
        result.measures[:] = [m.model_copy(update=unknown) if m.model == "two" else m for m in result.measures]
    page = trend_page(history([first, second]), "Nightly")
    assert "No value at any run: two" in page
    assert "No value at any run: one" not in page


def test_only_primary_figures_are_drawn_at_once() -> None:
    first, second = nights(["one"], 2)
    gap = first.measures[0].measure
    primary = [
        m.model_copy(update={"spec": dataclasses.replace(m.spec, primary=m.measure == gap)}) for m in first.measures
    ]
    found = history([first, second.model_copy(update={"measures": primary})])
    pictures = trend_pictures(found)
    assert [picture.title for picture in pictures if not picture.folded] == ["toy: P̃(female)"]
    assert len(pictures) > 1
    page = trend_page(found, "Nightly")
    assert page.count('<details class="fold">') == sum(picture.folded for picture in trend_pictures(found))
    assert not any(picture.folded for picture in trend_pictures(history([first]))), "no figure is primary"
