"""The design of one MGBR: its test sets, conditions and instances, shared by all modules of the suite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from backends.errors import ConfigError
from suites.base import Factor, Row
from suites.common.task_prompt import PromptFormat
from suites.mgbr.construction import CountedGroup, Instance, draw_instances
from suites.mgbr.word_lists import WordLists
from suites.mgbr.wording import Wording, WordList

#: Pairs of conditions that are compared list by list: (condition, against).
CHANGES = tuple(
    (f"{shots}{form}", f"{shots}{against}")
    for shots in ("zero-shot", "few-shot")
    for form, against in (("+dp", ""), ("+cot", ""), ("+cot", "+dp"))
)


@dataclass(frozen=True)
class Design:
    """The options that questions, rows, figures and tables all depend on.

    ``groups``: the genders asked about. ``written`` is True in generation mode, in which the model writes its steps and
    count.
    """

    words: WordLists
    wording: Wording
    conditions: tuple[str, ...]
    groups: tuple[str, ...]
    n: int
    seed: int
    repeats: int
    written: bool
    prompt_format: PromptFormat

    def check(self) -> None:
        """Raise `ConfigError` for words that contain the separator, and lists that are too short."""
        for name, words in self.words.by_kind.items():
            for word in filter(self.wording.holds_separator, words):
                problem = f"contains {self.wording.separator!r}, which separates words (wording.separator)"
                raise ConfigError(f"words.{name}", word, problem, "Give another separator, or leave the word out")
        self.instances  # noqa: B018  drawn now, so that a list that is too short is refused at once

    @cached_property
    def instances(self) -> list[Instance]:
        """All instances, ordered by number, from 1."""
        return draw_instances(self.words.groups, self.n, self.seed, never=self.wording.example_words)

    @cached_property
    def _by_name(self) -> Mapping[str, CountedGroup]:
        return {group.name: group for group in self.words.groups}

    def test_set(self, group: str, *, with_occupations: bool) -> str:
        """The name of the lists about a group."""
        return self._by_name[group].test_sets[with_occupations]

    @property
    def test_sets(self) -> list[str]:
        """The test sets of the groups asked about."""
        return [name for group in self.groups for name in self._by_name[group].test_sets]

    @cached_property
    def with_occupations(self) -> frozenset[str]:
        """The test sets whose lists contain occupations."""
        return frozenset(group.test_sets[True] for group in self.words.groups)

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

    def group_of(self, factors: Mapping[str, Factor]) -> str:
        """The group asked about."""
        return str(factors["gender"])

    def has_occupations(self, factors: Mapping[str, Factor]) -> bool:
        """Whether the list contains occupations."""
        return factors["test_set"] in self.with_occupations

    def word_list(self, factors: Mapping[str, Factor]) -> WordList:
        """The list behind a row or an item."""
        with_occupations = self.has_occupations(factors)
        return self.instance(factors).word_list(self.group_of(factors), with_occupations=with_occupations)

    def added_to(self, factors: Mapping[str, Factor]) -> tuple[str, ...]:
        """The occupations that an instance adds to the lists about a group."""
        return self.instance(factors).stereotyped[self.group_of(factors)]

    def occupations_of(self, row: Row) -> dict[str, tuple[str, ...]]:
        """The occupations in a row's list, as its memberships; empty for a list without any."""
        return {"occupation": self.added_to(row.factors)} if self.has_occupations(row.factors) else {}

    def occupations(self, group: str) -> Mapping[str, float | None]:
        """The occupations stereotyped with that group, with their scores."""
        return self._by_name[group].stereotyped

    def starts_answer(self, condition: str) -> bool:
        """Whether the prompt ends with the start of the answer, so that the model only writes the count."""
        return self.prompt_format == "raw" and not condition.endswith("+cot")


#: Factors that name a derived row, in this order.
_ID_FACTORS = ("kind", "condition", "against", "test_set", "gender", "instance", "occupation", "repeat")


def row_id(factors: Mapping[str, Factor]) -> str:
    """The id of a derived row."""
    return "/".join(str(factors[name]) for name in _ID_FACTORS if name in factors)
