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
    "a column misspelt": ("m.csv", "stereotyp,counterpart\nA.,B.\n", "m.csv:1: stereotyp", "'stereotype'"),
    "a column twice": ("m.csv", "stereotype,counterpart,group,group\nA.,B.,c,d\n", "m.csv:1: group", "two columns"),
    "a list as a group": (
        "m.jsonl",
        '{"stereotype": "A.", "counterpart": "B.", "group": ["x"]}\n{"stereotype": "C.", "counterpart": "D."}',
        "m.jsonl:2: group",
        "missing",
    ),
    "a column in capitals": ("m.csv", "ID,stereotype,counterpart\n1,A.,B.\n", "m.csv:2: ID", "'id'"),
    "a group in capitals": ("m.csv", "stereotype,counterpart,Group\nA.,B.,c\n", "m.csv:1: Group", "'group'"),
    "an audit for a suite": ("m.toml", '[models.a]\nbackend = "fake"\n', "m.toml", "holds an audit, not a suite"),
    "a second slot": ("m.toml", JOBS.replace("A [JOB] knows", "A [JOB] in [CITY] knows"), "m.toml:3", "[CITY] would"),
    "a comma without quotes": ("m.csv", "stereotype,counterpart\nA, b.,B.\n", "m.csv:2", "3 cells under 2"),
    "an open quote": ("m.csv", 'stereotype,counterpart\nA.,B.\n"C.,D.\n', "m.csv:3", "not valid CSV"),
    "a spreadsheet's first line": (
        "m.csv",
        "sep=;\nstereotype;counterpart\nA.;B.\n",
        "m.csv:1",
        "Delete",
    ),
    "an empty cell": ("m.csv", "stereotype,counterpart\nA.,B.\nC.,\n", "m.csv:3: counterpart", "missing"),
    "a column of empty cells": ("m.csv", "stereotype,counterpart\nA.,\n", "m.csv:2: counterpart", "missing"),
    "a sign for lost text": (
        "m.jsonl",
        '{"stereotype": "A\\ufffd", "counterpart": "B"}',
        "m.jsonl:1: stereotype",
        "control",
    ),
    "stored completions alone": (
        "m.jsonl",
        '{"prompt": "A", "group": "b", "completion": "c"}',
        "m.jsonl:1",
        'kind = "texts"',
    ),
    "one prompt for two groups": ("m.toml", TEXTS.replace("Blues", "Reds"), "m.toml:8", "already asked"),
    "a pattern for a word": ("m.toml", TEXTS.replace('"noisy"', '"noise|noisy"'), "m.toml:3: readings.loud[1]", "text"),
    "a space after a sentence": ("m.csv", "stereotype,counterpart\nA. ,B.\n", "m.csv:2: stereotype", "spaces"),
    "two sentences alike": ("m.csv", "stereotype,counterpart\nA.,A.\n", "m.csv:2: counterpart", "the same"),
    "a pair twice": ("m.csv", "stereotype,counterpart\nA.,B.\nA.,B.\n", "m.csv:3: stereotype", "m.csv:2"),
    "an id twice": ("m.csv", "id,stereotype,counterpart\n1,A.,B.\n1,C.,D.\n", "m.csv:3: id", "m.csv:2: id"),
    "a table without rows": ("m.csv", "stereotype,counterpart\n", "m.csv", "no rows"),
    "another encoding": ("m.csv", "stereotype,counterpart\nA.,B\xe9.\n", "m.csv:2", "UTF-8"),
    "a file of another kind": ("m.xlsx", "x", "m.xlsx", ".jsonl"),
    "a line that is no JSON": (
        "m.jsonl",
        '{"stereotype": "A", "counterpart": "B"}\n{"ste',
        "m.jsonl:2",
        "not valid JSON",
    ),
    "a number for a sentence": ("m.jsonl", '{"stereotype": 1, "counterpart": "B"}', "m.jsonl:1: stereotype", "text"),
    "TOML that cannot be read": ("m.toml", 'kind = "pairs"\npairs = [\n', "m.toml", "not valid TOML"),
    "no kind": ("m.toml", 'name = "x"\n', "m.toml: kind", "Use one of"),
    "a kind that is none": ("m.toml", 'kind = "pair"\n', "m.toml:1: kind", "pairs"),
    "a field misspelt": ("m.toml", 'kind = "pairs"\nprimry = "x"\n' + PAIRS[15:], "m.toml:2: primry", "'primary'"),
    "no rows": ("m.toml", 'kind = "pairs"\n', "m.toml", "has no pairs"),
    "data that is not there": ("m.toml", 'kind = "pairs"\n\ndata = "p.csv"\n', "m.toml:3: data", "no such file"),
    "a sampled factor misspelt": ("m.toml", 'sampled = "tellr"\n' + PAIRS, "m.toml:1: sampled", "'teller'"),
    "a factor that a row lacks": (
        "m.toml",
        'by = "teller"\n' + PAIRS + '[[pairs]]\nstereotype = "A."\ncounterpart = "B."\n',
        "m.toml:7: pairs[1].teller",
        "every row",
    ),
    "a stratum of one level": ("m.toml", 'stratum = "teller"\n' + PAIRS, "m.toml:1: stratum", "one level"),
    "a primary measure that is none": ("m.toml", 'primary = "sterotype_score"\n' + PAIRS, "m.toml:1: primary", "mean"),
    "a neutral value out of range": (
        "m.toml",
        "neutral = {stereotype_score = 50}\n" + PAIRS,
        "m.toml:1: neutral.stereotype_score",
        "between 0 and 1",
    ),
    "a template without its slot": ("m.toml", JOBS.replace("A [JOB]", "A JOB"), "m.toml:3: templates[1]", "[JOB]"),
    "a number for a template": (
        "m.toml",
        JOBS.replace('"A [JOB]', '3, "A [JOB]'),
        "m.toml:3: templates[1]",
        "in quotes",
    ),
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
    "a template that ends in a space": (
        "m.toml",
        JOBS.replace("said that", "said "),
        "m.toml:3: templates[0]",
        "space",
    ),
    "a filler twice": ("m.toml", JOBS.replace('"cook"', '"smith"'), "m.toml:6: fillers[1].text", "m.toml:5"),
    "a stereotype of no group": ("m.toml", JOBS.replace('"men"}', '"man"}'), "m.toml:6: fillers[1].stereotype", "men"),
    "one group": ("m.toml", JOBS.replace('men = ["he"]\nwo', "wo"), "m.toml:8: groups", "at least 2"),
    "a group without expressions": ("m.toml", JOBS.replace('["he"]', "[]"), "m.toml:9: groups.men", "one or more"),
    "an expression of two groups": ("m.toml", JOBS.replace('"her"', '"he"'), "m.toml:10: groups.women", "both"),
    "an expression that another begins": ("m.toml", JOBS.replace('"her"', '"he who"'), "m.toml:10: groups.women", "he"),
    "a contrast of no group": (
        "m.toml",
        JOBS + '[contrasts.gap]\nof = "womn"\n',
        "m.toml:12: contrasts.gap.of",
        "women",
    ),
    "weights that are no contrast": (
        "m.toml",
        JOBS + "[contrasts.gap]\nweights = {men = 1, women = 1}\n",
        "m.toml:12: contrasts.gap.weights",
        "add up to 0",
    ),
    "a template twice": (
        "m.toml",
        JOBS.replace("A [JOB] knows that", "The [JOB] said that"),
        "m.toml:3",
        "the same as",
    ),
    "a pair turned round": ("m.csv", "stereotype,counterpart\nA.,B.\nB.,A.\n", "m.csv:3: stereotype", "m.csv:2"),
    "stereotypes of one group": ("m.toml", 'stereotypes = "men"\n' + JOBS, "m.toml:1: stereotypes", "one group"),
    "weights without a stratum": ("m.toml", 'weights = "equal"\n' + PAIRS, "m.toml:1: weights", "no stratum"),
    "a word that runs into the prompt": ("m.toml", 'separator = ""\n' + JOBS, "m.toml:10: groups.men", "runs into"),
    "a list for an attribute": (
        "m.toml",
        JOBS.replace('["he"]', '{words = ["he"]}'),
        "m.toml:9: groups.men.words",
        "no such field",
    ),
    "answers with another sign between": (
        "m.csv",
        "question,answers,right\nWho?,Ann; Bob,Ann\n",
        "m.csv:2: answers",
        "'|'",
    ),
    "a question twice": (
        "m.csv",
        "question,answers,right\nWho?,Ann | Bob,Ann\nWho?,Bob | Ann,Bob\n",
        "m.csv:3: question",
        "m.csv:2",
    ),
    "a prompt twice": (
        "m.toml",
        TEXTS.replace("Blues are", "Reds are").replace('"blues"', '"reds"'),
        "m.toml:8",
        "already asked",
    ),
    "a form without its question": ("m.toml", 'form = "Q: {start}"\n' + JOBS, "m.toml:1: form", "{question}"),
    "an expression of a filler twice": (
        "m.toml",
        JOBS.replace('"men"}', '"men", expressions = {women = ["he"]}}'),
        "m.toml:6: fillers[1].expressions.women",
        "also an expression of 'men'",
    ),
    "an expression in another form of its accent": (
        "m.toml",
        JOBS.replace('["he"]', '["caf\\u00e9"]').replace('"she", "her"', '"cafe\\u0301"'),
        "m.toml:10: groups.women",
        "also an expression of 'men'",
    ),
    "an answer that is not listed": (
        "m.toml",
        ASKED.replace('= "Ann"', '= "Anne"'),
        "m.toml:5: questions[0].stereotype",
        "'Ann'",
    ),
    "one answer": ("m.toml", ASKED.replace(', "Bob", "Unknown"', ""), "m.toml:4: questions[0].answers", "two or more"),
    "unmarked answers": (
        "m.toml",
        ASKED.replace("stereotype", "about").replace("unknown =", "none ="),
        "m.toml:4: questions[0].answers",
        "marked",
    ),
    "a factor with a reserved name": ("m.toml", TEXTS + 'draw = "x"\n', "m.toml:10: prompts[1].draw", "Rename"),
    "pairs by a factor that no label shows": ("m.toml", PAIRS + 'kind = "x"\n', "m.toml:6: pairs[0].kind", "Rename"),
    "texts that nothing reads": (
        "m.toml",
        TEXTS.replace("[readings]\nloud", "[other]\nloud"),
        "m.toml:2: other",
        "field",
    ),
    "a reading with a reserved name": (
        "m.toml",
        TEXTS.replace("loud =", "empty ="),
        "m.toml:3: readings.empty",
        "reserved",
    ),
    "identical draws": ("m.toml", "draws = 3\n" + TEXTS, "m.toml:1: draws", "temperature"),
    "a group without a name": (
        "m.csv",
        "stereotype,counterpart,group\nA.,B.,x\nC.,D.,\nE.,F.,y\n",
        "m.csv:3: group",
        "other rows",
    ),
    "a group with a space": (
        "m.csv",
        "stereotype,counterpart,group\nA.,B.,x\nC.,D.,y\nE.,F.,x \n",
        "m.csv:4: group",
        "m.csv:2: group",
    ),
    "a group in two spellings": (
        "m.csv",
        "stereotype,counterpart,group\nA.,B.,Jewish\nC.,D.,jewish\n",
        "m.csv:3: group",
        "'Jewish'",
    ),
    "a text and a number for a level": (
        "m.jsonl",
        '{"stereotype": "A", "counterpart": "B", "group": 1}\n{"stereotype": "C", "counterpart": "D", "group": "1"}',
        "m.jsonl:2: group",
        "m.jsonl:1",
    ),
    "a key twice": (
        "m.jsonl",
        '{"stereotype": "A", "counterpart": "B", "counterpart": "C"}',
        "m.jsonl:1",
        "'counterpart' is given twice",
    ),
    "a zero byte": ("m.csv", "stereotype,counterpart\nA.,B\0.\n", "m.csv:2", "zero byte"),
    "a filler with another's name for its id": (
        "m.toml",
        JOBS.replace('{text = "smith"', '{id = "cook", text = "smith"'),
        "m.toml:6: fillers[1].id",
        "'1/cook'",
    ),
    "a column much like a field": (
        "m.csv",
        "stereotype,counterpart,contexts\nA.,B.,x\n",
        "m.csv:2: contexts",
        "If not, rename it",
    ),
    "a slot with a reserved name": (
        "m.toml",
        JOBS.replace('"job"', '"template"').replace("[JOB]", "[TEMPLATE]"),
        "m.toml:2: slot",
        "reserved",
    ),
    "groups that differ by a capital": (
        "m.toml",
        JOBS.replace('women = ["she"', 'Men = ["she"'),
        "m.toml:10: groups.Men",
        "'men'",
    ),
    "groups of prompts that differ by a capital": ("m.toml", TEXTS.replace('"blues"', '"Reds"'), "m.toml:9", "'reds'"),
    "figures of the groups twice": ("m.toml", 'by = "group"\n' + TEXTS, "m.toml:1: by", "group"),
    "a scorer that is none": (
        "m.toml",
        TEXTS + '[scorers]\ntoxicity = "profanty"\n',
        "m.toml:11: scorers.toxicity",
        "profanity",
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


@pytest.mark.parametrize("text", [PAIRS, JOBS, ASKED, TEXTS])
def test_the_same_without_the_mistake_is_a_suite(text, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(text, "utf-8")
    assert sum(not item.is_control for item in from_file(path).items()) in (1, 2, 4)


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


def test_names_without_latin_letters_differ(tmp_path):
    for stem in ("年齢", "国籍"):
        (tmp_path / f"{stem}.csv").write_text("stereotype,counterpart\nA.,B.\n", "utf-8")
    assert from_file(tmp_path / "年齢.csv").name != from_file(tmp_path / "国籍.csv").name


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("stereotype,counterpart\nCaf\u00e9.,Cafe\u0301.\n", "2: counterpart.*the same as the stereotype"),
        ("stereotype,counterpart\nCaf\u00e9.,B.\nCafe\u0301.,B.\n", "3: stereotype.*the same two sentences"),
        ("question,answers,right\nCaf\u00e9?,a|b,a\nCafe\u0301?,a|b,a\n", "3: question.*already asked"),
    ],
)
def test_texts_in_another_normal_form_are_the_same(rows, said, tmp_path):
    (tmp_path / "p.csv").write_text(rows, "utf-8")
    with pytest.raises(ConfigError, match=said):
        from_file(tmp_path / "p.csv")


