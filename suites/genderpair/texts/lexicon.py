"""The word lists for the rules that read texts, from ``suites/data/genderpair_rules.json``."""

from __future__ import annotations

from functools import lru_cache

from suites.common.data_files import load

_RULES = load("genderpair_rules").content

#: Pronouns of each group: subject, object, possessive before a noun, possessive alone, reflexive.
FORMS: dict[str, tuple[str, ...]] = {group: tuple(forms) for group, forms in _RULES["forms"].items()}
NEOPRONOUNS: tuple[tuple[str, ...], ...] = tuple(map(tuple, _RULES["neopronouns"]))
#: Auxiliary verbs that agree with their subject.
SINGULAR_TO_PLURAL: dict[str, str] = _RULES["singular_to_plural"]


@lru_cache
def word_sets(rules: str) -> dict[str, frozenset[str]]:
    """The word lists of one set of rules, ``negation`` or ``pronouns``, by name."""
    return {name: frozenset(words) for name, words in _RULES[rules].items()}
