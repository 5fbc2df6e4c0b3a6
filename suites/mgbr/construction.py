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

from backends.errors import ConfigError
from suites.mgbr.wording import WordList

LARGEST_COUNT = 10


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """A group: the words that count, and those that are stereotyped with it and do not, each with its score, or None.

    ``lists``: the names of these two lists, by which words are drawn: equal names and words give equal draws. ``size``
    is the factor that holds how many of its words a list has, ``test_sets`` are the names of its lists without and with
    stereotyped words.
    """

    name: str
    lists: tuple[str, str]
    words: Mapping[str, float | None]
    stereotyped: Mapping[str, float | None]
    size: str
    test_sets: tuple[str, str]

    @property
    def by_list(self) -> dict[str, Mapping[str, float | None]]:
        """The words of each list by its name."""
        return dict(zip(self.lists, (self.words, self.stereotyped), strict=True))


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

    def word_list(self, group: str, *, with_occupations: bool) -> WordList:
        """The words of a question, and which of them are of that group."""
        added = self.stereotyped[group] if with_occupations else ()
        return WordList((*self.listed, *added), self.words[group])


def draw_instances(groups: Sequence[CountedGroup], n: int, seed: int, *, never: Collection[str]) -> list[Instance]:
    """Draw ``n`` instances. No two have the same words that count, so no test set contains a list twice.

    ``never`` are words that must not be drawn (those of the few-shot examples), in lower case. Raises `ConfigError` if
    a list is too short for `LARGEST_COUNT` words, or for ``n`` instances.
    """
    allowed = {
        name: [word for word in words if word.casefold() not in never]
        for group in groups
        for name, words in group.by_list.items()
    }
    for name, words in allowed.items():
        if len(words) < LARGEST_COUNT:
            problem = f"a list needs {LARGEST_COUNT} words that are not in the few-shot examples"
            raise ConfigError(f"words.{name}", len(words), problem, "Add words")
    instances: dict[frozenset[str], Instance] = {}
    attempt = 0
    while len(instances) < n:
        if attempt > 20 * n + 1000:
            raise ConfigError("n", n, "the word lists do not allow that many different instances", "Lower it")
        drawn = _instance(groups, allowed, seed, attempt, number=len(instances) + 1)
        instances.setdefault(frozenset(drawn.listed), drawn)
        attempt += 1
    return list(instances.values())


def _instance(
    groups: Sequence[CountedGroup], allowed: Mapping[str, Sequence[str]], seed: int, attempt: int, *, number: int
) -> Instance:
    """One instance, drawn by hashing."""

    def shuffled(words: Iterable[str], purpose: str) -> list[str]:
        begun = _joined(seed, attempt, purpose, "")  # the same for all of them, of which there are many
        return sorted(words, key=lambda word: hashlib.sha256(begun + word.encode("utf-8")).digest()[:16])

    def some(name: str, size: str) -> tuple[str, ...]:
        """As many words of a list as the hash of ``size`` says."""
        count = 1 + _hash(seed, attempt, size) % LARGEST_COUNT
        return tuple(shuffled(allowed[name], name)[:count])

    words = {group.name: some(group.lists[0], group.size) for group in groups}
    stereotyped = {group.name: some(group.lists[1], "r") for group in groups}
    listed = shuffled([word for of_group in words.values() for word in of_group], "order")
    return Instance(number, {name: frozenset(of) for name, of in words.items()}, tuple(listed), stereotyped)


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(_joined(*parts)).digest()[:16], "big")


def _joined(*parts: object) -> bytes:
    return "\x1f".join(map(str, parts)).encode("utf-8")
