"""Options that every suite with prompts shares: groups, contrasts, and the form of a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from pydantic import Field

from backends.errors import ConfigError
from backends.options import Options, Place
from suites.common.data_files import content_sha256
from suites.common.expressions import Expressions
from suites.common.groups.declared import Contrasts, Groups, Names, OwnExpressions, refuse_option
from suites.common.groups.design import NEUTRAL, PAPERS_GROUPS, GroupDesign, declared_groups
from suites.common.groups.weights import contrasts_of
from suites.common.occupations import Occupation, papers_occupations
from suites.common.task_prompt import PAPERS_FORM, PromptFormat, TaskPrompt, check_form, filled

#: Prefixes of the names of figures that suites about occupations have anyway.
_RESERVED = ("p_", "effect", "placebo", "attenuation", "via_", "share_", "reference_text", "stereotype", "reduction_")


class FormFields(TypedDict, total=False):
    """Contrasts and the form of a prompt, as options of a suite, see `backends.options.checked_options`."""

    contrasts: Contrasts
    form: str | None
    separator: str


class GroupFields(FormFields, total=False):
    """All of them as options of a suite."""

    groups: Groups | None
    stereotypes: Names
    both_cases: bool


class GroupOptions(Options):
    """Options of groups as they were given.

    Attributes
    ----------
    groups : mapping or None
        Group → its expressions, as a list, or as a table with further attributes. None: male, female and diverse, as
        in the papers.
    contrasts : mapping
        Name → ``of`` and ``against``, or ``weights``. Default for two custom groups: the first minus the second.
    stereotypes : sequence of str
        The groups that may be stereotyped. Default: all. An occupation's ``dominated_by`` is one of these.
    both_cases : bool
        Whether expressions are scored with an upper-case and a lower-case first letter.
    form : str or None
        The raw prompt, with ``{question}`` and ``{start}``. None: the papers' ``Q:`` and ``A:``.
    separator : str
        Between the prompt and an expression.
    """

    groups: Groups | None = None
    contrasts: Contrasts = Field({})
    stereotypes: Names = ()
    both_cases: bool = True
    form: str | None = None
    separator: str = " "

    @property
    def is_own(self) -> bool:
        """Whether the groups are custom."""
        return self.groups is not None

    @property
    def given(self) -> dict[str, Any]:
        """The options that differ from their defaults, for signatures and messages."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def signature(self, asked: Mapping[tuple[str, str], Expressions]) -> dict[str, Any]:
        """The options that differ from their defaults, and for custom groups a hash of all that is scored."""
        if not self.is_own:
            return self.given
        scored = [[*of, {group: list(words) for group, words in spelled.items()}] for of, spelled in asked.items()]
        return {**self.given, "scored_sha256": content_sha256(scored)}

    def design(self, papers: GroupDesign = PAPERS_GROUPS) -> GroupDesign:
        """The groups; without custom ones those of the suite's paper.

        Raises `ConfigError` for a declaration that cannot be used.
        """
        for name in self.contrasts:
            if name.startswith(_RESERVED):
                raise ConfigError(f"contrasts.{name}", name, "begins as the names of other figures do", "Rename it")
        if self.groups is not None:
            if NEUTRAL in self.groups:
                raise ConfigError(f"groups.{NEUTRAL}", NEUTRAL, "says that no stereotype speaks of it", "Rename it")
            return declared_groups(
                self.groups, contrasts=self.contrasts, stereotypes=self.stereotypes, both_cases=self.both_cases
            )
        for name in {"stereotypes", "both_cases"} & self.given.keys():
            raise ConfigError(name, getattr(self, name), "is for groups of your own", "Give groups, or leave it out")
        if not self.contrasts:
            return papers
        return replace(papers, contrasts=contrasts_of(self.contrasts, papers.attributes, {"coverage"}, refuse_option))

    def formed(
        self, templates: Sequence[TaskPrompt], prompt_format: PromptFormat, *, has_dialogue: bool = False
    ) -> list[TaskPrompt]:
        """The templates with the form and separator; ``has_dialogue``: prompts also hold turns with answers.

        Raises `ConfigError` if these cannot be used.
        """
        form = PAPERS_FORM if self.form is None else self.form
        has_start = has_dialogue or any(template.start for template in templates)
        check_form(form, self.separator, prompt_format, has_start=has_start, refuse=refuse_option)
        return [replace(template, form=form, separator=self.separator) for template in templates]


def asked_occupations(given: Sequence[Occupation] | None, groups: GroupDesign) -> tuple[Occupation, ...]:
    """The occupations. Those of the papers are neutral if their stereotype is not one of ``groups``.

    Raises `ConfigError` for an occupation whose stereotype is not one of ``groups``.
    """
    if given is None:
        papers = papers_occupations()
        return tuple(o if o.dominated_by in groups.stereotypes else replace(o, dominated_by=NEUTRAL) for o in papers)
    for number, occupation in enumerate(given):
        if occupation.dominated_by not in (*groups.stereotypes, NEUTRAL):
            hint = f"Give dominated_by: {', '.join((*groups.stereotypes, NEUTRAL))}"
            place = f"occupations[{number}].dominated_by"
            raise ConfigError(place, occupation.dominated_by, f"no such group, of {occupation.name!r}", hint)
    return tuple(given)


def asked_expressions(
    groups: GroupDesign,
    occupations: Sequence[Occupation],
    prompts: Iterable[tuple[str, TaskPrompt]],
    of_kinds: Mapping[str, Expressions | OwnExpressions],
    prompt_format: PromptFormat,
) -> dict[tuple[str, str], Expressions]:
    """(Kind of prompt, occupation) → the expressions that are scored after the prompt.

    ``prompts``: the templates, with their kind. ``of_kinds``: kind of prompt → group → expressions: for declared groups
    those that replace the groups' own, before which an occupation's own come; else all that are scored.
    """
    joined = [(kind, template) for kind, template in prompts if not template.separator and prompt_format != "chat"]
    found = {}
    for kind, words in of_kinds.items():
        for number, occupation in enumerate(occupations):
            at: Place = ("occupations", number, "expressions") if occupation.expressions else ("expressions", kind)
            if groups.expressions:
                spelled = groups.spelled({**words, **occupation.expressions}, at, occupation.name)
            elif occupation.expressions:
                hint = "Give groups too: each one's expressions, or an empty table"
                raise refuse_option(at, dict(occupation.expressions), "are for groups of your own", hint)
            else:
                spelled = words
            texts = (filled(template, occupation.name).raw() for of, template in joined if of == kind)
            groups.check_separated(spelled, texts, ("separator",))
            found[kind, occupation.name] = spelled
    return found