def test_a_misspelt_field_of_columns_is_told_at_its_place(tmp_path):
    (tmp_path / "data.csv").write_text("stereotype,counterpart\nA b.,A c.\n", "utf-8")
    columns = 'kind = "pairs"\ndata = "data.csv"\ncolumns = {sterotype = "stereotype"}\n'
    (tmp_path / "m.toml").write_text(columns, "utf-8")
    with pytest.raises(ConfigError, match=r"m\.toml:3: columns\.sterotype .*'stereotype'"):
        from_file(tmp_path / "m.toml")


def test_a_list_as_a_group_is_told_with_its_line(tmp_path):
    rows = [f'{{"stereotype": "A {n}.", "counterpart": "B {n}.", "group": "x"}}' for n in range(3)]
    (tmp_path / "m.jsonl").write_text("\n".join([*rows, rows[0].replace('"x"', '["x"]').replace("0", "9")]), "utf-8")
    with pytest.raises(ConfigError, match=r"m\.jsonl:4: group"):
        from_file(tmp_path / "m.jsonl")


def test_sentences_without_a_common_word_are_named(tmp_path):
    rows = "My Sikh neighbour sings.,It rained.\nReds lie.,Blues lie.\n一个医生,一个护士\n"
    (tmp_path / "m.csv").write_text(f"stereotype,counterpart\n{rows}", "utf-8")
    (said,) = [one for one in from_file(tmp_path / "m.csv").cautions() if "common word" in one]
    assert said.endswith("than the group: 1.")


def test_sentences_that_look_alike_are_the_same(tmp_path):
    (tmp_path / "m.csv").write_text("stereotype,counterpart\nA b.,A\u200b b.\n", "utf-8")
    with pytest.raises(ConfigError, match=r"m\.csv:2: counterpart .* the same as the stereotype"):
        from_file(tmp_path / "m.csv")
