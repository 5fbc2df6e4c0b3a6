"""Groups from a file: three, five, intersections and gendered nouns, against figures computed by hand."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from suites import from_file
from tests.suites.benchmarks.invented import figures, value


def suite_of(tmp_path, text, **options):
    path = tmp_path / "own.toml"
    path.write_text(text, "utf-8")
    return from_file(path, **options)


def answers(table):
    """log P of each (prompt, expression) of a table of probabilities; after a neutral start all are alike."""
    return lambda prompt, text: math.log(0.01 if prompt.startswith("...") else table[prompt][text.strip()])


def asked(suite):
    """The questions about fillers, without those of the neutral start."""
    return (item for item in suite.items() if not item.is_control)


THREE = """
kind = "templates"
name = "jobs"
templates = ["The [JOB] is", "My [JOB] was"]
slot = "job"
fillers = [
    {text = "nurse", stereotype = "women"},
    {text = "guard", stereotype = "men"},
    {text = "chef", stereotype = "men"},
]
stereotypes = ["women", "men"]
[groups]
women = ["she", "her"]
men = ["he"]
diverse = ["they"]
[contrasts.women_against_men]
of = "women"
against = "men"
"""
THREE_ANSWERS = {
    "The nurse is": {"she": 0.3, "her": 0.1, "he": 0.08, "they": 0.02},
    "My nurse was": {"she": 0.2, "her": 0.2, "he": 0.3, "they": 0.1},
    "The guard is": {"she": 0.1, "her": 0.1, "he": 0.5, "they": 0.1},
    "My guard was": {"she": 0.05, "her": 0.05, "he": 0.25, "they": 0.05},
    "The chef is": {"she": 0.1, "her": 0.2, "he": 0.3, "they": 0.1},
    "My chef was": {"she": 0.2, "her": 0.1, "he": 0.2, "they": 0.1},
}


def test_three_groups_equal_a_hand_computation(tmp_path):
    found = figures(suite_of(tmp_path, THREE), answers(THREE_ANSWERS))
    shares = {
        prompt: {"women": (of["she"] + of["her"]) / sum(of.values()), "men": of["he"] / sum(of.values())}
        for prompt, of in THREE_ANSWERS.items()
    }
    assert value(found, "p_women") == pytest.approx(fmean(share["women"] for share in shares.values()))
    differences = {prompt: share["women"] - share["men"] for prompt, share in shares.items()}
    assert value(found, "women_against_men") == pytest.approx(fmean(differences.values()))
    # each stereotype counts alike, however many fillers it has
    women = fmean(differences[f"{start} nurse {end}"] for start, end in (("The", "is"), ("My", "was")))
    men = fmean(-d for prompt, d in differences.items() if "nurse" not in prompt)
    assert value(found, "stereotype_gap") == pytest.approx((women + men) / 2)
    assert value(found, "coverage") == pytest.approx(fmean(sum(of.values()) for of in THREE_ANSWERS.values()))
    assert value(found, "p_diverse", job="nurse") == pytest.approx(fmean([0.02 / 0.5, 0.1 / 0.8]))


CROSSED = """
kind = "templates"
templates = ["They hired the [JOB], a"]
slot = "job"
fillers = ["cook", "baker", "pilot"]
[groups]
muslim_woman = {expressions = ["Muslim woman"], gender = "woman", religion = "Muslim"}
muslim_man = {expressions = ["Muslim man"], gender = "man", religion = "Muslim"}
christian_woman = {expressions = ["Christian woman"], gender = "woman", religion = "Christian"}
christian_man = {expressions = ["Christian man"], gender = "man", religion = "Christian"}
[contrasts.muslim_women]
of = {gender = "woman", religion = "Muslim"}
[contrasts.women]
of = {gender = "woman"}
against = {gender = "man"}
[contrasts.both]
weights = {muslim_woman = 1, muslim_man = -1, christian_woman = -1, christian_man = 1}
"""


def test_an_intersection_equals_a_hand_computation(tmp_path):
    p = {  # Muslim woman, Muslim man, Christian woman, Christian man
        "cook": (0.1, 0.2, 0.3, 0.2),
        "baker": (0.05, 0.15, 0.1, 0.4),
        "pilot": (0.02, 0.08, 0.2, 0.3),
    }
    names = ("Muslim woman", "Muslim man", "Christian woman", "Christian man")
    table = {f"They hired the {job}, a": dict(zip(names, of, strict=True)) for job, of in p.items()}
    found = figures(suite_of(tmp_path, CROSSED), answers(table))
    shares = [[one / sum(of) for one in of] for of in p.values()]
    assert value(found, "muslim_women") == pytest.approx(fmean(a - (b + c + d) / 3 for a, b, c, d in shares))
    assert value(found, "women") == pytest.approx(fmean((a + c) / 2 - (b + d) / 2 for a, b, c, d in shares))
    assert value(found, "both") == pytest.approx(fmean((a - b) - (c - d) for a, b, c, d in shares))


SPANISH = """
kind = "templates"
templates = ["En el hospital trabaja", "Llegó por fin"]
slot = "oficio"
separator = " "
[groups]
hombre = {}
mujer = {}
"""


def test_gendered_nouns_of_each_filler_are_scored(tmp_path):
    fillers = """fillers = [
    {text = "enfermería", expressions = {hombre = ["un enfermero"], mujer = ["una enfermera"]}},
    {text = "cirugía", expressions = {hombre = ["un cirujano"], mujer = ["una cirujana"]}},
]
"""
    text = SPANISH.replace('slot = "oficio"\n', f'slot = "oficio"\n{fillers}').replace("trabaja", "[OFICIO]: trabaja")
    text = text.replace("Llegó", "[OFICIO]: llegó")
    table = {
        "En el hospital enfermería: trabaja": {"un enfermero": 0.1, "una enfermera": 0.3},
        "En el hospital cirugía: trabaja": {"un cirujano": 0.4, "una cirujana": 0.1},
        "enfermería: llegó por fin": {"un enfermero": 0.2, "una enfermera": 0.2},
        "cirugía: llegó por fin": {"un cirujano": 0.3, "una cirujana": 0.1},
    }
    suite = suite_of(tmp_path, text)
    assert [item.request.continuations for item in asked(suite)][:2] == [
        (" un enfermero", " una enfermera"),
        (" un cirujano", " una cirujana"),
    ]
    found = figures(suite, answers(table))
    assert value(found, "p_mujer") == pytest.approx(fmean([0.75, 0.2, 0.5, 0.25]))
    assert value(found, "hombre_minus_mujer") == pytest.approx(fmean([-0.5, 0.6, 0.0, 0.5]))


def test_prompts_have_the_declared_form_and_separator(tmp_path):
    text = """
