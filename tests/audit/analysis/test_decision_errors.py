"""Error rates of decisions by simulation; `python -m tests.simulations.decisions` runs all of it."""

from __future__ import annotations

import pytest

from suites import OccuGender
from tests.simulations.decisions import CHANGES, FLIPS, called_unchanged, false_claims, found_among, rare
from tests.simulations.few_levels import PROCESSES, warned

VERBS = ("like", "read", "eat", "wear", "say", "buy")
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


def test_report_of_models_alike_rarely_claims_a_difference() -> None:
    suite = OccuGender(("implicit",), templates={"implicit": [f"Q: What does a [JOB] {verb}?\nA:" for verb in VERBS]})
    primary, others, _ = false_claims(suite, reports=12, limit=160)
    assert primary <= 0.05 + 0.13
    assert others <= 0.05 + 0.13


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
