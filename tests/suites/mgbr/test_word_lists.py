"""Word lists: the built-in ones, lists of one's own, and the published ones in hand-made small form."""

from __future__ import annotations

from typing import Any

import pytest

from backends.errors import ConfigError
from suites.mgbr.word_lists import WordLists


def table(**changes: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {
        "feminine": ["mother"],
        "masculine": ["father"],
        "female_occupations": ["nurse"],
        "male_occupations": ["plumber"],
    }
    return {**lists, **changes}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"feminine": ["a"]}, r"words\.masculine = None: missing"),
        (table(feminine=["mother", "Father"]), r"words\.masculine = 'father': also in feminine"),
        (table(feminine=["mother, aunt"]), r"words\.feminine = 'mother, aunt': not a plain word"),
        (table(female_occupations={"nurse": 0.9}, score_name="share"), "'plumber': has no score, others have"),
        (table(female_occupations={"nurse": 0.9}, male_occupations={"plumber": 0.1}), "the scores have no name"),
        (table(female_occupations=["nurse", "nurse"]), r"female_occupations = 'nurse': listed twice"),
        (table(feminine={"mother": 0.9}), r"words\.feminine = \{'mother': 0\.9\}: not a list of words"),
    ],
)
def test_lists_that_cannot_work_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WordLists.from_config(given)
