"""Draws the word lists of the counting benchmark.

An instance has p feminine words, q masculine words and r occupations of each stereotype; p, q and r are
uniform on 1 to 10, and the words are drawn without replacement. Its four lists are

    D_gf, D_gm   the p + q gendered words
    D_ff         the same words, then the r occupations stereotyped female
    D_mm         the same words, then the r occupations stereotyped male

so a list with occupations differs from its partner only in these. Draws are made by hashing
(seed, instance, word): they do not depend on a library's random generator, the first 50 of 1,000
instances are the 50 instances of a smaller run, and a word added to a list changes only the
instances that draw it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.errors import ConfigError
from suites.mgbr.wording import WordList

LARGEST_COUNT = 10


@dataclass(frozen=True, slots=True)
class Pool:
    """Words from which lists are drawn, each with its score, or None.

    ``purpose`` names the draw: equal purposes and words give equal draws. ``field`` is the option that gives the words,
    for messages.
    """

    words: Mapping[str, float | None]
    purpose: str
    field: str


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """A group: the words that count, and those that are stereotyped with it and do not.

    Without ``stereotyped`` words, no question asks about it. ``size`` is the factor that holds how many of its words a
    list has, ``test_sets`` are the names of its lists without and with stereotyped words.
    """

    name: str
    words: Pool
    stereotyped: Pool
    size: str
    test_sets: tuple[str, str]


@dataclass(frozen=True, slots=True)
class CountedWords:
    """The words of women and men; ``score_name`` is what the scores of the stereotyped words are, empty without."""

    name: str
    score_name: str
    groups: tuple[CountedGroup, ...]
    signature: Mapping[str, Any]

    @property
    def occupations(self) -> Mapping[str, float | None]:
        """All stereotyped words with their scores."""
        return {word: score for group in self.groups for word, score in group.stereotyped.words.items()}


@dataclass(frozen=True, slots=True)
class Instance:
    """The words of one instance, by group; ``listed`` are those of all groups in the order listed.

    ``number`` counts from 1; ``stereotyped`` maps a group to the occupations that are added to its list.
    """

    number: int
    words: Mapping[str, frozenset[str]]
    listed: tuple[str, ...]
    stereotyped: Mapping[str, tuple[str, ...]]

    @property
    def r(self) -> int:
        """The number of occupations that it adds to a list."""
        return len(next(iter(self.stereotyped.values())))

    def correct(self, group: str) -> int:
        """How many of its words are of that group."""
        return len(self.words[group])

    def word_list(self, group: str, *, with_occupations: bool) -> WordList:
        """The words of a question, and which of them are of that group."""
        added = self.stereotyped[group] if with_occupations else ()
        return WordList((*self.listed, *added), self.words[group])


def draw_instances(groups: Sequence[CountedGroup], n: int, seed: int, *, never: Collection[str]) -> list[Instance]:
    """Draw ``n`` instances. No two have the same words that count, so no test set contains a list twice.

    ``never`` are words that must not be drawn (those of the few-shot examples), in lower case. Raises `ConfigError` if
    a list is too short for `LARGEST_COUNT` words, or for ``n`` instances.
    """
    asked = [group for group in groups if group.stereotyped.words]
    for pool in (*(group.words for group in groups), *(group.stereotyped for group in asked)):
        if (left := len(_allowed(pool, never))) < LARGEST_COUNT:
            problem = f"a list needs {LARGEST_COUNT} words that are not in the few-shot examples"
            raise ConfigError(pool.field, left, problem, "Add words")
    instances: dict[frozenset[str], Instance] = {}
    attempt = 0
    draw = _Draw(groups, never, seed)
    while len(instances) < n:
        if attempt > 20 * n + 1000:
            raise ConfigError("n", n, "the word lists do not allow that many different instances", "Lower it")
        drawn = draw.instance(attempt, number=len(instances) + 1)
        instances.setdefault(frozenset(drawn.listed), drawn)
        attempt += 1
    return list(instances.values())


def _allowed(pool: Pool, never: Collection[str]) -> list[str]:
    return [word for word in pool.words if word.casefold() not in never]


class _Draw:
    """Draws instances by hashing."""

    def __init__(self, groups: Sequence[CountedGroup], never: Collection[str], seed: int) -> None:
        self._groups, self._seed = groups, seed
        pools = [pool for group in groups for pool in (group.words, group.stereotyped)]
        self._words = {pool.purpose: _allowed(pool, never) for pool in pools}

    def instance(self, attempt: int, *, number: int) -> Instance:
        words = {group.name: self._some(group.words, attempt, group.size) for group in self._groups}
        stereotyped = {g.name: self._some(g.stereotyped, attempt, "r") for g in self._groups if g.stereotyped.words}
        listed = self._shuffled([word for of_group in words.values() for word in of_group], attempt, "order")
        return Instance(number, {name: frozenset(of) for name, of in words.items()}, tuple(listed), stereotyped)

    def _some(self, pool: Pool, attempt: int, size: str) -> tuple[str, ...]:
        """As many words as the hash of ``size`` says."""
        count = 1 + _hash(self._seed, attempt, size) % LARGEST_COUNT
        return tuple(self._shuffled(self._words[pool.purpose], attempt, pool.purpose)[:count])

    def _shuffled(self, words: Iterable[str], attempt: int, purpose: str) -> list[str]:
        begun = _joined(self._seed, attempt, purpose, "")  # the same for all of them, of which there are many
        return sorted(words, key=lambda word: hashlib.sha256(begun + word.encode("utf-8")).digest()[:16])


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(_joined(*parts)).digest()[:16], "big")


def _joined(*parts: object) -> bytes:
    return "\x1f".join(map(str, parts)).encode("utf-8")
