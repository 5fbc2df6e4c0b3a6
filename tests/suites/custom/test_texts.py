"""Texts from a file: read by expressions, compared between groups."""

from __future__ import annotations

import pytest

from audit import Audit
from backends import RecordedBackend
from backends.errors import ConfigError
from suites import from_file
from tests.suites.benchmarks.invented import figures, value

PROMPTS = "prompt,group,trade\n" + "".join(
    f"{group.capitalize()} at the {trade} are,{group},{trade}\n"
    for group in ("reds", "blues", "greens")
    for trade in ("mill", "farm")
)
HEAD = """
kind = "texts"
data = "p.csv"
[readings]
loud = ["loud", "a noise"]
[contrasts.reds_against_blues]
of = "reds"
against = "blues"
[contrasts.reds_against_all]
of = "reds"
"""


def suite_of(tmp_path, head=HEAD, prompts=PROMPTS):
    (tmp_path / "p.csv").write_text(prompts, "utf-8")
    (tmp_path / "t.toml").write_text(head, "utf-8")
    return from_file(tmp_path / "t.toml")


def write(prompt):
    return {
        "Reds at the mill are": "LOUD.",
        "Reds at the farm are": "a noise",
        "Greens at the farm are": "so loud",
    }.get(prompt, "louder clouds")


def test_readings_equal_a_hand_computation(tmp_path):
    found = figures(suite_of(tmp_path), lambda prompt, text: 0.0, write)
    assert [value(found, "loud", kind="text", group=g) for g in ("reds", "blues", "greens")] == [1, 0, 0.5]
    where = {"kind": "reds_against_blues", "scorer": "text"}
    assert value(found, "loud_reds_against_blues", **where) == pytest.approx(1)
    where = {"kind": "reds_against_all", "scorer": "text"}
    assert value(found, "loud_reds_against_all", **where) == pytest.approx(1 - 0.25)


def test_groups_of_texts_are_chosen_by_attributes(tmp_path):
    of = 'of = {trade = "mill", colour = "warm"}'
    groups = '[groups]\nreds = {colour = "warm", trade = "mill"}\nblues = {colour = "cold", trade = "mill"}\n'
    suite = suite_of(tmp_path, f"{HEAD}[contrasts.warm_mills]\n{of}\n{groups}")
    found = figures(suite, lambda prompt, text: 0.0, write)
    where = {"kind": "warm_mills", "scorer": "text"}
    assert value(found, "loud_warm_mills", **where) == pytest.approx(1 - 0.25)
    with pytest.raises(ConfigError, match=r"t\.toml:\d+: groups\.red.*no prompt"):
        suite_of(tmp_path, HEAD + "[groups]\nred = {}\n")


def test_planted_bias_raises_a_reading_for_one_side_of_the_first_contrast(tmp_path):
    suite, shares = suite_of(tmp_path), {}
    for item in suite.items():
        shares[item.factors["group"]] = sum("loud" in suite.planted(item, 0.8, draw).text for draw in range(60)) / 60
    assert 0.9 > shares["reds"] > 0.5 > 0.45 > shares["greens"] > 0.15 > 0.1 > shares["blues"]


def test_an_empty_text_is_missing_not_no(tmp_path):
    found = figures(suite_of(tmp_path), lambda prompt, text: 0.0, lambda prompt: "loud" if "mill" in prompt else " ")
    figure = found["loud", (("group", "reds"), ("kind", "text"))]
    assert (figure.value, figure.n_items, figure.missing) == (1.0, 1, 1)


@pytest.mark.parametrize(
    ("reading", "text", "found"),
    [
        ("नर", "वह नर्स है", 0),  # a mark follows: inside a longer word
        ("नर्स", "वह नर्स है", 1),
        ("caf\u00e9", "a cafe\u0301 there", 1),
        ("cafe", "a cafe\u0301 there", 0),
        ("man", "the woman and the man.", 1),
        ("poor", "a _poor_ and **rich** man", 1),
        ("non-binary", "a non\u2011binary person", 1),
        ("فقير", "رجل فَقِير", 1),
        ("می", "می\u200cروم", 0),
        ("hırsız", "HIRSIZ adam", 1),
    ],
)
def test_words_end_where_readers_end_them(tmp_path, reading, text, found):
    head = HEAD.replace('["loud", "a noise"]', f'["{reading}"]')
    seen = figures(suite_of(tmp_path, head), lambda prompt, _: 0.0, lambda prompt: text)
    assert value(seen, "loud", kind="text", group="reds") == found


def test_missing_texts_bound_a_contrast_by_hand(tmp_path):
    rows = "".join(f"Number {i} of {group} is,{group}\n" for i in range(40) for group in ("reds", "blues"))
    head = HEAD.partition("[contrasts")[0]
    silent = {f"Number {i} of reds is" for i in range(8)}

    def say(prompt):
        return "" if prompt in silent else "loud" if "reds" in prompt else "calm"

    found = figures(suite_of(tmp_path, head, f"prompt,group\n{rows}"), lambda prompt, _: 0.0, say)
    (gap,) = [figure for (measure, _), figure in found.items() if measure == "loud_gap"]
    sign = 1 if gap.value > 0 else -1
    assert gap.value == sign
    assert sorted(abs(end) for end in (gap.bound_low, gap.bound_high)) == pytest.approx([32 / 40, 1.0])
    assert -1 <= gap.low <= gap.high <= 1


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("own.csv", 'prompt,group,completion\nReds are,reds,loud\nBlues are,blues,""\n'),
        (
            "own.jsonl",
            '{"prompt": "Reds are", "group": "reds", "completion": "loud"}\n'
            '{"prompt": "Blues are", "group": "blues"}\n',
        ),
    ],
)
def test_a_stored_completion_that_is_empty_is_missing(name, rows, tmp_path):
    (tmp_path / name).write_text(rows, "utf-8")
    head = f'kind = "texts"\ndata = "{name}"\n[readings]\nloud = ["loud"]\n'
    (tmp_path / "own.toml").write_text(head, "utf-8")
    suite = from_file(tmp_path / "own.toml")
    assert suite.recorded == [("Reds are", "loud"), ("Blues are", "")]
    assert "1 of 2 stored completions are empty: these answers are missing." in suite.shown.cautions
    model = RecordedBackend(tmp_path / "own.toml", completions=suite.recorded)
    result = Audit({"m": model}, [suite], db=tmp_path / "a.db", out=tmp_path / "out", small_sample=True).run_sync()
    (blues,) = [one for one in result.measures if (one.measure, one.where.get("group")) == ("loud", "blues")]
    assert (blues.value, blues.missing) == (None, 1)
