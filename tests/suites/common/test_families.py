"""Families of templates and occupations are declared by every suite that asks the papers' own."""

import pytest

from suites import MGBR, DebiasingPositions, OccuGender
from suites.common.occupations import sectors, wordings


@pytest.mark.parametrize("suite", [OccuGender(), DebiasingPositions(), MGBR()])
def test_every_occupation_of_the_suites_has_a_sector(suite):
    occupations = {item.factors.get("occupation") for item in suite.items()} - {None}
    if isinstance(suite, MGBR):
        occupations = {name for group in suite.design.groups for name in suite.design.occupations(group)}
    assert occupations
    assert occupations <= set(suite.families["occupation"].of)


def test_sectors_are_major_groups():
    found = sectors(["nurse", "vet", "plumber", "juggler"])
    assert found.of["nurse"] == found.of["vet"] == "29 Healthcare Practitioners and Technical"
    assert found.of["plumber"].startswith("47 ")
    assert "juggler" not in found.of


def test_paraphrases_are_of_one_wording_and_chains_link_them():
    texts = {"a": "Think of a [JOB] now.", "b": "Think of a [JOB] today.", "c": "Do think of some [JOB] today."}
    texts["d"] = "Who came?"
    of = wordings(texts).of
    assert of["a"] == of["b"] == of["c"] == "a"
    assert of["d"] == "d"
