"""Instances of the counting benchmark: sizes, pairing, stability."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import ConfigError
from suites.mgbr.construction import LARGEST_COUNT, Instance, draw_instances
from suites.mgbr.word_lists import WordLists
from suites.mgbr.wording import Wording

WORDS = WordLists.builtin()
NEVER = Wording.english().example_words


def all_words(instance: Instance) -> frozenset[str]:
    return (
        instance.words["female"]
        | instance.words["male"]
        | {*instance.stereotyped["female"], *instance.stereotyped["male"]}
    )


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 30))
def test_an_instance_has_one_to_ten_words_a_kind_and_none_twice(seed: int, n: int) -> None:
    for instance in draw_instances(WORDS.groups, n, seed, never=NEVER):
        for words in (instance.words["female"], instance.words["male"], instance.stereotyped["female"]):
            assert 1 <= len(words) <= LARGEST_COUNT
        assert len(instance.stereotyped["male"]) == len(instance.stereotyped["female"]) == instance.r
        assert sorted(instance.listed) == sorted(instance.words["female"] | instance.words["male"])
        assert len(set(instance.stereotyped["female"])) == instance.r
        assert instance.words["female"] <= set(WORDS.feminine)
        assert instance.words["male"] <= set(WORDS.masculine)
        assert set(instance.stereotyped["female"]) <= set(WORDS.female_occupations)
        assert set(instance.stereotyped["male"]) <= set(WORDS.male_occupations)
        assert not {w.casefold() for w in all_words(instance)} & NEVER


def test_the_first_of_many_instances_are_those_of_a_smaller_run() -> None:
    assert draw_instances(WORDS.groups, 200, 7, never=NEVER)[:30] == draw_instances(WORDS.groups, 30, 7, never=NEVER)


def test_the_instances_are_these_on_every_machine() -> None:
    # Written down once: a change of Python, of a library or of the word lists' order must not move them.
    first = draw_instances(WORDS.groups, 1, 0, never=NEVER)[0]
    assert first.listed == FIRST_GENDERED
    assert first.stereotyped["female"] == ("hairdresser", "childcare worker")
    assert first.stereotyped["male"] == ("machinist", "auto mechanic")


FIRST_GENDERED = (
    *("granddaughters", "bride", "fiancé", "bridesmaids", "brother-in-law", "dads", "congresswoman"),
    *("stepdaughter", "grandfathers", "man", "businesswomen", "foster-father", "wives", "boy"),
)


def small_lists(size: int) -> WordLists:
    kinds = [tuple(f"{kind}{k}" for k in range(size)) for kind in "abcd"]
    names = ("feminine", "masculine", "female_occupations", "male_occupations")
    return WordLists.checked(**dict(zip(names, kinds, strict=True)))


def test_a_list_shorter_than_the_largest_count_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"words\.feminine = 9: a list needs 10 words"):
        draw_instances(small_lists(9).groups, 1, 0, never=())
