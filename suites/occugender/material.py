"""The paper's material, and options that replace it: templates, expressions, debiasing instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, refused, some_of
from suites.common.data_files import load
from suites.common.expressions import Expressions, spellings
from suites.common.published import Variant
from suites.common.task_prompt import TaskPrompt, parse_template
from suites.occugender.released import COMMIT, ReleasedTemplates, by_commit, explicit_templates, implicit_templates
from suites.options import each_once

Bias = Literal["explicit", "implicit"]
BIASES: tuple[Bias, ...] = ("explicit", "implicit")
#: Templates of each kind in the paper's debiasing runs (Section 6.1: ten in all).
DEBIASING_TEMPLATES = 5


@dataclass(frozen=True, slots=True)
class Template:
    """A template with its role in the design.

    ``for_debiasing``: whether it is also asked with debiasing instructions.
    """

    id: str
    bias: str
    text: TaskPrompt
    for_debiasing: bool


def _known_ids(given: bool | tuple[int, ...]) -> bool | tuple[int, ...]:
    known = occugender_instructions()
    if not isinstance(given, bool) and not set(given) <= set(known):
        raise refused("not instructions", f"Use true, false, or a list of ids in {list(known)}")
    return given


#: Options of the suite: kinds of bias, debiasing instructions, templates.
Biases = Annotated[tuple[Bias, ...], some_of(BIASES)]
Debiasing = Annotated[
    bool | Annotated[tuple[int, ...], AS_TUPLE],
    AfterValidator(_known_ids),
    OnError("not instructions", "Use true, false, or a list of ids"),
]
_OwnTemplates = Annotated[
    tuple[Annotated[TaskPrompt, BeforeValidator(parse_template)], ...],
    AS_TUPLE,
    Field(min_length=1),
    each_once(TaskPrompt.raw, "Give each template once"),
    OnError("no templates", "Give one or more, or leave this bias out"),
]
OwnTemplates = dict[Bias, _OwnTemplates]
Templates = Annotated[
    Literal["paper", "anonymous_version"] | ReleasedTemplates | OwnTemplates,
    BeforeValidator(by_commit),
    OnError("unknown", 'Use "paper", "anonymous_version", "646a9d6", or {"explicit": […], "implicit": […]}'),
]


def occugender_expressions() -> dict[str, Expressions]:
    """The paper's expressions: all for explicit prompts (Appendix A), pronouns for implicit (Table 2)."""
    return {
        "explicit": spellings(load("occugender").content["verbalizations"]),
        "implicit": spellings({"male": ["He"], "female": ["She"], "diverse": ["They"]}),
    }


def occugender_instructions() -> dict[int, tuple[str, str]]:
    """The paper's six debiasing instructions: id → (text, degree of abstraction)."""
    return {d["id"]: (d["text"], d["abstraction"]) for d in load("occugender").content["debiasing_instructions"]}


def occugender_templates(
    chosen: Literal["paper", "anonymous_version"] | ReleasedTemplates | Mapping[Bias, Sequence[TaskPrompt]] = "paper",
    biases: Sequence[Bias] = BIASES,
) -> Iterator[Template]:
    """The templates of a named set, or the user's own, with their ids."""
    for bias in biases:
        prefix, texts = "", list(papers_templates(bias))
        if chosen == "anonymous_version":
            prefix = "anonymous-"
            texts = [parse_template(load("occugender").content["anonymous_version_prompts"][bias])]
        elif isinstance(chosen, ReleasedTemplates):
            prefix = f"{COMMIT}-"
            texts = implicit_templates(texts) if bias == "implicit" else explicit_templates(chosen.folder)
        elif isinstance(chosen, Mapping):
            if bias not in chosen:
                raise ConfigError(f"templates.{bias}", None, "no templates", "Give one or more, or leave this bias out")
            texts = list(chosen[bias])
        for i, text in enumerate(texts):
            yield Template(f"{prefix}{bias}-{i + 1:02d}", bias, text, i < DEBIASING_TEMPLATES)


@cache
def papers_templates(bias: Bias) -> tuple[TaskPrompt, ...]:
    """The 25 templates of the paper's Appendix C."""
    return tuple(parse_template(text) for text in load("occugender").content["templates"][bias])


def variants_templates(variant: Variant, biases: Sequence[Bias]) -> Iterator[Template]:
    """A variant's default templates; as released, the paper's explicit and the script's implicit ones."""
    for bias in biases:
        as_released = variant == "as_released" and bias == "implicit"
        yield from occugender_templates(ReleasedTemplates() if as_released else "paper", [bias])


def name_of_templates(bias: Bias, templates: Sequence[Template]) -> str:
    """``paper``, ``646a9d6`` or ``own``, by their texts."""
    texts, papers = [t.text for t in templates if t.bias == bias], list(papers_templates(bias))
    if texts == papers:
        return "paper"
    released = all(t.id.startswith(f"{COMMIT}-") for t in templates if t.bias == bias)
    if released or (bias == "implicit" and texts == implicit_templates(papers)):
        return COMMIT
    return "own"
