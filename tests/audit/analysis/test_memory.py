"""The memory of a run's answers and figures."""

from __future__ import annotations

import tracemalloc

import pytest

from audit import spool
from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.comparing.differences import paired_differences
from audit.analysis.components import suite_components
from audit.analysis.estimators import clusters, medians
from audit.analysis.measures import measure_rows
from audit.analysis.rows import item_index, table
from audit.analysis.rows.packed import PackedRows
from audit.analysis.rows.responses import Responses
from audit.analysis.rows.table import Levels, RowTable
from backends.base import GenerateResponse, ScoreRequest
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row
from tests.audit.analysis.test_responses import Asking

_WORDS = tuple(f" {i}" for i in range(26))


def held(responses: Responses, numbers: range) -> int:
    """Bytes that are held once these prompts are recorded."""
    for i in numbers:
        item = Item(f"template {i % 7}/{i}#", ScoreRequest("p", _WORDS), {"template": i % 7, "name": f"name {i % 50}"})
        keys = tuple(f"a1-{i:020x}{j:020x}" for j in range(len(_WORDS)))
        responses.record((i,), item, keys, GenerateResponse("x" * (i % 9), "stop"))
    return tracemalloc.get_traced_memory()[0]


def test_a_recorded_prompt_takes_few_bytes() -> None:
    """It took 4,000, of which 2,600 were keys."""
    responses, half = Responses(Asking()), 3 * 2048
    tracemalloc.start()
    try:
        first = held(responses, range(half))
        second = held(responses, range(half, 2 * half))
    finally:
        tracemalloc.stop()
    assert (second - first) / half < 100
    last = responses.parsed().by_item[f"template 0/{7 * 1000}#"]
    assert last.keys == tuple(f"a1-{7000:020x}{j:020x}" for j in range(len(_WORDS)))


def rows_of_levels(n: int, levels: int, missing_every: int) -> list[Row]:
    """Rows of so many levels, some of them missing."""
    return [
        Row(f"i{i}", {"level": i % levels, "cluster": i // levels}, {"p": IdentifiedInterval.exact(i / n)})
        if i % missing_every
        else Row(f"i{i}", {"level": i % levels, "cluster": i // levels}, {}, missing="refusal")
        for i in range(n)
    ]


def figures_of_levels(levels: int) -> list[MeasureSpec]:
    """A figure of each level."""
    return [MeasureSpec("p", "p", {"level": i}, kind="probability", clusters=("cluster",)) for i in range(levels)]


def test_waiting_figures_hold_their_own_rows_alone() -> None:
    """Each of 200 figures held five arrays as long as the table: 106 MB here."""
    rows = rows_of_levels(20_000, 200, 37)
    table = RowTable(rows)
    tracemalloc.start()
    try:
        found = measure_rows(table, figures_of_levels(200), model="m", suite="s", signature={})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(one.n_items for one in found) == sum(row.missing is None for row in rows)
    assert peak < 40e6


def test_waiting_differences_hold_their_own_rows_alone() -> None:
    """Each of 200 figures held a dozen arrays as long as the tables of both models: 214 MB here."""
    index, levels = {f"i{i}": i for i in range(20_000)}, Levels()
    tables = [RowTable(rows_of_levels(20_000, 200, every), index, levels) for every in (37, 41)]
    tracemalloc.start()
    try:
        found = paired_differences(tables, figures_of_levels(200), [(0, 1)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(one.n_items for one in found) == int((tables[0].answered & tables[1].answered).sum())
    assert peak < 40e6


def figures_over_all_rows() -> list[MeasureSpec]:
    """Figures of many clusters, in strata and without."""
    over = {"kind": "probability", "clusters": ("name", "template"), "probability_mass": "mass", "primary": True}
    strata = {"stratum": "group", "weights": {0: 0.5, 1: 0.5}}
    by_group = [MeasureSpec("p", "p", {"group": group}, **over) for group in (0, 1)]  # type: ignore[arg-type]
    return [MeasureSpec("p", "p", **over), MeasureSpec("s", "p", **over, **strata), *by_group]  # type: ignore[arg-type]


def many_rows(n: int, missing_every: int, seed: int) -> PackedRows:
    """Rows of a model."""
    return PackedRows.of(
        Row(f"i{i}", {"name": i % 40, "template": i // 40 % 25, "group": i % 2}, {}, missing="refusal")
        if i % missing_every == 1
        else Row(
            f"i{i}",
            {"name": i % 40, "template": i // 40 % 25, "group": i % 2},
            {"p": IdentifiedInterval.exact((i * seed % 1000 + 1) / 1002), "mass": IdentifiedInterval.exact(0.5)},
        )
        for i in range(n)
    )


def judged_peak(n: int, missing_every: int) -> int:
    """The most bytes that were held while figures of so many rows of two models were computed, and compared."""
    rows, other = many_rows(n, missing_every, 7919), many_rows(n, missing_every, 104729)
    tracemalloc.start()
    try:
        compare_models({"m": rows, "n": other}, figures_over_all_rows(), suite="s")
        measure_rows(RowTable(rows), figures_over_all_rows(), model="m", suite="s", signature={})
        suite_components("s", {"m": rows}, figures_over_all_rows())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("missing_every", [10**9, 37])
def test_judging_takes_few_bytes_of_a_row(missing_every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory are masks, and zeros that are never written; it was 230 bytes of a row."""
    monkeypatch.setattr(spool, "_LEAST_MAPPED", 2**12)
    for module in (clusters, medians):
        monkeypatch.setattr(module, "BLOCK", 2**12)
    for module in (table, spool, item_index):
        monkeypatch.setattr(module, "_AT_ONCE", 2**12)
    judged_peak(1_000, missing_every)  # what is imported and cached once
    few, many = 2**14, 2**16
    first, second = judged_peak(few, missing_every), judged_peak(many, missing_every)
    assert (second - first) / (many - few) < 40
