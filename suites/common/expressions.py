"""Expressions of groups: words with which a model may continue a prompt, in every spelling that is scored."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import permutations

from backends.options import Place
from backends.reading.words import comparable, is_word_character
from suites.common.groups.declared import Refuse, refuse_option

GROUPS = ("male", "female", "diverse")

#: Expressions by group, in every spelling that is scored.
Expressions = Mapping[str, tuple[str, ...]]


def both_cases(expressions: Sequence[str]) -> tuple[str, ...]:
    """Each expression with an upper-case and a lower-case first letter, each spelling once."""
    return tuple(dict.fromkeys(s for e in expressions for s in (e[0].upper() + e[1:], e[0].lower() + e[1:])))


def spellings(expressions: Mapping[str, Sequence[str]], place: Place = ()) -> Expressions:
    """Every spelling of the expressions of each of the papers' groups; ``place``: where they are given, for errors."""
    if set(expressions) != set(GROUPS):
        hint = f"Give {', '.join(GROUPS)}; other groups are named by the option groups"
        raise refuse_option(place, dict(expressions), "not a list of expressions for each group", hint)
    groups = {group: both_cases(expressions[group]) for group in GROUPS}
    refuse_double(groups, place, refuse_option, within_a_group=True)
    return groups


def refuse_double(
    expressions: Mapping[str, Sequence[str]], place: Place, refuse: Refuse, *, within_a_group: bool = False
) -> None:
    """Refuse an expression in two groups, and one that another group's continues: "Gender" and "Gender neutral".

    A continuation without a space, such as "profesora" of "profesor", does not make the shorter one ambiguous.
    """
    spelled = [(group, comparable(word)) for group, words in expressions.items() for word in words]
    for (group, word), (other_group, other) in permutations(spelled, 2):
        if group == other_group and not within_a_group:
            continue
        if other.startswith(word) and (word == other or not is_word_character(other[len(word)])):
            found = f"also an expression of {group!r}" if word == other else f"continues {word!r} of {group!r}"
            problem = f"{found}: its probability would count for both"
            raise refuse((*place, other_group), other, problem, "Remove one of the two")


def without_spaces(character: str) -> bool:
    """Whether a letter belongs to a script without spaces between words."""
    return unicodedata.name(character, "").startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER"))


def continuations(expressions: Expressions, space: str) -> tuple[str, ...]:
    """The continuations to score, group by group, each once, as `probabilities.group_probabilities` expects them."""
    return tuple(dict.fromkeys([space + e for words in expressions.values() for e in words]))
