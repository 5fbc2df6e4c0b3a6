"""Results in Python: files, data frames, items with their texts, and what a notebook shows."""

import asyncio
import json
import stat

import pandas
import polars
import pytest

from audit import Audit, load_result
from audit.store import Store
from backends import FakeBackend, PlantedBias
from backends.errors import ConfigError
from suites import DebiasingPositions, OccuGender

WORDS = OccuGender(("implicit",)).expressions["implicit"]


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    models = {
        "planted": FakeBackend(
            "planted", score=PlantedBias(lambda _: {"female": 0.6, "male": 0.3, "diverse": 0.1}, WORDS)
        ),
        "even": FakeBackend("even"),
    }
    audit = Audit(models, [OccuGender(("implicit",))], db=folder / "a.db", out=folder / "out", limit=100)
    return audit.run_sync()


def test_the_report_is_written_where_the_audit_says(result):
    files = result.write()
    assert files["html"].read_text("utf-8").startswith("<!doctype html>")
    assert files["html"].parent.name == "out"
    assert json.loads(files["json"].read_text("utf-8"))["run_id"] == result.run_id
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}


def test_measures_df_has_a_row_for_each_figure(result):
    frame = result.measures_df()
    assert len(frame) == len(result.measures)
    row = frame[(frame.measure == "stereotype_gap") & (frame.model == "planted") & ~frame.detail].iloc[0]
    measure = next(m for m in result.measures if m.id == row.id)
    assert (row.value, row.low, row.high) == (measure.value, measure.low, measure.high)


def test_measures_df_has_the_columns_of_measures_csv(result, tmp_path):
    result.write(tmp_path, formats=["csv"])
    table = pandas.read_csv(tmp_path / "measures.csv", keep_default_na=False, na_values=[""])
    frame = result.measures_df()
    assert list(frame.columns) == list(table.columns)
    assert set(frame["where.debiasing"].dropna()) == set(table["where.debiasing"].dropna()) == {"none"}
    assert list(map(json.loads, table.levels)) == list(frame.levels)


def test_a_control_is_a_group_and_derived_rows_are_named(tmp_path):
    """None is dropped by groupby without a word, and a difference of two rows is no item."""
    suite = DebiasingPositions()
    audit = Audit({"even": FakeBackend("even")}, [suite], db=tmp_path / "a.db", limit=300, small_sample=True)
    result = audit.run_sync()
    frame = result.items_df()
    (info,) = result.suites
    assert len(frame) == info.n_items
    assert not frame.derived.any()
    assert "none" in frame.groupby("debiasing").stereotype_gap.mean().index
    every = result.items_df(derived=True)
    assert set(every[~every.derived].item) == set(frame.item)
    assert every.derived.sum() > 0
    lines = [json.loads(line) for line in result.write_items(tmp_path / "i.jsonl").read_text("utf-8").splitlines()]
    assert [line["item"] for line in lines] == list(frame.item)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tables_of_items_are_items_df_with_texts(result, tmp_path, ending):
    path = result.write_items(tmp_path / f"items.{ending}")
    table = polars.read_csv(path) if ending == "csv" else polars.read_parquet(path)
    written = pandas.DataFrame(table.to_dict(as_series=False))
    frame = result.items_df()
    assert list(written.columns) == [*frame.columns, "prompt", "answers"]
    assert list(written.item) == list(frame.item)
    assert written.p_female.tolist() == pytest.approx(frame.p_female.tolist(), rel=1e-15, nan_ok=True)
    records = map(json.loads, result.write_items(tmp_path / "items.jsonl").read_text("utf-8").splitlines())
    for record, answers, prompt in zip(records, written.answers, written.prompt, strict=True):
        assert json.loads(answers) == (record["answers"] or [a for one in record["asked"] for a in one["answers"]])
        assert record["prompt"] in (None, prompt)


def test_exported_items_hold_prompts_and_answers(result, tmp_path):
    path = result.write_items(tmp_path / "items.jsonl")
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    asked = [record for record in records if record["answers"]]
    assert len(asked) == 200
    with Store.open(result._db, read_only=True) as store:
        rows = list(store.runs.read_rows(result.run_id, "planted", "OccuGender"))
        stored = store.answers.inspect(rows[0].keys[0])
    first = next(record for record in asked if record["model"] == "planted" and record["item"] == rows[0].row.item_id)
    assert first["prompt"] == stored["prompt"]
    assert first["factors"] == dict(rows[0].row.factors)
    assert [answer["continuation"] for answer in first["answers"]] == stored["asked"][1]
    assert all(answer["exactness"] == "exact" and answer["logprob"] < 0 for answer in first["answers"])


def test_a_stored_result_is_read_again(result):
    again = load_result(result._db)
    assert again.run_id == result.run_id
    assert again.items_df().equals(result.items_df())
    with pytest.raises(ConfigError, match="0 runs match"):
        load_result(result._db, run="nothing")


def test_a_result_is_read_by_its_config_and_written_there(result, tmp_path):
    config = tmp_path / "mine.py"
    config.write_text(
        "from audit import Audit\nfrom backends import FakeBackend\nfrom suites import OccuGender\n"
        f"audit = Audit({{'even': FakeBackend('even')}}, [OccuGender()], "
        f"db={str(result._db)!r}, out={str(tmp_path / 'here')!r})\n"
    )
    again = load_result(config)
    assert again.run_id == result.run_id
    assert again.write(formats=["markdown"])["markdown"].parent == tmp_path / "here"


def test_run_sync_works_where_a_loop_runs(tmp_path):
    audit = Audit({"even": FakeBackend("even")}, [OccuGender(("implicit",))], db=tmp_path / "a.db", limit=100)

    async def cell():
        return audit.run_sync()

    assert asyncio.run(cell()).complete
