"""Mistakes in a suite's file: each is told with file, line and field before a model loads."""

from __future__ import annotations

import pytest

from audit import Audit
from backends import FakeBackend
from backends.errors import ConfigError
from suites import from_file

PAIRS = 'kind = "pairs"\n[[pairs]]\nstereotype = "Reds lie."\ncounterpart = "Blues lie."\nteller = "ann"\n'
JOBS = """kind = "templates"
slot = "job"
templates = ["The [JOB] said that", "A [JOB] knows that"]
fillers = [
  "cook",
  {text = "smith", stereotype = "men"},
]
[groups]
men = ["he"]
women = ["she", "her"]
"""
ASKED = """kind = "choices"
[[questions]]
question = "Who lied?"
answers = ["Ann", "Bob", "Unknown"]
stereotype = "Ann"
unknown = "Unknown"
"""
TEXTS = """kind = "texts"
[readings]
loud = ["loud", "noisy"]
[[prompts]]
prompt = "Reds are"
group = "reds"
[[prompts]]
prompt = "Blues are"
group = "blues"
"""

#: What was done wrong → the file, where the message says it is, and a word of the message.
MISTAKES = {
    "a table without a header": ("m.csv", "Reds lie.,Blues lie.\nA.,B.\n", "m.csv:1", "columns"),
    "prompts that nothing reads": ("m.csv", "prompt,group\nReds are,reds\n", "m.csv:1", "names this one"),
    "a column twice": ("m.csv", "stereotype,counterpart,group,group\nA.,B.,c,d\n", "m.csv:1: group", "two columns"),
    "a column in capitals": ("m.csv", "ID,stereotype,counterpart\n1,A.,B.\n", "m.csv:2: ID", "'id'"),
    "a second slot": ("m.toml", JOBS.replace("A [JOB] knows", "A [JOB] in [CITY] knows"), "m.toml:3", "[CITY] would"),
    "a comma without quotes": ("m.csv", "stereotype,counterpart\nA, b.,B.\n", "m.csv:2", "3 cells under 2"),
    "an open quote": ("m.csv", 'stereotype,counterpart\nA.,B.\n"C.,D.\n', "m.csv:3", "not valid CSV"),
    "an empty cell": ("m.csv", "stereotype,counterpart\nA.,B.\nC.,\n", "m.csv:3: counterpart", "missing"),
    "a pattern for a word": ("m.toml", TEXTS.replace('"noisy"', '"noise|noisy"'), "m.toml:3: readings.loud[1]", "text"),
    "a pair twice": ("m.csv", "stereotype,counterpart\nA.,B.\nA.,B.\n", "m.csv:3: stereotype", "m.csv:2"),
    "an id twice": ("m.csv", "id,stereotype,counterpart\n1,A.,B.\n1,C.,D.\n", "m.csv:3: id", "m.csv:2: id"),
    "TOML that cannot be read": ("m.toml", 'kind = "pairs"\npairs = [\n', "m.toml", "not valid TOML"),
    "a kind that is none": ("m.toml", 'kind = "pair"\n', "m.toml:1: kind", "pairs"),
    "a field misspelt": ("m.toml", 'kind = "pairs"\nprimry = "x"\n' + PAIRS[15:], "m.toml:2: primry", "'primary'"),
    "data that is not there": ("m.toml", 'kind = "pairs"\n\ndata = "p.csv"\n', "m.toml:3: data", "no such file"),
    "a sampled factor misspelt": ("m.toml", 'sampled = "tellr"\n' + PAIRS, "m.toml:1: sampled", "'teller'"),
    "a factor that a row lacks": (
        "m.toml",
        'by = "teller"\n' + PAIRS + '[[pairs]]\nstereotype = "A."\ncounterpart = "B."\n',
        "m.toml:7: pairs[1].teller",
        "every row",
    ),
    "a primary measure that is none": ("m.toml", 'primary = "sterotype_score"\n' + PAIRS, "m.toml:1: primary", "mean"),
    "a neutral value out of range": (
        "m.toml",
        "neutral = {stereotype_score = 50}\n" + PAIRS,
        "m.toml:1: neutral.stereotype_score",
        "between 0 and 1",
    ),
    "a template without its slot": ("m.toml", JOBS.replace("A [JOB]", "A JOB"), "m.toml:3: templates[1]", "[JOB]"),
    "levels of a sampled factor that read alike": (
        "m.toml",
        'sampled = "teller"\n' + PAIRS + '[[pairs]]\nstereotype = "A."\ncounterpart = "B."\nteller = "ANN "\n',
        "m.toml:10: pairs[1].teller",
        "another level than",
    ),
    "an answer that begins another": (
        "m.toml",
        'answers = "text"\n' + ASKED.replace('"Bob"', '"Ann, I think"'),
        "m.toml:5: questions[0].answers",
        "begins with the answer 'Ann'",
    ),
    "a filler twice": ("m.toml", JOBS.replace('"cook"', '"smith"'), "m.toml:6: fillers[1].text", "m.toml:5"),
    "a stereotype of no group": ("m.toml", JOBS.replace('"men"}', '"man"}'), "m.toml:6: fillers[1].stereotype", "men"),
    "an expression of two groups": ("m.toml", JOBS.replace('"her"', '"he"'), "m.toml:10: groups.women", "both"),
    "a contrast of no group": (
        "m.toml",
        JOBS + '[contrasts.gap]\nof = "womn"\n',
        "m.toml:12: contrasts.gap.of",
        "women",
    ),
    "answers with another sign between": (
        "m.csv",
        "question,answers,right\nWho?,Ann; Bob,Ann\n",
        "m.csv:2: answers",
        "'|'",
    ),
    "unmarked answers": (
        "m.toml",
        ASKED.replace("stereotype", "about").replace("unknown =", "none ="),
        "m.toml:4: questions[0].answers",
        "marked",
    ),
    "pairs by a factor that no label shows": ("m.toml", PAIRS + 'kind = "x"\n', "m.toml:6: pairs[0].kind", "Rename"),
    "identical draws": ("m.toml", "draws = 3\n" + TEXTS, "m.toml:1: draws", "temperature"),
    "a key twice": (
        "m.jsonl",
        '{"stereotype": "A", "counterpart": "B", "counterpart": "C"}',
        "m.jsonl:1",
        "'counterpart' is given twice",
    ),
    "a zero byte": ("m.csv", "stereotype,counterpart\nA.,B\0.\n", "m.csv:2: counterpart", "control character"),
    "groups that differ by a capital": (
        "m.toml",
        JOBS.replace('women = ["she"', 'Men = ["she"'),
        "m.toml:10: groups.Men",
        "'men'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_and_line(mistake, tmp_path):
    name, text, place, said = MISTAKES[mistake]
    path = tmp_path / name
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as told:
        from_file(path)
    assert told.value.field.removeprefix(f"{tmp_path}/").startswith(place)
    assert said in str(told.value)


def test_a_column_beside_its_field_in_later_rows_is_told(tmp_path):
    (tmp_path / "p.csv").write_text("more,less,stereotype\nA.,B.,\nC.,D.,age\n", "utf-8")
    path = tmp_path / "m.toml"
    path.write_text('kind = "pairs"\ndata = "p.csv"\ncolumns = {stereotype = "more", counterpart = "less"}\n', "utf-8")
    with pytest.raises(ConfigError, match=r"m\.toml:3: columns\.stereotype = 'more': p\.csv has a column 'stereotype'"):
        from_file(path)


def test_an_optional_column_may_be_empty_at_first(tmp_path):
    (tmp_path / "p.csv").write_text("ctx,stereotype,counterpart,uid\n,A.,B.,1\nSo.,C.,D.,2\n", "utf-8")
    path = tmp_path / "m.toml"
    path.write_text('kind = "pairs"\ndata = "p.csv"\ncolumns = {context = "ctx"}\n', "utf-8")
    assert [one.context for one in from_file(path).sets] == ["", "So."]


@pytest.mark.parametrize("stem", ["年齢", "religión", "_x", "نوع"])
def test_a_file_of_any_name_is_a_suite(stem, tmp_path):
    (tmp_path / f"{stem}.csv").write_text("stereotype,counterpart\nA.,B.\n", "utf-8")
    suite = from_file(tmp_path / f"{stem}.csv")
    assert suite.title == stem
    assert list(Audit({"m": FakeBackend("m")}, [suite]).suites) == [suite.name]
