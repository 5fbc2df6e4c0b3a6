import pytest

from backends.errors import ConfigError
from suites import OccuGender
from suites.common.expressions import both_cases


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
