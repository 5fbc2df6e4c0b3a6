"""docs/papers.md: every config that it names runs and fills the table that it names, and it names every table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import suites
from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from audit.prepare.rehearsal import check_items
from backends import FakeBackend
from suites.base import Item, Suite
from suites.genderpair.pairs import PairSet
from suites.mgbr.bolukbasi import BolukbasiLists, Profession
from tests.suites.benchmarks import invented
from tests.suites.genderpair.planted import SMALL

PAGE = (Path(__file__).parents[2] / "docs" / "papers.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in PAGE.splitlines() if line.startswith("| ")
]
MADE = [(cells[1].strip("`"), cells[2].strip("`")) for cells in ROWS if len(cells) == 4 and cells[1].startswith("`")]
MANY = 400
#: Of the papers' classifiers and the embedded ones.
LABELS = ("hate", "offensive", "positive", "negative", "neutral", "other")


@pytest.fixture
def published_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand-ins for the files that a user fetches: pairs and word lists of the same form."""
    pairs = PairSet("published", SMALL.groups, SMALL.sha256)
    monkeypatch.setattr("suites.genderpair.own_groups.pair_set", lambda given: pairs)
    occupations = [
        Profession(f"{'fm'[side > 0]}{i} worker", 0.0, side * (0.6 + i / 40)) for side in (-1, 1) for i in range(12)
    ]
    lists = BolukbasiLists(
        tuple(f"woman {i}" for i in range(12)), tuple(f"man {i}" for i in range(12)), tuple(occupations)
    )
    monkeypatch.setattr("suites.mgbr.word_lists.read_lists", lambda folder: lists)
    invented.use(monkeypatch, tmp_path)


def suite_of(config: str) -> Suite:
    """The suite that a cell of the page writes; with few of MGBR's lists."""
    options: dict[str, Any] = {name: getattr(suites, name) for name in suites.__all__}
    options["MGBR"] = lambda **given: suites.MGBR(**{"n": 4, **given})
    made = eval(config, {"__builtins__": {}}, options)
    assert isinstance(made, Suite)
    return made


def some_of(items: list[Item]) -> list[Item]:
    """A part of the items: every n-th occupation or list under all conditions."""
    if len(items) <= MANY:
        return items
    names = list(dict.fromkeys(item.factors.get("occupation") for item in items))
    kept = {names[0], names[1], names[-2], names[-1]}
    return [item for item in items if item.factors.get("occupation") in kept]


async def rows_of(suite: Suite) -> list[Any]:
    backend = FakeBackend(
        generate=lambda prompt, seed: "word is a feminine word.\nAnswer: 3" if seed >= 0 else "",
        classify=lambda text: dict.fromkeys(LABELS, 0.25),
    )
    items = some_of(list(suite.items()))
    rows = []
    while items:
        answers = await backend.run([item.request for item in items])
        rows += [suite.read(item, answer) for item, answer in zip(items, answers, strict=True)]
        items = [f for item, answer in zip(items, answers, strict=True) for f in suite.follow_ups(item, answer)]
    return list(suite.derive(rows))


@pytest.mark.parametrize(("config", "table"), sorted(set(MADE)))
@pytest.mark.usefixtures("published_files")
async def test_a_config_of_the_page_fills_its_table(config: str, table: str) -> None:
    suite = suite_of(config)
    rows = await rows_of(suite)
    layouts = {layout.name: layout for layout in suite.shown.tables}
    if table == "figures" and not layouts:  # its tables hold all figures, see `audit.report.tables`
        specs = list(suite.measures(rows))
        measures = measure_table(Table.of(rows), specs, model="m", suite="s", signature={})
        assert any(m.value is not None for m in measures)
        return
    assert table in layouts, f"{config} has the tables {', '.join(layouts)}"
    layout = layouts[table]
    cells = [(c.measure, {**where, **c.where}) for _, where in layout.rows or (("", {}),) for c in layout.columns]
    specs = [s for s in suite.measures(rows) if (s.measure, dict(s.where)) in cells]
    assert len(specs) == len(cells)
    measures = measure_table(Table.of(rows), specs, model="m", suite="s", signature={})
    assert any(m.value is not None for m in measures)


@pytest.mark.parametrize("config", sorted({config for config, _ in MADE}))
@pytest.mark.usefixtures("published_files")
def test_a_config_of_the_page_passes_what_every_run_checks(config: str) -> None:
    suite = suite_of(config)
    items = list(suite.items())
    assert check_items("suite", suite, some_of(items), are_all=False).mistakes == []


def test_the_page_names_every_table_of_the_papers() -> None:
    """The result tables and figures of the five papers, by what the page's rows begin with."""
    printed = {
        "2212.10678v2": ["Table 3", "Explicit bias", "Implicit bias", "With each debiasing prompt"],
        "2212.10678v1": ["Table 3", "Table 4", "Table 5", "Table 7", "Table 8"],
        "2212.10678v3": ["Table 3", "Table 4", "Table 3, its ±", "Table 4, its ±", "Section 5.4", "Appendix E"],
        "2401.15585": [
            "Table 1",
            "Table 2",
            "Table 3",
            "Tables 4, 5 and 6, BBQ",
            "Tables 4, 5 and 6, BNLI",
            "Tables 7 to 13",
            "Figure 3",
        ],
        "2408.12494": [*(f"Table {i}" for i in range(1, 8)), "Figure 1"],
    }
    for paper, entries in printed.items():
        (section,) = [part for part in PAGE.split("\n## ") if f"arXiv:{paper}" in part.splitlines()[0]]
        starts = [line[2:] for line in section.splitlines() if line.startswith("| ")]
        for entry in entries:
            assert any(start.startswith(entry) for start in starts), (paper, entry)
