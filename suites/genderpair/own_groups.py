"""GenderPair about groups of a user's own: the words that name each group, and its pairs of descriptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError
from backends.reading.words import comparable
from suites.common.groups.declared import Group as DeclaredGroup
from suites.common.groups.declared import Name, Sentence, refuse_option
from suites.common.groups.design import GroupDesign
from suites.common.groups.options import FormFields, GroupOptions
from suites.common.groups.weights import Weights
from suites.common.task_prompt import PromptFormat, check_form
from suites.genderpair.design import DEFAULT_FORM
from suites.genderpair.pairs import GROUPS, Group, Pair, PairSet, pair_set

_PairOption = Annotated[
    tuple[Sentence, Sentence], AS_TUPLE, OnError("not a pair of descriptors", "Give the stereotype and its counterpart")
]
OwnPairs = Annotated[tuple[_PairOption, ...], AS_TUPLE, Field(min_length=1)]
#: The option: pairs for all groups, or those of each.
PairsOfGroups = OwnPairs | dict[Name, OwnPairs]

#: The aspect of targets that are a group's expressions.
ASPECT = "expressions"
#: Signs that separate or mark words in a prompt.
_SIGNS = ",(){}[]"


#: The groups of the paper.
_PAPERS_GROUPS = GroupDesign({group: {} for group in GROUPS}, GROUPS)
#: What other figures of this suite are named after their quantity.
_TAKEN = ("balanced", "released", "by_text", "by_likelihood", "sd", "repeat_sd")


@dataclass(frozen=True)
class AskedGroups:
    """Which groups are asked about, and in which form.

    ``own``: the user's own groups; None for those of the paper. ``contrasts``: name → group → weight.
    ``form``, ``separator``: the raw prompt, and what stands between it and an answer. ``signature``: the options that
    differ from their defaults.
    """

    names: tuple[str, ...]
    own: Mapping[str, DeclaredGroup] | None
    contrasts: Mapping[str, Weights]
    form: str
    separator: str
    signature: Mapping[str, Any]


def asked_groups(
    groups: Sequence[str] | Mapping[str, DeclaredGroup], details: FormFields, prompt_format: PromptFormat
) -> AskedGroups:
    """The groups of the paper, or a user's own.

    Raises `ConfigError` for an option that cannot be used.
    """
    separator = details.pop("separator", "")
    own = dict(groups) if isinstance(groups, Mapping) else None
    given = GroupOptions(groups=own, **details)
    design = given.design(_PAPERS_GROUPS)
    if prompt_format == "chat" and separator:
        raise ConfigError("separator", separator, "is for raw prompts", "Leave it out")
    if given.form is not None:
        check_form(given.form, separator, prompt_format, has_start=False, refuse=refuse_option)
    names = tuple(groups)
    for contrast, weights in design.contrasts.items():
        if contrast in _TAKEN:
            raise ConfigError(f"contrasts.{contrast}", contrast, "ends the name of another measure", "Give it another")
        if absent := [group for group in weights if group not in names]:
            raise ConfigError(f"contrasts.{contrast}", absent[0], "not asked about", "Name it in groups")
    signature = {**given.given, **({"separator": separator} if separator else {})}
    form = DEFAULT_FORM if given.form is None else given.form
    return AskedGroups(names, own, design.contrasts, form, separator, signature)


def chosen_pairs(given: str | Path | PairSet | PairsOfGroups, own: Mapping[str, DeclaredGroup] | None) -> PairSet:
    """The pairs of the paper's groups, or with ``own`` groups those of these.

    Raises `ConfigError` for pairs that are not of these groups, see `own_pair_set` and
    `suites.genderpair.pairs.pair_set`.
    """
    if isinstance(given, str | Path | PairSet):
        if own is None:
            return pair_set(given)
        shown = given.name if isinstance(given, PairSet) else str(given)
        raise ConfigError("pairs", shown, "of the paper's groups", "Give pairs for the groups of your own")
    if own is None:
        raise ConfigError("pairs", given, "are for groups of your own", "Give groups too, each with its expressions")
    return own_pair_set(own, given)


def own_pair_set(
    groups: Mapping[str, DeclaredGroup],
    pairs: Sequence[tuple[str, str]] | Mapping[str, Sequence[tuple[str, str]]],
) -> PairSet:
    """The groups' expressions as targets, each with every pair of its group.

    Raises `ConfigError` for a group without expressions or pairs, an expression of two groups, and a
    word that cannot stand in a prompt.
    """
    of_groups = pairs if isinstance(pairs, Mapping) else dict.fromkeys(groups, pairs)
    for name in of_groups:
        if name not in groups:
            raise ConfigError(f"pairs.{name}", name, "no such group", f"Groups: {', '.join(groups)}")
    found, owner = {}, dict[str, str]()
    for name, group in groups.items():
        if group.expressions is None:
            raise ConfigError(f"groups.{name}", name, "has no expressions", "Give the words that name it in a prompt")
        for place, word in enumerate(group.expressions):
            _check_word(f"groups.{name}.expressions[{place}]", word)
            if (other := owner.setdefault(comparable(word), name)) != name:
                problem = f"also an expression of {other!r}: texts about it would count for both"
                raise ConfigError(f"groups.{name}.expressions[{place}]", word, problem, "Remove one of the two")
        if name not in of_groups:
            raise ConfigError("pairs", list(of_groups), f"none of the group {name!r}", "Give pairs for each group")
        at = f"pairs.{name}" if isinstance(pairs, Mapping) else "pairs"
        targets = tuple((ASPECT, word) for word in group.expressions)
        found[name] = Group(targets, tuple(_checked_pairs(at, of_groups[name])))
    return PairSet("own", found, "", is_own=True)


def _checked_pairs(at: str, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    found: list[Pair] = []
    for place, (biased, anti) in enumerate(pairs):
        for word in (biased, anti):
            _check_word(f"{at}[{place}]", word)
        if comparable(biased).casefold() == comparable(anti).casefold():
            raise ConfigError(f"{at}[{place}]", biased, "the same word twice", "Give a counterpart")
        if (pair := Pair(biased, anti)) in found:
            raise ConfigError(f"{at}[{place}]", pair.name, "given twice", "Remove one of the two")
        found.append(pair)
    return found


def _check_word(field: str, word: str) -> None:
    if any(sign in word for sign in _SIGNS) or " / " in word:
        problem = f"contains one of {' '.join(_SIGNS)} or ' / ', which separate words or mark the pick"
        raise ConfigError(field, word, problem, "Write it without them")
