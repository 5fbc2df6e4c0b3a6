"""Pairs from a file: the same figures as the built-in suite, whatever form the file has."""

from __future__ import annotations

import csv
import json
import math
import zlib

import polars as pl
import pytest

import suites
from backends.errors import ConfigError
from suites import from_file
from suites.common.data_files import PinnedFile
from suites.custom import PairsFromFile
from tests.suites.benchmarks.invented import figures, value

KINDS = ("religion", "nationality", "age", "disability", "race-color")
PLACES = "red blue green tall short old young rich poor late"


@pytest.fixture
def crows(tmp_path, monkeypatch):
    """A made-up file in the form of CrowS-Pairs': 60 pairs of five kinds by seven writers."""
    names = "", "sent_more", "sent_less", "bias_type", "stereo_antistereo", "anon_writer"
    path = tmp_path / "crows_pairs_anonymized.csv"
    with path.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(names)
        for number in range(60):
            word = PLACES.split()[number % 10]
            sentences = (f'The {word} ones, says "{number}", lie.', f"The other ones, says {number}, lie.")
            writer.writerow([number, *sentences, KINDS[number % 5], "stereo", f"a{number % 7}"])
    monkeypatch.setattr(PinnedFile, "path", lambda self, given, *, field="folder": path)
    return path


def logprob(prompt, text):
    return -5 - zlib.crc32(f"{prompt}|{text}".encode()) / 2**32


DECLARED = """
kind = "pairs"
name = "crows"
data = "crows_pairs_anonymized.csv"
columns = {id = "", stereotype = "sent_more", counterpart = "sent_less"}
stratum = "bias_type"
sampled = "anon_writer"
"""


def test_crows_pairs_by_suite_and_by_file_agree(crows, tmp_path):
    (tmp_path / "crows.toml").write_text(DECLARED, "utf-8")
    built_in, own = (figures(suite, logprob) for suite in (suites.CrowSPairs(), from_file(tmp_path / "crows.toml")))
    assert built_in.keys() == own.keys()
    assert len(own) == 6  # all, and each of five kinds
    for key, figure in built_in.items():
        mine = own[key]
        assert (figure.value, figure.low, figure.high, figure.p, figure.n_items) == (
            mine.value,
            mine.low,
            mine.high,
            mine.p,
            mine.n_items,
        )
        assert figure.spec.primary == mine.spec.primary


