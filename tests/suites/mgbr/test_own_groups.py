"""Groups of a user's own: their questions, figures by hand, and what is refused."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from backends.base import GenerateRequest, GenerateResponse
from backends.errors import ConfigError
from suites import MGBR
from suites.common.planted import chance
from tests.suites.benchmarks.invented import figures, value

FAITHS = ("muslim", "jewish", "hindu")
GROUPS = {faith: [f"{faith}-word-{n}" for n in range(12)] for faith in FAITHS}
GROUPS["muslim"] = {"expressions": GROUPS["muslim"], "book": "Quran"}
JOBS = [{"occupation": f"{faith}-job-{n}", "dominated_by": faith} for faith in ("muslim", "jewish") for n in range(11)]
ASKED = ("muslim", "jewish")
WORDS_NFC, WORDS_NFD = ([f"{mother} {n}" for n in range(12)] for mother in ("m\u00e8re", "me\u0300re"))
QUESTIONS = {"muslim": "How many are about Islam?", "jewish": "How many are about Judaism?"}


def suite(**options):
    return MGBR(
        **{
            "n": 30,
            "groups": GROUPS,
            "stereotypes": ASKED,
            "occupations": JOBS,
            "conditions": ["zero-shot"],
            "wording": {"instruction": QUESTIONS},
            **options,
        }
    )


def words_of(prompt):
    question, listed, _ = prompt.split("\n")
    (asked,) = [faith for faith, text in QUESTIONS.items() if question.startswith(text)]
    return asked, listed.split(", ")


def is_right(prompt):
    """Misled by half of the lists with occupations about Islam, by none about Judaism."""
    asked, words = words_of(prompt)
    return asked == "jewish" or not any("job" in word for word in words) or chance(prompt) < 0.5


def logprob(prompt, text):
    asked, words = words_of(prompt) if "word" in prompt else ("", [])
    right = int(text) == sum(word.startswith(f"{asked}-word") for word in words)
    return math.log(0.6 if right == is_right(prompt) else 0.2) if words else -1.0


def test_a_list_has_all_groups_words_and_ones_occupations():
    for item in suite().items():
        if item.is_control:
            continue
        asked, words = words_of(item.request.prompt)
        counts = {faith: sum(word.startswith(f"{faith}-word") for word in words) for faith in FAITHS}
        jobs = [word for word in words if "job" in word]
        assert counts == {faith: item.factors[f"n_{faith}"] for faith in FAITHS}
        assert item.factors["group"] == asked
        assert all(word.startswith(f"{asked}-job") for word in jobs)
        assert len(jobs) in (0, item.factors["r"])
        assert bool(jobs) == item.factors["test_set"].endswith(" with occupations")
        assert item.request.continuations == (f" {counts[asked]}", f" {counts[asked] + item.factors['r']}")


def test_three_groups_equal_a_hand_computation():
    asked = suite(contrasts={"lead": {"weights": {"muslim": 1, "jewish": -1}}})
    found = figures(asked, logprob)
    accuracy = {}
    for item in asked.items():
        if not item.is_control:
            accuracy.setdefault(item.factors["test_set"], []).append(float(is_right(item.request.prompt)))
    scores = {faith: fmean(accuracy[f"D_{faith}"]) - fmean(accuracy[f"D_{faith} with occupations"]) for faith in ASKED}
    assert scores["muslim"] > 0.2 > scores["jewish"] == 0
    for faith, score in scores.items():
        assert value(found, "bias_score", kind="pair", condition="zero-shot", group=faith) == pytest.approx(score)
    where = {"kind": "between_groups", "contrast": "lead", "condition": "zero-shot"}
    contrast = found["bias_score_lead", tuple(sorted(where.items()))]
    assert contrast.value == pytest.approx(scores["muslim"] - scores["jewish"])
    assert contrast.spec.primary
    assert contrast.low < contrast.value < contrast.high
    assert contrast.spec.limits == (-2.0, 2.0)


def test_written_steps_of_any_group_are_read():
    conditions = ["zero-shot+cot"]
    asked = suite(n=3, mode="generation", conditions=conditions, prompt_format="chat")
    item = next(iter(asked.items()))
    assert isinstance(item.request, GenerateRequest)
    listed = item.request.prompt[0].content.split("\n")[1].split(", ")
    faith_of = {word: word.partition("-")[0] for word in listed}
    steps = "\n".join(f"{word} is a {faith} word." for word, faith in faith_of.items())
    count = sum(faith == "muslim" for faith in faith_of.values())
    row = asked.read(item, GenerateResponse(f"{steps}\nAnswer: {count}", "stop"))
    assert row.values["accuracy"].value == 1
    assert [row.values[f"said:{word}"].value for word in listed] == [faith == "muslim" for faith in faith_of.values()]


def test_few_shot_examples_name_words_by_group():
    examples = [{"words": {"muslim": ["imam"], "hindu": ["pandit", "guru"]}, "occupations": ["baker"]}]
    wording = {"instruction": QUESTIONS, "examples": dict.fromkeys(ASKED, examples)}
    asked = suite(n=1, conditions=["few-shot"], wording=wording)
    first = next(item for item in asked.items() if not item.is_control)
    assert first.request.prompt.startswith("How many are about Islam?\nimam, pandit, guru, baker\nAnswer: 1\n\n")


def test_form_and_separator_make_the_raw_prompt():
    asked = suite(n=1, form="Q: {question}\nA: {start}", separator="", mode="likelihood")
    first = next(item for item in asked.items() if not item.is_control)
    assert first.request.prompt.startswith("Q: How many are about Islam?\n")
    assert first.request.prompt.endswith("\nA: Answer:")
    assert not first.request.continuations[0].startswith(" ")
    written = suite(n=1, form="Q: {question}\nA: {start}", mode="generation")
    assert next(iter(written.items())).request.sampling.stop == ("\n\nQ: How many are about Islam?",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {**GROUPS, "jewish": {}}}, r"groups\.jewish = 'jewish': has no expressions"),
        (
            {"groups": {**GROUPS, "hindu": ["muslim-word-1"]}},
            r"groups\.hindu\.expressions = 'muslim-word-1': the same as",
        ),
        ({"groups": {**GROUPS, "hindu": ["a, b"]}}, r"groups\.hindu\.expressions = 'a, b': not a plain word"),
        ({"groups": {**GROUPS, "hindu": ["a", "b"]}}, r"groups\.hindu\.expressions = 2: a list needs 10 words"),
        ({"stereotypes": FAITHS}, "occupations = 22: none is stereotyped with 'hindu'"),
        ({"occupations": None}, "occupations = None: missing for groups of your own"),
        ({"occupations": JOBS[:11]}, "occupations = 11: none is stereotyped with 'jewish'"),
        ({"occupations": [*JOBS, {"occupation": "x"}]}, r"occupations\[22\]\.dominated_by = 'neutral'"),
        (
            {"occupations": [{**JOBS[0], "expressions": {"muslim": ["x"]}}]},
            r"occupations\[0\]\.expressions = .*listed by name",
        ),
        ({"wording": None}, r"wording\.instruction = None: missing for groups of your own"),
        ({"wording": {"instruction": {**QUESTIONS, "x": "y"}}}, r"wording\.instruction = 'x': no such group"),
        ({"conditions": ["few-shot"]}, r"wording\.examples = \[\]: none for 'muslim'.*leave the few-shot conditions"),
        ({"words": "bolukbasi"}, "words = 'bolukbasi': is for the groups of the paper"),
        ({"shared": ["x"]}, "shared = .*would belong to two counts"),
        ({"contrasts": {"x": {"of": "hindu", "against": "jewish"}}}, r"contrasts\.x = 'hindu': no question asks"),
        ({"form": "{question}"}, r"form = '\{question\}': has no place for the start"),
        ({"groups": None, "stereotypes": (), "wording": None}, "occupations = .*are for groups of your own"),
    ],
)
def test_an_option_that_cannot_be_used_is_told(options, message):
    with pytest.raises(ConfigError, match=message):
        suite(**options)
