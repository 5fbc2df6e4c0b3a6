"""Expressions of the three groups: words that a model may continue a prompt with, in each spelling that is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated

from pydantic import AfterValidator, Field

from backends.options import AS_TUPLE, OnError, refused, refused_at

GROUPS = ("male", "female", "diverse")
_EACH_GROUP = OnError("not a list of expressions for each group", f"Give {', '.join(GROUPS)}")

#: Expressions by group, in every spelling that is scored.
Expressions = Mapping[str, tuple[str, ...]]


def both_cases(expressions: Sequence[str]) -> tuple[str, ...]:
    """Each expression with a capital and with a small first letter, each spelling once."""
    return tuple(dict.fromkeys(s for e in expressions for s in (e[0].upper() + e[1:], e[0].lower() + e[1:])))


def spellings(expressions: Mapping[str, Sequence[str]]) -> Expressions:
    """Every spelling of the expressions of each group.

    Refuses what would count a probability twice: one spelling in two groups, or an expression
    that another one continues ("Gender" and "Gender neutral").
    """
    if set(expressions) != set(GROUPS):
        raise refused(_EACH_GROUP.problem, _EACH_GROUP.hint)
    groups = {group: both_cases(expressions[group]) for group in GROUPS}
    spelled = [(group, expression) for group in GROUPS for expression in groups[group]]
    for (group, expression), (other_group, other) in combinations(spelled, 2):
        short, long = sorted((expression, other), key=len)
        if long == short or (long.startswith(short) and not long[len(short)].isalnum()):
            problem = f"counted twice, because of {expression!r} ({group})"
            raise refused_at((other_group,), other, problem, "Remove one of the two")
    return groups


def _without_spaces(word: str) -> str:
    if word != word.strip():
        raise refused("has spaces around it", "Remove them; they are added")
    return word


_Word = Annotated[str, Field(min_length=1), AfterValidator(_without_spaces)]
_Words = Annotated[tuple[_Word, ...], AS_TUPLE, Field(min_length=1), OnError("not a list of words", "Give one or more")]

#: The option: words of each group, as `spellings`.
GroupWords = Annotated[Mapping[str, _Words], AfterValidator(spellings), _EACH_GROUP]


def continuations(expressions: Expressions, space: str) -> tuple[str, ...]:
    """The continuations to score, group by group; `probabilities.group_probabilities` reads them in this order.

    A spelling that is listed twice is scored once.
    """
    return tuple(dict.fromkeys(space + e for words in expressions.values() for e in words))
