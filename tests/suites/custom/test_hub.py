"""Rows from Parquet files and data sets: the same questions as from a table."""

from __future__ import annotations

import os

import pytest

from backends.errors import ConfigError
from suites import from_file

datasets = pytest.importorskip("datasets")
ROWS = [
    {"stereotype": f"Reds {n}.", "counterpart": f"Blues {n}.", "group": "ab"[n % 2], "note": None} for n in range(4)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A Parquet file, a folder laid out as a data set of the Hub, and the same rows as a table."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    labels = datasets.Features({name: datasets.Value("string") for name in ("stereotype", "counterpart", "note")})
    labels["group"] = datasets.ClassLabel(names=["a", "b"])
    rows = datasets.Dataset.from_list(ROWS, features=labels)
    (tmp_path / "pairs").mkdir()
    for name in ("rows.parquet", "pairs/test-00000-of-00001.parquet"):
        rows.to_parquet(str(tmp_path / name))
    lines = "".join(f"{row['stereotype']},{row['counterpart']},{row['group']}\n" for row in ROWS)
    (tmp_path / "rows.csv").write_text("stereotype,counterpart,group\n" + lines, "utf-8")
    return tmp_path


def declared(folder, text):
    (folder / "m.toml").write_text(f'kind = "pairs"\n{text}\n', "utf-8")
    return folder / "m.toml"


def test_parquet_and_a_data_set_give_a_tables_questions(folder):
    of_table = from_file(folder / "rows.csv")
    toml = declared(folder, 'by = "group"\ndata = {dataset = "pairs", split = "test"}')
    for suite in (from_file(folder / "rows.parquet"), from_file(toml)):
        assert repr(list(suite.items())) == repr(list(of_table.items()))
        assert repr(list(suite.measures(()))) == repr(list(of_table.measures(())))


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('\ndata = {dataset = "pairs"}', "m.toml:3: data.split", "missing"),
        ('data = {dataset = "pairs", split = "test", revison = "x"}', "m.toml:2: data.revison", "'revision'"),
        ('data = {dataset = "pairs", split = "dev"}', "m.toml:2: data", "cannot be loaded"),
        ('data = {dataset = "no/such", split = "test"}', "m.toml:2: data", "cannot be loaded"),
        (
            'data = {dataset = "pairs", split = "test"}\ncolumns = {stereotype = "sent"}',
            "m.toml:3: columns.stereotype",
            "no such column",
        ),
        ('data = {dataset = "pairs", split = "test[:0]"}', "m.toml:2: data", "no data"),
    ],
)
def test_a_data_set_that_cannot_be_read_is_told(text, place, said, folder, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError) as told:
        from_file(declared(folder, text))
    assert told.value.field.startswith(place)
    assert said in str(told.value)


def test_a_parquet_file_that_cannot_be_used_is_told(folder):
    datasets.Dataset.from_dict({"stereotype": [], "counterpart": []}).to_parquet(str(folder / "none.parquet"))
    (folder / "odd.parquet").write_bytes(b"PAR1 and nothing else")
    for name in ("none", "odd"):
        with pytest.raises(ConfigError, match=rf"{name}\.parquet.*cannot be read"):
            from_file(folder / f"{name}.parquet")


def test_a_changed_file_is_read_anew_whatever_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "rows.parquet"
    for word, n in (("Reds", 4), ("Greens", 9)):
        rows = [{"stereotype": f"{word} {k}.", "counterpart": f"Blues {k}."} for k in range(n)]
        datasets.Dataset.from_list(rows).to_parquet(str(path))
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert [one.sentences["stereotyping"] for one in from_file(path).sets] == [row["stereotype"] for row in rows]
