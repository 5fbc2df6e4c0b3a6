"""Error rates of decisions by simulation; in full by `python -m tests.simulations.decisions`, and `.alike_models`."""

from __future__ import annotations

import numpy as np
import pytest

from audit.analysis.comparing.comparisons import compare_models
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.common.planted import planted_scores
from tests.simulations.alike_models import PROCESSES as PROCESSES_OF_MODELS
from tests.simulations.alike_models import Process, Questions, Shared, answers, decided, false_claims, pair_of_models
from tests.simulations.decisions import CHANGES, FLIPS, called_unchanged, discovered, found_among, rare
from tests.simulations.few_levels import PROCESSES, warned

VERBS = ("like", "read", "eat", "wear", "say", "buy")
#: Each suite with few questions, of which a report takes a second.
SMALL = {
    "OccuGender": lambda: OccuGender(
        ("implicit",), templates={"implicit": [f"Q: What does a [JOB] {verb}?\nA:" for verb in VERBS]}
    ),
    "DebiasingPositions": lambda: DebiasingPositions("occugender", positions=["without_dialogue"], placebo=False),
    "MGBR": lambda: MGBR(n=30, conditions=["zero-shot", "few-shot"]),
    "GenderPair": GenderPair,
}
LIMITS = {"GenderPair": 150}
pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("name", [*CHANGES, *FLIPS])
def test_change_at_the_margin_is_rarely_unchanged(name: str) -> None:
    process = (CHANGES | FLIPS)[name]
    assert called_unchanged(process, design=(30, 40), margin=0.2, draws=100, binary=name in FLIPS) <= 0.05 + 0.04


def test_tenth_of_few_templates_that_moved_is_not_unchanged() -> None:
    for margin in (0.02, 0.03):
        assert called_unchanged(rare(0.3), design=(20, 10), margin=margin, mean=0.03, draws=100) <= 0.05
    assert called_unchanged(rare(0.3), design=(20, 25), margin=0.02, draws=100) <= 0.05, "one template in 15"


def test_smooth_changes_are_unchanged_where_clusters_suffice() -> None:
    assert called_unchanged(CHANGES["smooth"], design=(40, 40), margin=0.15, mean=0.0, draws=40) >= 0.9
    assert called_unchanged(CHANGES["smooth"], design=(25, 25), margin=0.05, mean=0.0, draws=40) == 0
    assumed = called_unchanged(CHANGES["smooth"], design=(25, 25), margin=0.05, mean=0.0, draws=40, largest_change=0.25)
    assert assumed >= 0.8
    spared = called_unchanged(CHANGES["smooth"], design=(40, 40), margin=0.05, mean=0.0, draws=40, largest_change=0.1)
    assert spared >= 0.9


@pytest.mark.parametrize("suite", SMALL)
@pytest.mark.parametrize("process", ["levels", "items"])
def test_reports_of_models_alike_rarely_claim_anything(suite: str, process: str) -> None:
    found = false_claims(SMALL[suite](), PROCESSES_OF_MODELS[process], reports=3, limit=LIMITS.get(suite))
    assert found.decidable >= 30
    assert found.primary <= 1
    assert found.discoveries <= 0.34


def test_reports_of_models_alike_decide_as_compare_models() -> None:
    questions = Questions(SMALL["OccuGender"](), None)
    for number in range(2):
        rows = pair_of_models(questions, Process(0.5, 0.2, 0.2), [0, number])
        specs = list(questions.suite.measures(rows[0]))
        ((*decisions,),) = decided(rows, specs)
        compared = compare_models(dict(zip("ab", rows, strict=True)), specs, suite="s")
        higher = [one.verdict in ("larger", "smaller") for one in compared]
        assert any(higher)
        assert [one.outcome == "apart" for one in decisions] == higher
        p = np.array([[one.p_adjusted[0], np.nan if other.p_adjusted is None else other.p_adjusted]
                      for one, other in zip(decisions, compared, strict=True)])  # fmt: skip
        np.testing.assert_allclose(*p.T)


def test_rows_of_models_alike_are_those_that_a_suite_reads() -> None:
    questions = Questions(SMALL["OccuGender"](), None)
    rng = np.random.default_rng(0)
    shared = Shared(*(questions.field(Process(0.5, 0.2, 0.2), rng) for _ in Shared._fields))
    expressions = OccuGender(("implicit",)).expressions["implicit"]
    for item, row in zip(questions.items, answers(questions, shared, Process(0, 0, 0), rng), strict=True):
        mass = {g: row.values["coverage"].low * row.values[f"p_{g}"].low for g in expressions}
        planted = {t: mass[g] / len(words) for g, words in expressions.items() for t in words}
        texts = item.request.continuations
        read = questions.suite.read(item, planted_scores({text: planted[text.strip()] for text in texts}))
        assert read.values.keys() == row.values.keys()
        for name, number in read.values.items():
            assert number.low == pytest.approx(row.values[name].low)


def test_some_figures_that_moved_bring_few_false_ones() -> None:
    found = discovered(10, 4)
    assert found.found > 0.5
    assert found.false <= 0.05 + 0.1


@pytest.mark.parametrize("is_primary", [True, False])
def test_regression_is_found_among_many_as_often_as_alone(is_primary: bool) -> None:
    alone, among, _ = found_among(115, 4, is_primary=is_primary)
    assert alone > 0.5
    assert abs(alone - among) <= 0.05


def test_moves_up_to_the_margin_are_rarely_regressions() -> None:
    _, _, false = found_among(40, 12, shift=0.0, is_primary=False, others_shift=0.02, shared=0.5)
    assert false <= 0.05 + 0.13


@pytest.mark.parametrize("name", PROCESSES)
def test_a_difference_that_few_levels_hide_is_warned_of(name: str) -> None:
    found = warned(PROCESSES[name], (20, 7), 40)
    assert found.missed_unsaid == 0
    assert found.holds_with_room >= 0.95
    if name == "nothing far apart":
        assert found.is_of_few <= 0.05
