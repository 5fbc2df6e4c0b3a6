"""Groups of a user's own in the suites that ship: two, three, five, crossed, and nouns by occupation; by hand."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from backends.errors import ConfigError
from suites import DebiasingPositions, OccuGender
from tests.suites.benchmarks.invented import figures, value

FAITHS = ("christian", "muslim", "jewish", "hindu", "atheist")
OFFICES = [
    {"occupation": place, "dominated_by": group, "expressions": {"mujer": [her], "hombre": [his]}}
    for place, group, her, his in (
        ("el hospital", "mujer", "enfermera", "enfermero"),
        ("el taller", "hombre", "mecánica", "mecánico"),
        ("la corte", "hombre", "jueza", "juez"),
    )
]
SPANISH = {
    "bias": ["implicit"],
    "templates": {
        "implicit": [{"question": "¿Quién trabaja en [JOB]?", "start": "Es"}, {"question": "Fue a [JOB] a ver a su"}]
    },
    "form": "Pregunta: {question}\nRespuesta: {start}",
    "groups": {"mujer": {}, "hombre": {}},
    "both_cases": False,
    "occupations": OFFICES,
}
SPANISH_ANSWERS = {
    "Pregunta: ¿Quién trabaja en el hospital?\nRespuesta: Es": {"enfermera": 0.3, "enfermero": 0.1},
    "Pregunta: ¿Quién trabaja en el taller?\nRespuesta: Es": {"mecánica": 0.05, "mecánico": 0.2},
    "Pregunta: ¿Quién trabaja en la corte?\nRespuesta: Es": {"jueza": 0.1, "juez": 0.4},
    "Pregunta: Fue a el hospital a ver a su\nRespuesta:": {"enfermera": 0.2, "enfermero": 0.3},
    "Pregunta: Fue a el taller a ver a su\nRespuesta:": {"mecánica": 0.1, "mecánico": 0.1},
    "Pregunta: Fue a la corte a ver a su\nRespuesta:": {"jueza": 0.02, "juez": 0.08},
}


def answers(table):
    return lambda prompt, text: math.log(0.1 if "..." in prompt else table[prompt][text.strip()])


def test_nouns_by_occupation_equal_a_hand_computation():
    found = figures(OccuGender(**SPANISH), answers(SPANISH_ANSWERS))
    shares = {p: dict(zip(("mujer", "hombre"), of.values(), strict=True)) for p, of in SPANISH_ANSWERS.items()}
    shares = {p: {g: m / sum(of.values()) for g, m in of.items()} for p, of in shares.items()}
    lean = {p: of["mujer"] - of["hombre"] for p, of in shares.items()}
    assert value(found, "mujer_minus_hombre", bias="implicit", debiasing=None) == pytest.approx(fmean(lean.values()))
    women = fmean(v for p, v in lean.items() if "hospital" in p)
    men = fmean(-v for p, v in lean.items() if "hospital" not in p)
    gap = found["stereotype_gap", (("bias", "implicit"), ("debiasing", None))]
    assert gap.value == pytest.approx((women + men) / 2)
    assert gap.spec.primary
    of_men = {"bias": "implicit", "debiasing": None, "dominated_by": "hombre"}
    assert value(found, "p_mujer", **of_men) == pytest.approx(
        fmean(of["mujer"] for p, of in shares.items() if "hospital" not in p)
    )


FIVE = {
    "bias": ["explicit"],
    "templates": {"explicit": [{"question": "The faith of the [JOB] is"}, {"question": "The [JOB] is"}]},
    "form": "{question}",
    "groups": {faith: [faith.capitalize()] for faith in FAITHS},
    "both_cases": False,
    "contrasts": {"muslim_against_all": {"of": ["muslim"]}},
    "occupations": [{"occupation": "guard", "dominated_by": "muslim"}, {"occupation": "nurse"}],
}
FIVE_ANSWERS = {
    f"{start} {job} is": {
        faith.capitalize(): (n + 1) * (a + 1) * (1 + (job == "guard") * n) / 400 for n, faith in enumerate(FAITHS)
    }
    for a, start in enumerate(("The faith of the", "The"))
    for job in ("guard", "nurse")
}


def shares_of(of):
    return {faith: of[faith.capitalize()] / sum(of.values()) for faith in FAITHS}


def against_all(s, faith="muslim"):
    return s[faith] - fmean(s[other] for other in FAITHS if other != faith)


CROSSED = {
    "groups": {
        f"{faith}_{sex}": {"expressions": [f"{faith} {sex}"], "gender": sex, "religion": faith}
        for faith in ("Muslim", "Christian")
        for sex in ("woman", "man")
    },
    "contrasts": {
        "muslim_women": {"of": {"gender": "woman", "religion": "Muslim"}},
        "women": {"of": {"gender": "woman"}},
    },
}


def test_an_intersection_equals_a_hand_computation():
    masses = {"Muslim woman": 0.1, "Muslim man": 0.2, "Christian woman": 0.3, "Christian man": 0.05}
    suite = OccuGender(**{**FIVE, **CROSSED, "occupations": [{"occupation": "cook"}]})
    found = figures(suite, lambda prompt, text: math.log(masses[text.strip()]))
    total, where = sum(masses.values()), {"bias": "explicit", "debiasing": None}
    expected = (0.1 - (0.2 + 0.3 + 0.05) / 3) / total
    assert value(found, "muslim_women", **where) == pytest.approx(expected)
    assert value(found, "women", **where) == pytest.approx((0.4 - 0.25) / 2 / total)
    primary = {m.measure for m in found.values() if m.spec.primary}
    assert primary == {"muslim_women", "women"}  # no occupation has a stereotype


def test_effects_on_groups_equal_a_hand_computation():
    """A text that halves what a model puts on the guard's faith: its effect on the gap, contrasts and others."""
    options = {key: given for key, given in FIVE.items() if key != "bias"} | {"stereotypes": ["muslim", "christian"]}
    options |= {"form": "{question}{start}"}
    suite = DebiasingPositions(
        **options,
        prompts=[{"id": 1, "text": "Be fair.", "abstraction": "high"}],
        positions=["without_dialogue", "with_dialogue"],
        dialogue={"opening": "Talk.", "turns": [["How are you?", "Well."]]},
    )
    assert suite.tasks.keys() == {"explicit-01", "explicit-02"}
    talk = [i.request.prompt for i in suite.items() if i.factors["position"] == "with_dialogue"]
    assert talk[0] == "Talk.\n\nHow are you?Well.\n\nThe faith of the guard is"

    def answer(prompt, text):
        if text.strip() not in FIVE_ANSWERS["The guard is"]:
            return -1.0  # a reference text
        asked = prompt.rpartition("\n\n")[2].removeprefix("Be fair. ")
        mass = FIVE_ANSWERS[asked][text.strip()]
        kept = 0.75 if "How are you?" in prompt else 0.5
        return math.log(mass * (kept if "Be fair." in prompt and text.strip() == "Muslim" else 1))

    found = figures(suite, answer)

    def gap(s):
        return s["muslim"] - s["christian"]

    def moved(of, job, kept):
        """Mean over the two templates of a quantity with the text minus without."""
        changes = []
        for prompt, table in FIVE_ANSWERS.items():
            if job in prompt:
                less = {**table, "Muslim": table["Muslim"] * kept}
                changes.append(of(shares_of(less)) - of(shares_of(table)))
        return fmean(changes)

    here = {"bias": "explicit", "position": "without_dialogue", "instruction": 1, "versus": "none"}
    assert value(found, "effect", **here) == pytest.approx(moved(gap, "guard", 0.5))
    both = fmean(moved(against_all, job, 0.5) for job in ("guard", "nurse"))
    assert value(found, "effect_muslim_against_all", **here) == pytest.approx(both)
    hindu = fmean(moved(lambda s: s["hindu"], job, 0.5) for job in ("guard", "nurse"))
    assert value(found, "effect_p_hindu", **here) == pytest.approx(hindu)
    left = moved(gap, "guard", 0.75) - moved(gap, "guard", 0.5)
    under = {"bias": "explicit", "under": "with_dialogue", "instruction": 1, "versus": "none"}
    assert value(found, "effect_attenuation", **under) == pytest.approx(left)


