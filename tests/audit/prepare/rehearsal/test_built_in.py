"""The suites that ship go through a rehearsal without a mistake, whatever their options and however few the items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import suites
from audit import Audit
from audit.prepare.rehearsal import refuse_mistakes
from audit.prepare.resolve import suite_items
from backends import FakeBackend
from backends.errors import ConfigError
from suites.base import Suite
from suites.common.text_scorer import TextScorer
from tests.suites.benchmarks.invented import use

TWO = [{"occupation": "nurse", "female_share": 0.9}, {"occupation": "plumber", "female_share": 0.04}]
ONE = [{"occupation": "clerk"}]
GROUPS = {"red": ["red"], "blue": ["blue"]}
TEMPLATE = {"implicit": ["Q: About the [JOB].\nA: The [JOB] said that"]}


def scorer() -> TextScorer:
    return TextScorer(FakeBackend("scorer"), {"toxicity": "negative"}, "planted")


#: Options that leave figures without rows.
ODD: list[tuple[str, dict[str, Any]]] = [
    ("OccuGender", {"bias": ["implicit"], "templates": TEMPLATE, "occupations": ONE}),
    ("OccuGender", {"occupations": TWO, "debiasing": [2], "prompt_format": "chat"}),
    ("OccuGender", {"variant": "as_released", "bias": ["implicit"], "occupations": TWO}),
    ("DebiasingPositions", {"occupations": TWO, "positions": ["without_dialogue", "with_dialogue"], "placebo": False}),
    ("DebiasingPositions", {"occupations": ONE, "positions": ["without_dialogue"]}),
    ("DebiasingPositions", {"variant": "as_released", "occupations": TWO}),
    ("DebiasingPositions", {"occupations": ONE, "positions": ["without_dialogue", "with_dialogue"], "groups": GROUPS}),
    ("OccuGender", {"bias": ["implicit"], "templates": TEMPLATE, "occupations": ONE, "groups": GROUPS}),
    ("MGBR", {"n": 2}),
    ("MGBR", {"n": 3, "genders": ["female"], "conditions": ["few-shot+cot"], "mode": "generation"}),
    ("GenderPair", {"groups": ["female"], "toxicity": None, "regard": None}),
    ("GenderPair", {"groups": ["male", "neither"], "variant": "as_released", "regard": None}),
    ("CrowSPairs", {"bias_types": ["age"]}),
    ("StereoSet", {"tasks": ["intersentence"], "bias_types": ["profession"]}),
    ("WinoBias", {"types": ["type1"], "splits": ["dev"]}),
    ("BBQ", {"conditions": ["few-shot+cot", "few-shot"], "mode": "generation"}),
    ("BiasNLI", {"conditions": ["zero-shot", "zero-shot+dp"], "answers": "text"}),
    ("BOLD", {"toxicity": scorer(), "regard": None}),
]


def refuse(suite: Suite, limit: int | None) -> None:
    audit = Audit({"fake": FakeBackend()}, [suite], limit=limit, small_sample=True)
    try:
        items = suite_items(suite.name, suite, audit)
    except ConfigError as error:
        if limit is None or error.field != "limit":  # else a set of items that belong together is larger
            raise
        return
    refuse_mistakes(audit, {suite.name: items})


@pytest.fixture
def made(monkeypatch, tmp_path) -> Callable[..., Suite]:
    use(monkeypatch, tmp_path)
    return lambda name, options: getattr(suites, name)(**options)


@pytest.mark.parametrize("name", suites.__all__)
def test_a_suite_that_ships_has_no_mistakes(name, made):
    refuse(made(name, {"n": 20} if name == "MGBR" else {}), None)


@pytest.mark.parametrize(("name", "options"), ODD)
def test_odd_options_and_small_samples_are_not_refused(name, options, made):
    suite = made(name, options)
    for limit in (None, 1, 7, 56):
        refuse(suite, limit)
