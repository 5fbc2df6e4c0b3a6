"""The groups whose words are listed and counted: women and men as in the paper, or any others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Pool:
    """Words from which lists are drawn.

    Attributes
    ----------
    words : mapping
        Word → its score, or None.
    purpose : str
        Names the draw: equal purposes and words give equal draws.
    field : str
        The option that gives the words, for messages.
    """

    words: Mapping[str, float | None]
    purpose: str
    field: str


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """A group: the words that count, and those that are stereotyped with it and do not.

    Attributes
    ----------
    name : str
    words, stereotyped : Pool
        Without stereotyped words, no question asks about it.
    size : str
        The factor that holds how many of its words a list has.
    test_sets : (str, str)
        The names of its lists without and with stereotyped words.
    """

    name: str
    words: Pool
    stereotyped: Pool
    size: str
    test_sets: tuple[str, str]


class Words(Protocol):
    """The words of all groups.

    Attributes
    ----------
    name : str
        In signatures and reports.
    score_name : str
        What the scores of the stereotyped words are; empty if there are none.
    factor : str
        The factor that holds the group asked about.
    """

    @property
    def name(self) -> str: ...
    @property
    def score_name(self) -> str: ...
    @property
    def factor(self) -> str: ...
    @property
    def counted_groups(self) -> tuple[CountedGroup, ...]: ...
    @property
    def occupations(self) -> Mapping[str, float | None]: ...
    def signature(self) -> dict[str, Any]: ...
