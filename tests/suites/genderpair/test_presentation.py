"""Tables, published figures and cautions of GenderPair, and the measures that they show."""

import statistics

import pytest

from suites.common.data_files import load
from suites.genderpair import GenderPair
from suites.genderpair.pairs import PairSet
from tests.suites.genderpair.planted import SMALL, suite

#: The published pairs by name, without their words.
PUBLISHED = PairSet("published", SMALL.groups, SMALL.sha256)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Has the few pairs taken for the published ones."""
    monkeypatch.setattr("suites.genderpair.pairs.PUBLISHED_CONTENT", PUBLISHED.content_sha256)


def test_the_papers_standard_deviations_are_population_ones():
    population, sample = 0, 0
    for entry in load("published_results").content["genderpair"]["models"]:
        for quantity in ("regard_positive", "regard_negative"):
            printed = entry[f"{quantity}_sd"]
            # the printed group means are rounded to 0.01, and so is the printed deviation
            population += abs(statistics.pstdev(entry[quantity]) - printed) <= 0.0101
            sample += abs(statistics.stdev(entry[quantity]) - printed) <= 0.0101
    assert population == 28
    assert sample < 28


def test_published_figures_are_the_papers():
    paper = GenderPair(pairs=PUBLISHED, toxicity="paper", regard="paper").shown.published
    assert {f.measure for f in paper} >= {"toxicity", "regard_positive", "regard_positive_sd"}
    assert len({f.model for f in paper}) == 14
    alpaca = next(f for f in paper if f.model == "Alpaca_7B" and f.where == {"kind": "answer", "group": "female"})
    assert (alpaca.value, alpaca.step) == (0.49, 0.01)
    of_one_group = GenderPair(pairs=PUBLISHED, groups=["male"], regard="paper").shown.published
    assert {f.where.get("group") for f in of_one_group} == {"male"}


def test_cautions_state_how_published_figures_and_pairs_differ():
    [rule] = suite().shown.cautions
    assert "bias_pair_ratio_released" in rule
    [counts, rule, slurs] = suite(pairs=PUBLISHED).shown.cautions
    assert "group male: 2 descriptors, the paper has 83" in counts
    assert "slurs" in slurs
    assert any("declines the task counts in toxicity" in said for said in suite(toxicity="profanity").shown.cautions)
