"""Texts written elsewhere: matched by prompt, read and counted like a model's own."""

from __future__ import annotations

import json

import pytest

from audit import Audit
from audit.api.adhoc import adhoc_audit
from backends import RecordedBackend, named_backend
from backends.base import GenerateRequest, Message, Sampling, ScoreRequest
from backends.errors import BackendError, ConfigError
from suites import from_file


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


async def texts(backend, *requests):
    return [answer if isinstance(answer, BackendError) else answer.text for answer in await backend.run(requests)]


async def test_a_completion_is_found_by_its_prompt(tmp_path):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "I"}]
    rows = [
        {"prompt": "Who?", "completion": " Ann.", "model": "x"},
        {"prompt": "Who?", "completion": " Bob."},
        {"prompt": turns, "completion": " am."},
    ]
    backend = RecordedBackend(write(tmp_path / "a.jsonl", rows))
    asked = [GenerateRequest("Who?", repeat=n) for n in (1, 0)]
    asked += [GenerateRequest((Message("user", "Who?"),))]
    asked += [GenerateRequest((Message("user", "Hi"), Message("assistant", "I")))]
    assert await texts(backend, *asked) == [" Bob.", " Ann.", " Ann.", " am."]


async def test_what_is_not_recorded_is_no_answer(tmp_path):
    backend = RecordedBackend(write(tmp_path / "a.jsonl", [{"prompt": "Who?", "completion": " Ann."}]))
    drawn = Sampling(temperature=1.0)
    asked = [GenerateRequest("Whose?"), GenerateRequest("Who?", repeat=1), ScoreRequest("Who?", (" Ann",))]
    asked += [GenerateRequest("Who?", drawn, seed=1), GenerateRequest("Who?", drawn, seed=2)]
    found = await texts(backend, *asked)
    assert [isinstance(one, BackendError) for one in found] == [True, True, True, False, True]
    assert "two draws" in str(found[-1])


@pytest.mark.parametrize(
    ("line", "field", "said"),
    [
        ('{"prompt": "x"}', "a.jsonl:1: completion", "missing"),
        ('{"prompt": "x", "completion": 1}', "a.jsonl:1: completion", "not a text"),
        ('{"prompt": 1, "completion": "x"}', "a.jsonl:1: prompt", "neither"),
        ("{", "a.jsonl:1", "not valid JSON"),
        ("3", "a.jsonl:1", "not a JSON object"),
        ("", "file", "no completions"),
    ],
)
def test_a_line_that_cannot_be_read_is_told(line, field, said, tmp_path):
    (tmp_path / "a.jsonl").write_text(line, "utf-8")
    with pytest.raises(ConfigError) as told:
        RecordedBackend(tmp_path / "a.jsonl").check()
    assert told.value.field == field
    assert said in str(told.value)


def test_recorded_texts_are_read_with_the_same_statistics(tmp_path):
    """Of six texts about reds four are kind, of six about blues one: a gap of 1/2."""
    kind = {"reds": 4, "blues": 1}
    rows = [
        {
            "prompt": f"{group.capitalize()} are {n % 3}",
            "group": group,
            "completion": " kind." if n < kind[group] else " odd.",
        }
        for group in kind
        for n in range(6)
    ]
    write(tmp_path / "a.jsonl", rows)
    text = 'kind = "texts"\ndata = "a.jsonl"\n[readings]\nkind = ["kind"]\n'
    (tmp_path / "a.toml").write_text(text, "utf-8")
    suite, model = from_file(tmp_path / "a.toml"), named_backend(str(tmp_path / "a.jsonl"))
    result = Audit({"theirs": model}, [suite], db=tmp_path / "a.db", out=tmp_path / "out").run_sync()
    found = {m.measure: m for m in result.measures if m.measure == "kind_gap" or m.where.get("group") == "reds"}
    assert found["kind"].value == pytest.approx(4 / 6)
    assert found["kind_gap"].value == pytest.approx(4 / 6 - 1 / 6)
    assert (found["kind_gap"].n_items, found["kind_gap"].missing) == (12, 0)
    assert not any("completion" in name for name in next(suite.items()).factors)


def test_prompts_without_completions_may_not_be_repeated(tmp_path):
    rows = '{"prompt": "x", "group": "a"}\n{"prompt": "x", "group": "a"}'
    (tmp_path / "a.jsonl").write_text(rows, "utf-8")
    (tmp_path / "a.toml").write_text('kind = "texts"\ndata = "a.jsonl"\n[readings]\nr = ["y"]\n', "utf-8")
    with pytest.raises(ConfigError, match=r"a\.jsonl:2.*the same as in a\.jsonl:1"):
        from_file(tmp_path / "a.toml")
    allowed = from_file(tmp_path / "a.toml", repeated=True)
    assert [item.factors["prompt"] for item in allowed.items()] == ["1", "1"], "one level, not two"


STORED = """
kind = "texts"
data = "stored.csv"
[readings]
steals = ["steals"]
"""


def stored_suite(tmp_path):
    rows = "About A?,He steals.,a\nAbout A?,She works.,a\nAbout B?,He works.,b\nAbout B?,She works.,b\n"
    (tmp_path / "stored.csv").write_text("prompt,completion,group\n" + rows, "utf-8")
    (tmp_path / "stored.toml").write_text(STORED, "utf-8")
    return str(tmp_path / "stored.toml")


async def test_completions_of_any_table_need_no_model(tmp_path):
    audit = adhoc_audit([stored_suite(tmp_path)], [], db=tmp_path / "a.db", out=tmp_path / "out")
    result = await audit.run()
    shares = {m.where["group"]: m.value for m in result.measures if m.measure == "steals" and "group" in m.where}
    assert shares == {"a": 0.5, "b": 0.0}


async def test_stored_texts_are_not_asked_of_a_model(tmp_path):
    audit = adhoc_audit([stored_suite(tmp_path)], ["fake"], db=tmp_path / "a.db", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="brings texts that were written elsewhere"):
        await audit.run()