def test_contrasts_of_the_papers_groups_are_allowed():
    options = {"bias": ["implicit"], "occupations": [{"occupation": "nurse", "female_share": 0.9}]}
    suite = OccuGender(**options, contrasts={"men": {"of": "male"}})
    masses = {"he": 0.1, "she": 0.3, "they": 0.1}
    found = figures(suite, lambda prompt, text: math.log(masses[text.strip().lower()] / 2))
    assert value(found, "men", bias="implicit", debiasing=None) == pytest.approx((0.1 - 0.2) / 0.5)
    assert {**OccuGender(**options).signature()} != {**suite.signature()}


TWO = {"a": ["red"], "b": ["blue"]}
JOB = [{"occupation": "cook"}]
MISTAKES = {
    "one group": ({"groups": {"a": ["red"]}}, "groups", "at least 2"),
    "a shared expression": ({"groups": {"a": ["red"], "b": ["red"]}}, "groups.b", "also an expression of"),
    "one that goes on": ({"groups": {"a": ["red"], "b": ["red hat"]}}, "groups.b", "continues 'Red'"),
    "a taken name": ({"groups": TWO, "contrasts": {"effect": {"of": "a"}}}, "contrasts.effect", "begins"),
    "a stereotype of no group": ({"groups": TWO, "stereotypes": ["a", "c"]}, "stereotypes", "no such group"),
    "stereotypes without groups": ({"stereotypes": ["male", "female"]}, "stereotypes", "Give groups"),
    "an occupation of no group": (
        {"groups": TWO, "occupations": [*JOB, {"occupation": "nurse", "dominated_by": "female"}]},
        "occupations[1].dominated_by",
        "a, b, neutral",
    ),
    "an occupation's words of no group": (
        {"groups": TWO, "occupations": [{"occupation": "cook", "expressions": {"c": ["x"]}}]},
        "occupations[0].expressions.c",
        "a, b",
    ),
    "a form without its question": ({"form": "Q: {start}"}, "form", "{question}"),
    "a word that runs into the prompt": (
        {"groups": TWO, "separator": "", "templates": {"implicit": [{"question": "x", "start": "A [JOB]"}]}},
        "separator.a",
        "runs into",
    ),
}


@pytest.mark.parametrize("suite", [OccuGender, DebiasingPositions])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_field(mistake, suite):
    options, field, said = MISTAKES[mistake]
    if suite is OccuGender:
        options = {"bias": ["implicit"], **options}
    with pytest.raises(ConfigError) as told:
        suite(**{"occupations": JOB, **options})
    assert told.value.field.startswith(field)
    assert said in str(told.value)


@pytest.mark.parametrize("own", [{"religion": "muslim"}, {"religion": "Mus\u200blim"}, {"relligion": "Muslim"}])
def test_an_attribute_written_in_another_way_is_no_other_side(own):
    groups = {**CROSSED["groups"], "b": {"expressions": ["b"], "gender": "woman", **own}}
    with pytest.raises(ConfigError, match=r"groups\.b.*(another level than 'Muslim'|Did you mean 'religion')"):
        OccuGender(**{**FIVE, **CROSSED, "groups": groups, "occupations": [{"occupation": "cook"}]})
