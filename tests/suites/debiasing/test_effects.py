import itertools

import numpy as np
import pytest

from suites import DebiasingPositions
from suites.base import Row
from suites.common.expressions import GROUPS
from tests.suites.debiasing.planted import PROMPT, figure, figures, rows_of, scored, shares_of


def test_planted_effects_and_attenuation_come_back():
    """One prompt takes 0.3 off the gap and a dialogue attenuates that by half; its placebo does nothing."""

    def planted(item):
        treated = item.factors["debiasing"] == 1
        if item.factors["position"] == "without_dialogue":
            return (0.3, 0.2) if treated else (0.6, 0.1)
        return (0.45, 0.15) if treated else (0.6, 0.1)

    suite = DebiasingPositions(prompts=[PROMPT], positions=["without_dialogue", "with_dialogue"])
    found = figures(suite, rows_of(suite, planted))
    for bias, versus in itertools.product(("explicit", "implicit"), ("none", "placebo")):
        here = {"bias": bias, "instruction": 1, "versus": versus}
        at_best = {**here, "position": "without_dialogue"}
        assert figure(found, "effect", **at_best).value == pytest.approx(-0.3, abs=1e-9)
        assert figure(found, "effect", **{**here, "position": "with_dialogue"}).value == pytest.approx(-0.15, abs=1e-9)
        assert figure(found, "effect_p_diverse", **at_best).value == pytest.approx(0.1, abs=1e-9)
        assert figure(found, "effect_coverage", **at_best).value == pytest.approx(0, abs=1e-9)
        assert figure(found, "effect_attenuation", **here, under="with_dialogue").value == pytest.approx(0.15, abs=1e-9)
        assert figure(found, "effect_attenuation_p_diverse", **here, under="with_dialogue").value == pytest.approx(
            -0.05
        )
        degree = {"bias": bias, "position": "without_dialogue", "degree": "high", "versus": versus}
        assert figure(found, "effect", **degree).value == pytest.approx(-0.3, abs=1e-9)
    for bias in ("explicit", "implicit"):
        placebo = figure(found, "placebo_effect", bias=bias, position="without_dialogue", placebo=1, versus="none")
        assert placebo.value == pytest.approx(0, abs=1e-12)
        for condition in (None, 1):
            where = {"bias": bias, "position": "without_dialogue", "debiasing": condition, "dominated_by": "male"}
            expected = shares_of(*((0.3, 0.2) if condition else (0.6, 0.1)), "male")
            for group in GROUPS:
                assert figure(found, f"p_{group}", **where).value == pytest.approx(expected[group], abs=1e-9)


def test_a_missing_answer_removes_exactly_its_pairs():
    suite = DebiasingPositions(prompts=[PROMPT], positions=["without_dialogue", "with_dialogue"])
    lost = "with_dialogue/none/task-2/nurse"
    rows = []
    for item in suite.items():
        if item.id == lost:
            rows.append(Row(item.id, item.factors, {}, "timeout"))
        else:
            rows.append(suite.read(item, scored(item, suite, shares_of(0.5, 0.1, item.factors["dominated_by"]))))
    missing = {r.item_id for r in suite.derive(rows) if r.missing}
    assert missing == {
        lost,
        "with_dialogue/1/task-2/nurse/minus-none",
        "with_dialogue/1/task-2/nurse/minus-none/attenuation",
        "with_dialogue/placebo-1/task-2/nurse/minus-none",
    }
    found = figures(suite, suite.derive(rows))
    implicit = {"bias": "implicit", "instruction": 1}
    assert figure(found, "effect", **implicit, position="with_dialogue", versus="none").missing == 1
    assert figure(found, "effect", **implicit, position="with_dialogue", versus="placebo").missing == 0
    assert figure(found, "effect_attenuation", **implicit, under="with_dialogue", versus="none").missing == 1
    where = {"bias": "implicit", "position": "with_dialogue", "debiasing": None, "dominated_by": "female"}
    assert (figure(found, "p_male", **where).missing, figure(found, "p_male", **where).n_items) == (1, 59)
    with_prompt = figure(found, "p_male", **{**where, "debiasing": 1})
    assert (with_prompt.missing, with_prompt.n_items) == (0, 60)


def test_side_effects_are_the_raw_mass_and_a_neutral_text():
    suite = DebiasingPositions(prompts=[PROMPT], positions=["without_dialogue"])
    rows = []
    for item in suite.items():
        coverage = 0.2 if item.factors["debiasing"] == 1 else 0.5
        shares = shares_of(0.5, 0.1, item.factors["dominated_by"])
        rows.append(suite.read(item, scored(item, suite, shares, coverage)))
    found = figures(suite, suite.derive(rows))
    here = {"position": "without_dialogue", "instruction": 1, "versus": "placebo"}
    assert figure(found, "effect_coverage", bias="explicit", **here).value == pytest.approx(-0.3, abs=1e-9)
    words = np.array([len(continuation.split()) for _, continuation in suite.references])
    moved = np.mean(0.2 ** (1 / words) - 0.5 ** (1 / words))
    assert figure(found, "effect_reference_text", bias="reference", **here).value == pytest.approx(moved, abs=1e-9)
    assert figure(found, "effect", bias="explicit", **here).value == pytest.approx(0, abs=1e-9)