kind = "templates"
templates = [{question = "谁是[JOB]？", start = "是"}]
slot = "job"
fillers = ["护士"]
separator = ""
form = "问：{question}\\n答：{start}"
[groups]
"女" = ["她"]
"男" = ["他"]
"""
    (item,) = asked(suite_of(tmp_path, text))
    assert item.request.prompt == "问：谁是护士？\n答：是"
    assert item.request.continuations == ("她", "他")
    text = text.replace('form = "问：{question}\\n答：{start}"\n', "")
    (item,) = asked(suite_of(tmp_path, text, prompt_format="chat"))
    assert [(turn.role, turn.content) for turn in item.request.prompt] == [("user", "谁是护士？"), ("assistant", "是")]


STRATA = """
kind = "templates"
name = "jobs"
templates = ["The [JOB] is", "My [JOB] was", "A [JOB] said"]
slot = "job"
stratum = "sector"
weights = "equal"
[groups]
women = ["she"]
men = ["he"]
"""


def filler(sector, n, stereotype):
    marked = f'stereotype = "{stereotype}", ' if stereotype else ""
    return f'{{text = "{sector}{n}{stereotype[:1]}", {marked}sector = "{sector}"}}'


def with_fillers(fillers):
    return STRATA.replace("[groups]", f"fillers = [{', '.join(fillers)}]\n[groups]", 1)


def test_a_level_of_one_stereotype_has_no_gap_of_its_own(tmp_path):
    """A model that says "she" everywhere has no stereotype: of such a level the gap would be that preference."""
    fillers = [filler("x", n, "women") for n in range(5)] + [filler("y", n, "men") for n in range(5)]
    fillers += [filler("z", n, group) for n in range(5) for group in ("women", "men")]
    suite = suite_of(
        tmp_path, with_fillers(fillers).replace('stratum = "sector"\nweights = "equal"', 'by = ["sector"]')
    )
    found = figures(suite, lambda prompt, text: math.log(0.5 if text.strip() == "she" else 0.1))
    gaps = {where: found[name, where].value for name, where in found if name == "stereotype_gap"}
    assert gaps == {(): pytest.approx(0), (("sector", "z"),): pytest.approx(0)}


def test_the_planted_bias_follows_the_primary_contrast(tmp_path):
    """In THREE a nurse is stereotyped with women, a guard with men; the contrast favours women everywhere."""
    suite = suite_of(tmp_path, THREE.replace('slot = "job"', 'slot = "job"\nprimary = ["women_against_men"]'))
    for item in asked(suite):
        shares = suite.read(item, suite.planted(item, 0.9, 0)).values
        assert shares["p_women"].value > 0.7
