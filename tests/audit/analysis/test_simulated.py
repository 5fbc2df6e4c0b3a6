"""The short form of the tables of coverage, of claims and of nights: `tests.simulations` has the long ones."""

from __future__ import annotations

import pytest
from scipy import stats

from tests.simulations.claims import Claim, claims, share_of
from tests.simulations.coverage import HONEST, INTERVALS, cells, line_of
from tests.simulations.nights import SCENARIOS, Scenario, outcome

SAMPLES, SEQUENCES = 120, 8
CELLS = [cell for cell in cells() if not cell.is_strained and ("20x5" in cell.name or "gap" in cell.name)]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_intervals_hold_the_truth_and_are_no_wider_than_the_textbooks(cell) -> None:
    line = line_of(cell, SAMPLES, INTERVALS[cell.kind])
    assert line.own.holds >= stats.binom.ppf(0.001, SAMPLES, HONEST) / SAMPLES
    assert line.beside <= 1.4, "of so few samples the best honest method is a matter of luck"


@pytest.mark.parametrize(
    "claim", [claim for claim in claims() if "report" not in claim.name], ids=lambda claim: claim.name
)
def test_claims_are_made_as_often_as_promised(claim: Claim) -> None:
    found = share_of(claim, SAMPLES) * SAMPLES
    assert found <= stats.binom.ppf(0.999, SAMPLES, min(claim.at_most + 0.01, 1))
    if "meets" not in claim.name:  # a mean of .019 misses its promise, see docs/statistics.md
        assert found >= stats.binom.ppf(0.001, SAMPLES, claim.at_least)


@pytest.mark.parametrize("scenario", [SCENARIOS[k] for k in (0, 2, 6, 8, 11)], ids=lambda scenario: scenario.name)
def test_nights_alarm_by_a_change_alone(scenario: Scenario) -> None:
    found = outcome(scenario, SEQUENCES)
    assert found.false <= 2 / SEQUENCES
    if scenario.change > 0.02:
        assert found.found >= 6 / SEQUENCES
        assert found.median <= 2
