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
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from backends.errors import ConfigError
from suites.mgbr.word_lists import WordLists
from suites.mgbr.wording import Gender, WordList

LARGEST_COUNT = 10


@dataclass(frozen=True, slots=True)
class Instance:
    """The words of one instance; ``gendered`` holds its feminine and masculine words in the order listed."""

    number: int
    feminine: frozenset[str]
    masculine: frozenset[str]
    gendered: tuple[str, ...]
    female_occupations: tuple[str, ...]
    male_occupations: tuple[str, ...]

    @property
    def r(self) -> int:
        """The number of occupations that it adds to a list."""
        return len(self.female_occupations)

    def correct(self, gender: Gender) -> int:
        """How many of its words are of that gender."""
        return len(self.feminine if gender == "female" else self.masculine)

    def occupations(self, gender: Gender) -> tuple[str, ...]:
        """The occupations stereotyped with that gender."""
        return self.female_occupations if gender == "female" else self.male_occupations

    def word_list(self, gender: Gender, *, with_occupations: bool) -> WordList:
        """The words of a question, and which of them are of that gender."""
        added = self.occupations(gender) if with_occupations else ()
        return WordList((*self.gendered, *added), self.feminine if gender == "female" else self.masculine)


def draw_instances(words: WordLists, n: int, seed: int, *, never: Collection[str]) -> list[Instance]:
    """Draw ``n`` instances. No two have the same gendered words, so no test set contains a list twice.

    Parameters
    ----------
    never : collection of str
        Words that must not be drawn (those of the few-shot examples), in lower case.

    Raises
    ------
    ConfigError
        If a list is too short for `LARGEST_COUNT` words, or for ``n`` instances.
    """
    pools = {kind: [w for w in of_kind if w.casefold() not in never] for kind, of_kind in words.by_kind.items()}
    for kind, pool in pools.items():
        if len(pool) < LARGEST_COUNT:
            raise ConfigError(
                f"words.{kind}",
                len(pool),
                f"a list needs {LARGEST_COUNT} words that are not in the few-shot examples",
                "Add words",
            )
    instances: dict[frozenset[str], Instance] = {}
    attempt = 0
    while len(instances) < n:
        if attempt > 20 * n + 1000:
            raise ConfigError("n", n, "the word lists do not allow that many different instances", "Lower it")
        drawn = _draw(pools, seed, attempt, number=len(instances) + 1)
        instances.setdefault(drawn.feminine | drawn.masculine, drawn)
        attempt += 1
    return list(instances.values())


def _draw(pools: dict[str, list[str]], seed: int, attempt: int, *, number: int) -> Instance:
    def count(name: str) -> int:
        return 1 + _hash(seed, attempt, name) % LARGEST_COUNT

    def words(kind: str, size: int) -> tuple[str, ...]:
        return tuple(_shuffled(pools[kind], seed, attempt, kind)[:size])

    feminine, masculine, r = words("feminine", count("p")), words("masculine", count("q")), count("r")
    return Instance(
        number,
        frozenset(feminine),
        frozenset(masculine),
        tuple(_shuffled((*feminine, *masculine), seed, attempt, "order")),
        words("female_occupations", r),
        words("male_occupations", r),
    )


def _shuffled(words: Iterable[str], seed: int, attempt: int, purpose: str) -> list[str]:
    return sorted(words, key=lambda word: _hash(seed, attempt, purpose, word))


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8")).digest()[:16], "big")
