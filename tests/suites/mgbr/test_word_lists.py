"""Word lists: the built-in ones, lists of one's own, and the published ones in hand-made small form."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from backends.errors import ConfigError
from suites.mgbr.word_lists import WordLists

BUILTIN = WordLists.builtin()


def table(**changes: Any) -> dict[str, Any]:
    lists: dict[str, Any] = {
        "feminine": ["mother"],
        "masculine": ["father"],
        "female_occupations": ["nurse"],
        "male_occupations": ["plumber"],
    }
    return {**lists, **changes}


def test_builtin_shares_of_2021_are_those_of_the_occugender_data() -> None:
    data = files("suites").joinpath("data")
    shares = {
        o["occupation"]: o["female_share"]
        for o in json.loads(data.joinpath("occugender.json").read_text("utf-8"))["occupations"]
    }
    words = json.loads(data.joinpath("mgbr_words.json").read_text("utf-8"))
    listed = [*words["female_occupations"], *words["male_occupations"]]
    assert {o["source"] for o in listed} == set(words["sources"])
    taken = {o["occupation"]: o["female_share"] for o in listed if o["source"] == "CPS 2021"}
    assert taken.items() <= shares.items()
    assert set(shares) - set(taken) == {"maid", "sewer"}  # left out for the reason that the file gives


def test_a_config_table_gives_lists_with_or_without_scores() -> None:
    plain = WordLists.from_config(table())
    assert plain == WordLists.checked(
        feminine=("mother",),
        masculine=("father",),
        female_occupations={"nurse": None},
        male_occupations={"plumber": None},
    )
    scored = WordLists.from_config(
        table(female_occupations={"nurse": 0.9}, male_occupations={"plumber": 0.02}, score_name="share", name="mine")
    )
    assert scored.occupations == {"nurse": 0.9, "plumber": 0.02}
    assert (scored.score_name, scored.name) == ("share", "mine")
    assert WordLists.from_config("builtin") == BUILTIN
    assert WordLists.from_config(scored) is scored


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


def test_a_set_has_no_order_so_its_words_are_sorted() -> None:
    women, jobs = {"mother", "aunt", "sister", "niece", "queen"}, {"nurse", "maid", "nanny", "typist"}
    for kind in (set, frozenset):
        lists = WordLists.from_config(table(feminine=kind(women), female_occupations=kind(jobs)))
        assert (lists.feminine, list(lists.female_occupations)) == (tuple(sorted(women)), sorted(jobs))
    listed = WordLists.from_config(table(feminine=["mother", "aunt"]))
    assert listed.feminine == ("mother", "aunt")  # the order of a list is the user's, and part of its hash
