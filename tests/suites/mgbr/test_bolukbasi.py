"""The published lists: separating feminine from masculine, choosing occupations, refusing other files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.errors import ConfigError
from suites import MGBR
from suites.mgbr.bolukbasi import FILES, Profession, choose_occupations, gender_of, split_by_gender
from suites.mgbr.word_lists import WordLists
from tests.suites.mgbr.planted import lists_of

#: The published files lie next to the repository, where they are present at all.
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "debiaswe"
needs_published = pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published files are not in {PUBLISHED}")


@pytest.mark.parametrize(
    ("word", "gender"),
    [
        ("women", "feminine"),
        ("spokeswoman", "feminine"),
        ("stepdaughters", "feminine"),
        ("twin_sister", "feminine"),
        ("actress", "feminine"),
        ("princess", "feminine"),
        ("mare", None),
        ("sorority", None),
        ("witch_doctor", None),
        ("menopause", None),
    ],
)
def test_the_last_part_of_a_word_tells_its_gender(word: str, gender: str | None) -> None:
    assert gender_of(word) == gender


def test_words_without_a_gender_here_are_left_out() -> None:
    words = ["she", "He", "tomboys", "semen", "niece", "twin_brother", "mare", "vacuum_cleaner_salesman", "niece"]
    feminine, masculine = split_by_gender(words)
    assert feminine == ("she", "niece")
    assert masculine == ("twin brother",)


def test_occupations_are_strong_stereotypes_weak_by_definition() -> None:
    rated = [
        Profession("nurse", -0.1, -0.9),
        Profession("waitress", -0.9, -0.1),
        Profession("maid", -0.4, -0.6),
        Profession("captain", 0.0, 0.7),
        Profession("author", 0.0, 0.1),
        Profession("edge f", -0.3, -0.5),
        Profession("soft spoken", -0.1, -0.9),  # rated, and no occupation
    ]
    assert choose_occupations(rated, definitional=0.3, stereotypical=0.5) == (
        {"nurse": -0.9, "edge f": -0.5},
        {"captain": 0.7},
    )


@needs_published
def test_the_rules_agree_with_the_published_pairs_of_opposites() -> None:
    # Independent evidence: the rules never look at the pairs.
    definitional = json.loads((PUBLISHED / "definitional_pairs.json").read_text("utf-8"))
    equalize = json.loads((PUBLISHED / "equalize_pairs.json").read_text("utf-8"))
    for feminine, masculine in definitional[:-1]:  # the last pair is Mary and John
        assert (gender_of(feminine), gender_of(masculine)) == ("feminine", "masculine")
    decided = 0
    for a, b in equalize:
        genders = {gender_of(a.lower()), gender_of(b.lower())}
        assert genders in ({"feminine", "masculine"}, {None}, {None, "feminine"}, {None, "masculine"}), (a, b)
        decided += None not in genders
    assert decided >= 40


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bolukbasi": 3}, r"words\.bolukbasi = 3: not a folder"),
        ({"bolukbasi": True, "limit": 3}, r"words\.limit = 3: unknown field"),
        ({"bolukbasi": True, "stereotypical": 0}, r"words\.stereotypical = 0"),
        ({"bolukbasi": True, "definitional": "weak"}, r"words\.definitional = 'weak'"),
    ],
)
def test_options_of_published_lists_are_checked_before_fetching(given: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WordLists.from_config(given)  # type: ignore[arg-type]


@needs_published
def test_the_benchmark_runs_on_the_published_lists_and_says_so() -> None:
    suite = MGBR(n=20, words={"bolukbasi": str(PUBLISHED)}, conditions=["zero-shot"])
    assert len(lists_of(suite)) == 80
    assert suite.signature()["words"] == "bolukbasi(definitional<=0.3, stereotypical>=0.5)"
    signature = suite.signature()["word_lists"]
    assert signature["sources"]["professions.json"] == FILES["professions.json"].sha256
    assert signature["sha256"] != MGBR(n=20).signature()["word_lists"]["sha256"]
