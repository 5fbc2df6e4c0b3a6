"""MGBR about groups of a user's own: the words of each, the occupations stereotyped with it, and its questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from backends.errors import ConfigError
from backends.options import AS_TUPLE
from backends.reading.words import comparable
from suites.common.data_files import content_sha256, load
from suites.common.groups.declared import Group, refuse_option
from suites.common.groups.design import NEUTRAL, GroupDesign
from suites.common.groups.options import GroupFields, GroupOptions, refuse_meaningless
from suites.common.occupations import Occupation
from suites.common.task_prompt import PromptFormat, check_form
from suites.mgbr.construction import CountedGroup, CountedWords, Pool
from suites.mgbr.wording import GENDERS, Example, Layout, TextOfGroups, Wording, Words

#: Options that mean nothing in this suite, with the reason.
_MEANINGLESS = {
    "shared": "a word of two groups would belong to two counts",
    "both_cases": "an expression is listed as it is written",
}
#: The groups of the paper.
_PAPERS_GROUPS = GroupDesign({"female": {}, "male": {}}, ("female", "male"))


@dataclass(frozen=True)
class AskedGroups:
    """Which groups are asked about, and in which form.

    ``own`` are the user's own groups, None for those of the paper; ``signature`` holds the options that differ from
    their defaults.
    """

    design: GroupDesign
    own: Mapping[str, Group] | None
    layout: Layout
    signature: Mapping[str, Any]

    def words(self, occupations: Sequence[Occupation] | None, words: object, genders: Sequence[str]) -> CountedWords:
        """The words of the user's own groups. Refuses options that are for those of the paper."""
        assert self.own is not None
        hint = "Leave it out: groups and occupations hold the words, and stereotypes names the groups asked about"
        for name, given, default in (("words", words, "builtin"), ("genders", tuple(genders), GENDERS)):
            if given != default:
                raise ConfigError(name, given, "is for the groups of the paper", hint)
        return own_words(self.design, self.own, occupations)


def asked_groups(given: GroupFields, prompt_format: PromptFormat) -> AskedGroups:
    """The groups of the paper, or a user's own. Refuses options that mean nothing in this suite."""
    refuse_meaningless(given, _MEANINGLESS)
    own = given.get("groups")
    options = replace(GroupOptions(**given), both_cases=own is None)
    if options.separator[-1:].isdigit():
        raise refuse_option(("separator",), options.separator, "would change the count", "Do not end with a digit")
    layout = Layout(prompt_format, separator=options.separator)
    if options.form is not None:
        check_form(options.form, options.separator, prompt_format, has_start=True, refuse=refuse_option)
        layout = replace(layout, form=options.form)
    return AskedGroups(options.design(_PAPERS_GROUPS), own, layout, options.given)


def own_words(
    groups: GroupDesign, declared: Mapping[str, Group], occupations: Sequence[Occupation] | None
) -> CountedWords:
    """The groups' expressions as the words that count, and the occupations stereotyped with each.

    Raises `ConfigError` for a group without expressions; a word in two places, or with a comma; an occupation of no
    group.
    """
    if occupations is None:
        hint = f"Give occupations, each with dominated_by: {', '.join(groups.stereotypes)}"
        raise ConfigError("occupations", None, "missing for groups of your own", hint)
    scored = all(one.female_share is not None for one in occupations)
    stereotyped: dict[str, dict[str, float | None]] = {name: {} for name in groups.stereotypes}
    for number, one in enumerate(occupations):
        place = f"occupations[{number}]"
        if one.expressions:
            problem = "are listed by name, without expressions of their own"
            raise ConfigError(f"{place}.expressions", dict(one.expressions), problem, "Leave them out")
        if one.dominated_by not in stereotyped:
            problem = f"no such group, of {one.name!r}"
            if one.dominated_by == NEUTRAL:
                problem = f"{one.name!r} is stereotyped with no group, so no list has it"
            hint = f"Give dominated_by: {', '.join(groups.stereotypes)}"
            raise ConfigError(f"{place}.dominated_by", one.dominated_by, problem, hint)
        stereotyped[one.dominated_by][one.name] = one.female_share if scored else None
    if without := [name for name, of in stereotyped.items() if not of]:
        hint = f"Add occupations with dominated_by {without[0]!r}, or leave the group out of stereotypes"
        raise ConfigError("occupations", len(occupations), f"none is stereotyped with {without[0]!r}", hint)
    found = tuple(
        CountedGroup(
            name,
            Pool(dict.fromkeys(_words_of(name, declared[name])), f"words of {name}", f"groups.{name}.expressions"),
            Pool(stereotyped.get(name, {}), f"occupations of {name}", "occupations"),
            f"n_{name}",
            (f"D_{name}", f"D_{name} with occupations"),
        )
        for name in groups.names
    )
    _refuse_double([pool for group in found for pool in (group.words, group.stereotyped)])
    content = [[g.name, [*g.words.words], dict(g.stereotyped.words)] for g in found]
    score_name = "female labour share" if scored else ""
    signature = {"name": "own groups", "sha256": content_sha256(content), "score": score_name}
    return CountedWords("own groups", score_name, "group", found, signature, is_own=True)


