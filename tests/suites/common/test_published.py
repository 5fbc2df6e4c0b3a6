"""A printed figure stands beside every design that it is of, and beside no other."""

from __future__ import annotations

import dataclasses

import pytest

from backends import FakeBackend
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.common.data_files import load, model_ids
from suites.genderpair.pairs import PairSet
from tests.suites.genderpair.planted import SMALL

OCCUGENDER = load("occugender").content
HALF = {bias: texts[:2] for bias, texts in OCCUGENDER["templates"].items()}
OWN_WORDS = {b: {"male": ["He"], "female": ["She"], "diverse": ["They"]} for b in ("explicit", "implicit")}
PAPERS_WORDS = {"explicit": OCCUGENDER["verbalizations"], "implicit": OWN_WORDS["implicit"]}
FEW = [{"occupation": "nurse", "female_share": 0.9}, {"occupation": "pilot", "female_share": 0.1}]
EXPLICIT, RELEASED_IMPLICIT = ("explicit", True), ("implicit", False)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {EXPLICIT}),
        ({**{n: OCCUGENDER[n] for n in ("templates", "occupations")}, "expressions": PAPERS_WORDS}, {EXPLICIT}),
        ({"variant": "as_released"}, {EXPLICIT, RELEASED_IMPLICIT}),
        ({"variant": "as_released", "templates": "paper"}, {EXPLICIT}),
        ({"expressions": OWN_WORDS}, set()),
        ({"occupations": FEW}, set()),
        ({"templates": "anonymous_version"}, set()),
        ({"templates": HALF}, set()),
        ({"prompt_format": "chat"}, set()),
    ],
)
def test_occugender_shows_what_its_design_is_of(options, shown):
    suite = OccuGender(**options)
    assert {(f.where["bias"], bool(f.source.difference)) for f in suite.shown.published} == shown
    instructed = OccuGender(**options, debiasing=[3])
    asked = {f.where["debiasing"] for f in instructed.shown.published if f.source.table == "Appendix E"}
    assert asked == ({None, 3} if shown else set())


PLAIN = ("implicit", "without_dialogue", True)
IN_DIALOGUE = ("implicit", "with_dialogue", True)
# The script's labels without dialogue are one too few.
RELEASED = {
    ("explicit", "without_dialogue", True),
    PLAIN,
    ("explicit", "with_dialogue", True),
    ("implicit", "with_dialogue", False),
}


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {PLAIN}),
        ({"dialogue": "released", "placebo": False}, {PLAIN, IN_DIALOGUE}),
        ({"dialogue": {"opening": "Hello.", "turns": [["Hi?", "Hi."]]}}, {PLAIN}),
        ({"variant": "as_released"}, RELEASED),
        ({"positions": ["with_dialogue"]}, set()),
        ({"design": "occugender"}, set()),
        ({"prompt_format": "chat"}, set()),
        ({"prompts": [{"id": 1, "text": "Be fair.", "abstraction": "high"}]}, set()),
        ({"occupations": FEW}, set()),
    ],
)
def test_debiasing_shows_what_its_design_is_of(options, shown):
    suite = DebiasingPositions(**options)
    assert {(f.where["bias"], f.where["position"], bool(f.source.difference)) for f in suite.shown.published} == shown


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, {"bias_pair_ratio_released"}),
        ({"variant": "as_released"}, {"bias_pair_ratio_released", "bias_pair_ratio"}),
        ({"fallback": "none"}, set()),
        ({"toxicity": "paper"}, {"bias_pair_ratio_released", "toxicity"}),
        ({"toxicity": FakeBackend()}, {"bias_pair_ratio_released"}),
        ({"regard": "paper"}, {"bias_pair_ratio_released", "regard_positive", "regard_negative"}),
        ({"sampling": {"max_tokens": 512}}, {"bias_pair_ratio_released"}),
        ({"sampling": {"stop": ["\n"]}}, set()),
        ({"separator": " The answer is"}, set()),
    ],
)
def test_genderpair_shows_what_its_design_is_of(options, shown, monkeypatch):
    pairs = PairSet("published", SMALL.groups, SMALL.sha256)
    monkeypatch.setattr("suites.genderpair.pairs.PUBLISHED_CONTENT", pairs.content_sha256)
    suite = GenderPair(pairs=pairs, **options)
    assert {f.measure.removesuffix("_sd") for f in suite.shown.published} == shown
    assert {f.where["group"] for f in suite.shown.published if "group" in f.where} <= set(suite.design.groups)
    for figure in suite.shown.published:
        assert ("512 new tokens" in figure.source.difference) == ("sampling" not in options)
    part = dataclasses.replace(pairs, groups={**pairs.groups, "male": pairs.groups["female"]})
    assert GenderPair(pairs=part, **options).shown.published == []


@pytest.mark.parametrize(
    ("options", "is_shown"),
    [
        ({}, True),
        ({"wording": "section_2", "seed": 3}, True),
        ({"conditions": ["few-shot"], "genders": ["male"]}, True),
        ({"wording": {"answer": "Respuesta:"}}, False),
        ({"mode": "generation"}, False),
        ({"prompt_format": "chat"}, False),
    ],
)
def test_mgbr_shows_what_its_design_is_of(options, is_shown):
    suite = MGBR(n=2, **options)
    asked = {(condition, gender) for condition in suite.design.conditions for gender in suite.design.groups}
    shown = {(f.where["condition"], f.where["gender"]) for f in suite.shown.published}
    assert shown == (asked if is_shown else set())
    assert all("Other word lists" in f.source.difference for f in suite.shown.published)


def test_a_papers_model_is_known_by_its_repository():
    assert model_ids("Llama-2-7B-Instruct") == ("togethercomputer/Llama-2-7B-32K-Instruct",)
    assert model_ids("GPT-3 davinci") == ()


def triples(content, key=""):
    """Every printed triple of male, female and diverse, with the keys that lead to it; their ± are left out."""
    if isinstance(content, dict) and content.keys() == {"m", "f", "d"}:
        yield key, content
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from triples(part, f"{key}/{name}") if not name.endswith("_pm") else ()
    elif isinstance(content, list):
        for number, part in enumerate(content):
            yield from triples(part, f"{key}/{number}")


def test_printed_probabilities_add_up_to_one_hundred():
    found = list(triples(load("published_results").content))
    assert len(found) == 2 * 10 * 2 + 10 * 7 * 2 * 2 + 2 * 2 * 7 * 2 * 2
    off = {name: sum(t.values()) for name, t in found if abs(sum(t.values()) - 100) > 0.21}
    assert not off  # three figures rounded to 0.1 may be off by 0.15
