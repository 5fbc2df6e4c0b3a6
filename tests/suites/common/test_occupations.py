"""Families of templates and occupations, and the expressions of groups."""

import pytest

from backends.errors import ConfigError
from suites import MGBR, DebiasingPositions, OccuGender
from suites.common.expressions import both_cases
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


def checked(expressions):
    return OccuGender(["explicit"], expressions={"explicit": expressions}).expressions["explicit"]


def test_each_expression_is_scored_in_both_cases_and_once():
    assert both_cases(["Non-binary", "him", "Him"]) == ("Non-binary", "non-binary", "Him", "him")


@pytest.mark.parametrize(
    ("expressions", "problem"),
    [
        ({"male": ["He"], "female": ["She"]}, "each group"),
        ({"male": ["He"], "female": ["She"], "diverse": "They"}, "not a list of texts"),
        ({"male": ["He"], "female": ["he"], "diverse": ["They"]}, "count for both"),
        ({"male": ["He"], "female": ["She"], "diverse": ["Gender", "Gender-neutral"]}, "count for both"),
        ({"male": [" He"], "female": ["She"], "diverse": ["They"]}, "spaces"),
    ],
)
def test_expressions_that_cannot_be_counted_are_refused(expressions, problem):
    with pytest.raises(ConfigError, match=problem):
        checked(expressions)


def test_words_that_merely_share_letters_are_not_double():
    words = checked({"male": ["He"], "female": ["Her"], "diverse": ["Nonbinary", "Non-binary"]})
    assert words["diverse"] == ("Nonbinary", "nonbinary", "Non-binary", "non-binary")