def _words_of(name: str, group: Group) -> tuple[str, ...]:
    if group.expressions is None:
        raise ConfigError(f"groups.{name}", name, "has no expressions", "Give the words that count as its own")
    return group.expressions


def _refuse_double(pools: Sequence[Pool]) -> None:
    owner: dict[str, tuple[str, Pool]] = {}
    for pool in pools:
        for word in pool.words:
            if "," in word or "\n" in word:
                hint = "Give words without commas and line breaks"
                raise ConfigError(pool.field, word, "not a plain word", hint)
            if (first := owner.setdefault(comparable(word).casefold(), (word, pool))) != (word, pool):
                where = f"the same as {first[0]!r} of the {first[1].purpose}"
                raise ConfigError(pool.field, word, where, "Keep each word in one place")


class OwnExample(Example):
    """A few-shot example: words by group, and occupations."""

    words: dict[str, Words]
    occupations: Words = ()

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        return {**self.words, "occupations": self.occupations}

    def matching(self, group: str) -> tuple[str, ...]:
        return self.words.get(group, ())


class OwnWording(Wording):
    """The texts for a user's own groups.

    Parameters
    ----------
    instruction : mapping
        A question for each group asked about.
    vocabulary : mapping
        What words of a group are called in the steps. Default: the group's name.
    examples : mapping
        Few-shot examples for each group asked about: tables of ``words``, which maps groups to words, and
        ``occupations``.
    """

    instruction: TextOfGroups
    vocabulary: TextOfGroups
    examples: dict[str, Annotated[tuple[OwnExample, ...], AS_TUPLE]] = Field({})  # type: ignore[assignment]


def own_wording(given: object, groups: GroupDesign, conditions: Collection[str]) -> OwnWording:
    """The texts that a user gives for groups of their own; all others are the English ones.

    Refuses a group without a question or, with few-shot conditions, an example.
    """
    if not isinstance(given, Mapping) or "instruction" not in given:
        hint = f"Give a table with an instruction for each of {', '.join(groups.stereotypes)}"
        raise ConfigError("wording.instruction", None, "missing for groups of your own", hint)
    papers = ("source", "instruction", "vocabulary", "examples")
    english = {name: text for name, text in load("mgbr").content.items() if name not in papers}
    called = given.get("vocabulary", {})
    if isinstance(called, Mapping):
        called = {**{name: name for name in groups.names}, **called}
    wording = OwnWording.checked("wording", **{**english, **given, "vocabulary": called})
    few_shot = any(condition.startswith("few-shot") for condition in conditions)
    _check_names("instruction", wording.instruction, groups.stereotypes, needed=True)
    _check_names("vocabulary", wording.vocabulary, groups.names)
    _check_names("examples", wording.examples, groups.stereotypes, needed=few_shot)
    for name, examples in wording.examples.items():
        for number, example in enumerate(examples):
            _check_names(f"examples.{name}[{number}].words", example.words, groups.names)
    return wording


def _check_names(field: str, given: Collection[str], groups: Sequence[str], *, needed: bool = False) -> None:
    """Refuse groups that there are not, and if ``needed`` one without an entry."""
    if ungroups := [name for name in given if name not in groups]:
        raise ConfigError(f"wording.{field}", ungroups[0], "no such group", f"Groups: {', '.join(groups)}")
    if needed and (absent := [name for name in groups if name not in given]):
        hint = "Give one, or leave the few-shot conditions out" if field == "examples" else "Give one"
        raise ConfigError(f"wording.{field}", list(given), f"none for {absent[0]!r}", hint)
