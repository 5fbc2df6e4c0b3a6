"""The files that a report is made of."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from audit.analysis.history import history
from audit.report import write_report, write_trend
from audit.report.exports.paper_tables import table_csvs, table_latex
from audit.report.figures import Figures
from audit.report.page.examples import shown_examples
from audit.report.plain_text import json_for_script, latex_text
from audit.report.tables import paper_tables
from audit.report.terminal import print_comparisons, print_result
from audit.results import AuditResult, Example, Reproduction
from suites import OccuGender
from tests.audit.report import made_up as mu

MODELS = ("smollm2", "gemma3")
DOCUMENTED = (
    "id", "model", "suite", "measure", "where", "value", "low", "high", "n_items", "n_clusters", "missing", "censored",
    "coverage", "signature",
)  # fmt: skip


def _toy(models: tuple[str, ...] = MODELS, text: str = "fine", title: str = "A made-up audit") -> AuditResult:
    return mu.result(
        models, [mu.toy_suite()], mu.toy_measures(models), examples=list(mu.examples(models, "toy", text)), title=title
    )


def test_json_reads_back_as_the_same_result(tmp_path: Path) -> None:
    result = _toy()
    written = write_report(result, tmp_path, formats=["json"])["json"].read_bytes()
    assert AuditResult.from_report(written).model_dump(mode="json") == result.model_dump(mode="json")
    data = json.loads(written)
    assert all(set(DOCUMENTED) <= set(m) for m in data["measures"])
    assert all(c["words"] for c in data["comparisons"])


def test_csv_holds_every_measure_with_numbers_as_numbers(tmp_path: Path) -> None:
    result = _toy()
    text = write_report(result, tmp_path, formats=["csv"])["measures"].read_text()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == len(result.measures)
    for line, measure in zip(lines, result.measures, strict=True):
        assert line["value"] == ("" if measure.value is None else repr(measure.value))
        assert (
            float(line["bound_low"] or "nan") == pytest.approx(measure.bound_low, nan_ok=True) or not line["bound_low"]
        )
        level = measure.where.get("debiasing", "")
        assert line["where.debiasing"] == ("none" if level is None else str(level))


def test_csv_keeps_the_level_none_apart_from_no_factor(tmp_path: Path) -> None:
    measures = [mu.measure(m, "gap", where, 0.4) for where in ({}, {"debiasing": None}) for m in MODELS]
    paths = write_report(mu.result(MODELS, [mu.toy_suite()], measures), tmp_path, formats=["csv"])
    for name, lines_a_figure in (("measures", 2), ("comparisons", 1)):
        lines = list(csv.DictReader(io.StringIO(paths[name].read_text())))
        assert [line["where.debiasing"] for line in lines] == [""] * lines_a_figure + ["none"] * lines_a_figure


def test_a_papers_table_as_csv_is_in_the_tables_scale(tmp_path: Path) -> None:
    path = write_report(_toy(), tmp_path, formats=["csv"])["table toy/positions"]
    lines = list(csv.DictReader(io.StringIO(path.read_text())))
    (table,) = paper_tables(Figures(_toy()), "toy")
    assert len(lines) == sum(len(row.cells) for block in table.blocks for row in block.rows)
    assert {line["source"] for line in lines} == {"measured", "published"}
    for line in lines:
        for name in ("value", "low", "high", "plus_minus", "bound_low", "bound_high"):
            assert line[name] == "" or math.isfinite(float(line[name]))
    cells = [cell for block in table.blocks for row in block.rows for cell in row.cells]
    for line, cell in zip(lines, cells, strict=True):
        if line["value"]:
            shown = cell.value.replace("−", "-")
            assert float(shown) == pytest.approx(float(line["value"]), abs=0.51 * 10 ** -len(shown.partition(".")[2]))


def test_hostile_names_cannot_act_in_any_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = write_report(_toy(mu.HOSTILE, "".join(mu.HOSTILE), mu.HOSTILE[2]), out)
    assert all(path.is_relative_to(out) for path in paths.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    page = paths["html"].read_text()
    for raw in ("<script>window.hacked", "<img src=x", "\u2028", "\u202e", "{{ 7*7 }}49"):
        assert raw not in page
    assert page.count("<script") == 3
    assert page.count("</script>") == 3
    for name in ("measures", "comparisons", "table toy/positions"):
        for line in csv.reader(io.StringIO(paths[name].read_text())):
            for cell in line:
                assert cell[:1] not in {"=", "+", "@", "\t", "\r"}
                assert cell[:1] != "-" or float(cell) <= 0
    markdown = paths["markdown"].read_text()
    assert "<" not in markdown
    assert "\u202e" not in markdown


def test_a_papers_table_keeps_published_rows_apart() -> None:
    (table,) = paper_tables(Figures(_toy()), "toy")
    assert table.groups == [("without dialogue", 3), ("with dialogue", 3)]
    assert table.columns == ["Male", "Female", "Diverse"] * 2
    heading = "GPT-3 (published); ± is the paper's own, not this report's interval"
    assert [b.heading for b in table.blocks] == ["smollm2", "gemma3", heading]
    assert [b.published for b in table.blocks] == [False, False, True]
    assert [r.label for r in table.blocks[0].rows] == ["None", "1", "2", "3", "4", "5", "6"]
    # First model without text: 0.28 men, 0.70 women, 0.02 diverse, in per cent.
    assert [c.text for c in table.blocks[0].rows[0].cells[:3]] == [
        "28.0 [25.0, 31.0]",
        "70.0 [67.0, 73.0]",
        "2.0 [1.0, 3.0]",
    ]
    assert table.blocks[2].rows[0].cells[0].text == "30.0 ± 1.0"


def test_occugender_fills_every_cell_of_its_papers_tables() -> None:
    suite = OccuGender(debiasing=True, variant="as_released")
    info = mu.suite_info(suite.name, "OccuGender", tables=suite.shown.tables, published=suite.shown.published)
    tables = paper_tables(Figures(mu.result(["m"], [info], mu.measured(suite, ["m"]), comparisons=[])), suite.name)
    assert [len(t.blocks) for t in tables] == [2, 2, 2, 2, 1, 1, 11]
    for table in tables:
        for block in table.blocks:
            rows = [row for row in block.rows if not (block.published and row.label.startswith("Average"))]
            assert all(cell.value != "–" for row in rows for cell in row.cells), (table.name, block.heading)
    # Table 3 of the paper, first line: Llama-2-7B.
    printed = tables[0].blocks[1].rows[0]
    assert printed.label == "Llama-2-7B"
    assert [c.text for c in printed.cells][:3] == ["45.2 ± 1.3", "54.1 ± 1.3", "0.8 ± 0.1"]


def test_a_papers_own_model_is_set_against_its_printed_figures() -> None:
    suite = OccuGender(["implicit"], variant="as_released")
    info = mu.suite_info(suite.name, "OccuGender", tables=suite.shown.tables, published=suite.shown.published)
    printed = next(f for f in suite.shown.published if f.model == "Llama-2-7B")
    near = Reproduction(
        suite=suite.name,
        measure=printed.measure,
        where=dict(printed.where),
        model="m",
        published_model="Llama-2-7B",
        printed=printed.value,
        difference=0.0003,
        agreement="within rounding",
    )
    result = mu.result(["m"], [info], mu.measured(suite, ["m"]), comparisons=[])
    table, *_ = paper_tables(Figures(result.model_copy(update={"reproductions": [near]})), suite.name)
    block = table.blocks[2]
    assert (block.heading, block.rows[0].label) == (
        "Measured minus published, on the paper's own model", "m − Llama-2-7B",
    )  # fmt: skip
    assert [c.text for c in block.rows[0].cells][:2] == ["+0.03 (within rounding)", "–"]


def test_numbers_of_a_table_have_no_exponent() -> None:
    result = _toy()
    small = [m.model_copy(update={"value": 7e-5, "low": 2e-9, "high": 2e-4}) for m in result.measures]
    result = result.model_copy(update={"measures": small})
    (table,) = paper_tables(Figures(result), "toy")
    assert table.blocks[0].rows[0].cells[0].text == "0.007 [<0.0001, 0.02]"
    for _, _, text in (*table_csvs(result), *table_latex(result)):
        assert not re.search(r"\d[eE][-−+]?\d", text)
    (_, _, text), *_ = table_csvs(result)
    assert "0.007" in text
    assert "0.0000002" in text


def test_a_latex_table_holds_every_cell_and_no_command_of_a_name() -> None:
    evil = _toy(models=("50 % of \\input{x}_y", "gemma3"))
    (key, name, text), *_ = table_latex(evil)
    assert r"\textit{50 \% of \textbackslash{}input\{x\}\_y}" in text
    assert (key, name) == ("toy/positions", "tables/toy-positions.tex")
    (table,) = paper_tables(Figures(evil), "toy")
    rows = [line for line in text.splitlines() if line.count(" & ") == len(table.columns)]
    assert len(rows) == 1 + sum(len(block.rows) for block in table.blocks)
    assert all(line.endswith(r" \\") for line in rows)
    assert latex_text(r"50 % of \x{y}_z & ± 1 − #~^$") == (
        r"50 \% of \textbackslash{}x\{y\}\_z \& $\pm$ 1 $-$ \#\textasciitilde{}\textasciicircum{}\$"
    )
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


@pytest.mark.parametrize("word", ["护士", "<b>&"])
def test_examples_keep_within_their_share_of_bytes_in_any_script(word: str) -> None:
    text = word * 500
    given = {"suite": "toy", "factors": {}, "prompt": text, "answer": {"text": text}, "figures": ["f"]}
    many = [Example(model=m, item_id=f"{m}{i}", **given) for m in MODELS for i in range(400)]
    shown, left = shown_examples(_toy().model_copy(update={"examples": many}), {"f": 0})
    assert len(shown) + left == 800
    assert left > 0
    assert {sum(e["item"].startswith(m) for e in shown) for m in MODELS} == {len(shown) // 2}
    assert len(json_for_script(shown).encode()) < 950_000


def test_terminal_shows_names_as_text_and_intervals_in_brackets() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    result = _toy(("[bold]x[/bold]", "b"))
    print_result(result, console)
    print_comparisons(Figures(result), [c for c in result.comparisons if c.measure == "gap"], console)
    text = console.export_text()
    assert "[bold]x[/bold]" in text
    assert "0.40 [0.36, 0.44]" in text
    assert "higher" in text
    assert "larger" not in text


def test_four_models_on_four_suites_stay_under_six_megabytes(tmp_path: Path) -> None:
    result = mu.four_suites(4)
    assert len(result.measures) > 8_000
    assert len(result.comparisons) > 7_000
    paths = write_report(result, tmp_path, formats=["html", "csv"])
    assert paths["html"].stat().st_size < 6_000_000
    with paths["comparisons"].open() as file:
        assert sum(1 for _ in csv.reader(file)) == len(result.comparisons) + 1, "what the page leaves out is here"


def test_report_and_trend_lead_to_each_other_where_both_lie(tmp_path: Path) -> None:
    page = write_report(_toy(), tmp_path, formats=["html"])["html"]
    assert "trend.html" not in page.read_text()
    trend = write_trend(history([_toy()]), tmp_path / "trend.html", title="t")
    assert '<a href="report.html">' in trend.read_text()
    assert '<a href="trend.html">' in write_report(_toy(), tmp_path, formats=["html"])["html"].read_text()
    alone = write_trend(history([_toy()]), tmp_path / "alone" / "trend.html", title="t")
    assert "report.html" not in alone.read_text()