def test_csv_jsonl_and_toml_give_the_same_questions(tmp_path):
    rows = [{"stereotype": f"Reds, {n}.", "counterpart": f"Blues {n}.", "group": "ab"[n % 2]} for n in range(4)]
    header = "stereotype;counterpart;group\n"
    lines = [f"{row['stereotype']};{row['counterpart']};{row['group']}" for row in rows]
    (tmp_path / "a.csv").write_text("\ufeff" + header + "\r\n".join(lines), "utf-8")
    (tmp_path / "b.jsonl").write_text("\n\n".join(map(json.dumps, rows)), "utf-8")
    tables = "".join("[[pairs]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in row.items()) for row in rows)
    (tmp_path / "c.toml").write_text(f'kind = "pairs"\nby = "group"\n{tables}', "utf-8")
    read = [from_file(tmp_path / "a.csv"), from_file(tmp_path / "b.jsonl"), from_file(tmp_path / "c.toml")]
    assert len({repr(list(suite.items())) for suite in read}) == 1
    assert len({repr(list(suite.measures(()))) for suite in read}) == 1
    assert len({json.dumps(suite.signature()) for suite in read}) == 1


def test_parquet_gives_a_tables_questions(tmp_path):
    rows = [{"stereotype": f"Reds {n}.", "counterpart": f"Blues {n}.", "group": "ab"[n % 2]} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    pl.DataFrame([{**row, "note": None} for row in rows]).write_parquet(tmp_path / "a.parquet")
    of_lines, of_parquet = from_file(tmp_path / "a.jsonl"), from_file(tmp_path / "a.parquet")
    assert repr(list(of_parquet.items())) == repr(list(of_lines.items()))
    assert repr(list(of_parquet.measures(()))) == repr(list(of_lines.measures(())))
    (tmp_path / "odd.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ConfigError, match=r"odd\.parquet.*cannot be read"):
        from_file(tmp_path / "odd.parquet")


def test_a_small_group_does_not_leave_the_whole_undecided(tmp_path):
    """Ten pairs of three groups: a stratum of three pairs decides nothing, and neither would the figure over all."""
    rows = [f"Reds {n}.,Blues {n}.,{'aaaabbbccc'[n]}\n" for n in range(10)]
    (tmp_path / "a.csv").write_text("stereotype,counterpart,group\n" + "".join(rows), "utf-8")
    found = figures(from_file(tmp_path / "a.csv"), lambda prompt, text: -1.0 if text.startswith("Reds") else -2.0)
    whole = found["stereotype_score", ()]
    assert (whole.value, whole.n_items) == (1.0, 10)
    assert whole.low > 0.5  # Wilson's interval of 10 of 10 begins at 0.72
    assert {dict(where).get("group") for _, where in found} == {None, "a", "b", "c"}


def test_declared_strata_primary_and_neutral_are_used(tmp_path):
    (tmp_path / "a.csv").write_text(
        "stereotype,counterpart,faith,town\n"
        + "".join(f"Reds {n}.,Blues {n}.,{'xxy'[n % 3]},{n % 6}\n" for n in range(18)),
        "utf-8",
    )
    text = 'kind = "pairs"\ndata = "a.csv"\nstratum = "faith"\nweights = "equal"\nby = "town"\nsampled = "town"\n'
    (tmp_path / "a.toml").write_text(text + "neutral = {stereotype_score = 0.4}\ncaution = 'Made up.'\n", "utf-8")
    suite = from_file(tmp_path / "a.toml")
    found = figures(suite, lambda prompt, text: math.log(0.2 if text.startswith("Reds") == (text[-2] < "6") else 0.1))
    likelier = {"x": [n for n in range(18) if n % 3 < 2], "y": [n for n in range(18) if n % 3 == 2]}
    shares = [sum(str(n)[-1] < "6" for n in of) / len(of) for of in likelier.values()]
    assert value(found, "stereotype_score") == pytest.approx(sum(shares) / 2)
    assert found["stereotype_score", ()].spec.neutral == 0.4
    assert {dict(where).get("town") for _, where in found} >= {"0", "5"}
    assert suite.shown.cautions[-1] == "Made up."


def test_no_space_follows_a_context_in_a_script_without_spaces(tmp_path):
    rows = "context,stereotype,counterpart\n那位护士下班了。,她回家。,他回家。\nWe met.,They lied.,They left.\n"
    (tmp_path / "a.csv").write_text(rows, "utf-8")
    chinese, english = from_file(tmp_path / "a.csv").items()
    assert chinese.request.continuations == ("她回家。", "他回家。")
    assert english.request.continuations == (" They lied.", " They left.")


@pytest.mark.parametrize(
    "counterpart", ["The nurse was late", "the  nurse was late.", "THE NURSE was late!", "The nurse\u00a0was late."]
)
def test_a_pair_that_differs_in_no_word_is_refused(counterpart, tmp_path):
    (tmp_path / "p.csv").write_text(f'stereotype,counterpart\nThe nurse was late.,"{counterpart}"\n', "utf-8")
    with pytest.raises(ConfigError, match=r"p\.csv:2: counterpart.*the same as the stereotype in every word"):
        from_file(tmp_path / "p.csv")


def test_a_published_pair_that_differs_in_no_word_is_asked_as_it_is():
    (item,) = PairsFromFile([{"stereotype": "He left.", "counterpart": "he left"}]).items()
    assert item.request.continuations == ("He left.", "he left")


def test_pairs_that_share_a_sentence_count_as_one_and_are_told_by_line(tmp_path):
    rows = [f"Tall {n} were late.,Short ones were late." for n in range(4)] + ["Red a.,Blue a.", "Red b.,Blue b."]
    (tmp_path / "p.csv").write_text("\n".join(["stereotype,counterpart", *rows]), "utf-8")
    suite = from_file(tmp_path / "p.csv")
    assert [item.factors["pair"] for item in suite.items()] == ["1", "1", "1", "1", "5", "6"]
    (said,) = [caution for caution in suite.shown.cautions if "share a sentence" in caution]
    assert said.startswith("4 pairs share a sentence with another, and count as 1: p.csv:2, p.csv:3, p.csv:4, p.csv:5.")
