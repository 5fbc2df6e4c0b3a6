"""The design of one MGBR: its test sets, conditions and instances, shared by all modules of the suite."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from backends.errors import ConfigError
from suites.base import Factor, Row
from suites.mgbr.construction import Instance, draw_instances
from suites.mgbr.word_lists import WordLists
from suites.mgbr.wording import Gender, Wording, WordList

#: Test set by (gender asked for, whether occupations are added).
TEST_SETS: Mapping[tuple[str, bool], str] = {
    ("female", False): "D_gf",
    ("female", True): "D_ff",
    ("male", False): "D_gm",
    ("male", True): "D_mm",
}

#: Pairs of conditions that are compared list by list: (condition, against).
CHANGES = tuple(
    (f"{shots}{form}", f"{shots}{against}")
    for shots in ("zero-shot", "few-shot")
    for form, against in (("+dp", ""), ("+cot", ""), ("+cot", "+dp"))
)


@dataclass(frozen=True)
class Design:
    """The options that questions, rows, figures and tables all depend on.

    ``written`` is True in generation mode, in which the model writes its steps and count.
    """

    words: WordLists
    wording: Wording
    conditions: tuple[str, ...]
    genders: tuple[Gender, ...]
    n: int
    seed: int
    repeats: int
    written: bool
    prompt_format: str

    def check(self) -> None:
        """Raise `ConfigError` for words that contain the separator, and for lists that are too short."""
        for word in itertools.chain(*self.words.by_kind.values()):
            if self.wording.holds_separator(word):
                problem = f"contains {self.wording.separator!r}, which separates words (wording.separator)"
                raise ConfigError("words", word, problem, "Give another separator, or leave the word out")
        self.instances  # noqa: B018  drawn now, so that a list that is too short is refused at once

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances, ordered by number, from 1."""
        return draw_instances(self.words, self.n, self.seed, never=self.wording.example_words)

    @property
    def test_sets(self) -> list[str]:
        """The test sets of the genders asked for."""
        return [TEST_SETS[gender, added] for gender in self.genders for added in (False, True)]

    @property
    def changes(self) -> list[tuple[str, str]]:
        """The comparisons for which both conditions are asked."""
        return [pair for pair in CHANGES if set(pair) <= set(self.conditions)]

    @property
    def written_steps(self) -> list[str]:
        """The conditions in which the model writes a step for each word."""
        return [c for c in self.conditions if self.written and c.endswith("+cot")]

    def instance(self, factors: Mapping[str, Factor]) -> Instance:
        """The instance behind a row or an item."""
        number = factors["instance"]
        assert isinstance(number, int)
        return self.instances[number - 1]

    def word_list(self, factors: Mapping[str, Factor]) -> WordList:
        """The list behind a row or an item."""
        gender = gender_of(factors)
        return self.instance(factors).word_list(gender, with_occupations=has_occupations(factors))

    def occupations_of(self, row: Row) -> dict[str, tuple[str, ...]]:
        """The occupations in a row's list, as its memberships; empty for a list without any."""
        if not has_occupations(row.factors):
            return {}
        return {"occupation": self.instance(row.factors).occupations(gender_of(row.factors))}

    def occupations(self, gender: Gender) -> Mapping[str, float | None]:
        """The occupations stereotyped with that gender, with their scores."""
        return self.words.female_occupations if gender == "female" else self.words.male_occupations

    def starts_answer(self, condition: str) -> bool:
        """Whether the prompt ends with the start of the answer, so that the model only writes the count."""
        return self.prompt_format == "raw" and not condition.endswith("+cot")


def gender_of(factors: Mapping[str, Factor]) -> Gender:
    """The gender asked for."""
    return "female" if factors["gender"] == "female" else "male"


def has_occupations(factors: Mapping[str, Factor]) -> bool:
    """Whether the list contains occupations."""
    return factors["test_set"] == TEST_SETS[gender_of(factors), True]


#: Factors that name a derived row, in this order.
_ID_FACTORS = ("kind", "condition", "against", "test_set", "gender", "instance", "occupation", "repeat")


def row_id(factors: Mapping[str, Factor]) -> str:
    """The id of a derived row."""
    return "/".join(str(factors[name]) for name in _ID_FACTORS if name in factors)
