"""What looks alike and is not, or cannot be seen at all: told with file and line, in every kind of file."""

from __future__ import annotations

import json

import pytest

from backends.errors import ConfigError
from suites import from_file

JOBS = 'kind = "templates"\nslot = "job"\ntemplates = ["The [JOB] said that"]\nfillers = ["cook"]\n[groups]\n'
NUL = "\\u0000"


def rows(*groups: object) -> str:
    pairs = ({"stereotype": f"A {n}", "counterpart": "B", "group": group} for n, group in enumerate(groups))
    return "".join(json.dumps(pair) + "\n" for pair in pairs)


CASES = {
    "a zero byte in JSON": (
        "m.jsonl",
        f'{{"stereotype": "A{NUL}", "counterpart": "B"}}',
        "m.jsonl:1: stereotype",
        "'\\x00'",
    ),
    "a sentence nobody can see": (
        "m.jsonl",
        '{"stereotype": "\\u200b", "counterpart": "B"}',
        "m.jsonl:1: stereotype",
        "empty",
    ),
    "a filler's expression twice": (
        "m.toml",
        JOBS.replace('["cook"]', '[{text = "cook", expressions = {men = ["x", "x"]}}]')
        + 'men = ["he"]\nwomen = ["she"]\n',
        "m.toml:4: fillers[0].expressions.men",
        "given twice",
    ),
    "a text beside a number": ("m.jsonl", rows("x", 3), "m.jsonl:2: group", "another level than 'x' in m.jsonl:1"),
    "a truth value beside a number": ("m.jsonl", rows(1, True), "m.jsonl:2: group", "another level than 1"),
    "a space without width": ("m.jsonl", rows("Reds", "Reds\u200b"), "m.jsonl:2: group", "another level than 'Reds'"),
    "two forms of an accent": ("m.jsonl", rows("caf\u00e9", "cafe\u0301"), "m.jsonl:2: group", "another level than"),
    "spaces for a group": ("m.csv", "stereotype,counterpart,group\nA,B,x\nC,D, \n", "m.csv:3: group", "missing"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_looks_alike_or_is_unseen_is_told(case, tmp_path):
    name, text, place, said = CASES[case]
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError) as told:
        from_file(tmp_path / name)
    assert told.value.field.startswith(place)
    assert said in str(told.value)
