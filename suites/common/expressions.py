"""Expressions of the three groups: words with which a model may continue a prompt, in every spelling that is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from suites.common.groups.declared import Refuse, refuse_option

GROUPS = ("male", "female", "diverse")

#: Expressions by group, in every spelling that is scored.
Expressions = Mapping[str, tuple[str, ...]]


def both_cases(expressions: Sequence[str]) -> tuple[str, ...]:
    """Each expression with an upper-case and a lower-case first letter, each spelling once."""
    return tuple(dict.fromkeys(s for e in expressions for s in (e[0].upper() + e[1:], e[0].lower() + e[1:])))


def spellings(expressions: Mapping[str, Sequence[str]], refuse: Refuse = refuse_option) -> Expressions:
    """Every spelling of the expressions of each of the papers' groups.

    Refuses what would count a probability twice: a spelling in two groups, or an expression
    that is continued by another one ("Gender" and "Gender neutral").
    """
    if set(expressions) != set(GROUPS):
        hint = f"Give {', '.join(GROUPS)}; other groups are named by the option groups"
        raise refuse((), dict(expressions), "not a list of expressions for each group", hint)
    groups = {group: both_cases(expressions[group]) for group in GROUPS}
    spelled = [(group, expression) for group in GROUPS for expression in groups[group]]
    for (group, expression), (other_group, other) in combinations(spelled, 2):
        short, long = sorted((expression, other), key=len)
        if long == short or (long.startswith(short) and not long[len(short)].isalnum()):
            problem = f"would be counted twice, because of {expression!r} ({group})"
            raise refuse((other_group,), other, problem, "Remove one of the two")
    return groups


def continuations(expressions: Expressions, space: str) -> tuple[str, ...]:
    """The continuations to score, group by group, in the order that `probabilities.group_probabilities` expects.

    A spelling that is listed twice is scored once.
    """
    return tuple(dict.fromkeys([space + e for words in expressions.values() for e in words]))
