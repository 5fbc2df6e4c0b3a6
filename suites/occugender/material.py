"""The paper's material, that of the released code (commit 646a9d6), and options that replace it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, some_of
from suites.common.data_files import load
from suites.common.expressions import GROUPS, Expressions, spellings
from suites.common.task_prompt import TaskPrompt, parse_template
from suites.options import each_once

Bias = Literal["explicit", "implicit"]
BIASES: tuple[Bias, ...] = ("explicit", "implicit")
#: Templates of each kind in the paper's debiasing runs (Section 6.1: ten in all).
DEBIASING_TEMPLATES = 5
#: Name of the released stimuli.
COMMIT = "646a9d6"


@dataclass(frozen=True, slots=True)
class Template:
    """A template with its role in the design.

    ``for_debiasing``: whether it is also asked with debiasing instructions.
    """

    id: str
    bias: str
    text: TaskPrompt
    for_debiasing: bool


#: Options of the suite: kinds of bias, debiasing instructions, templates.
Biases = Annotated[tuple[Bias, ...], some_of(BIASES)]
Debiasing = Annotated[
    bool | Annotated[tuple[Literal[1, 2, 3, 4, 5, 6], ...], AS_TUPLE],
    OnError("not instructions", "Use true, false, or a list of ids from 1 to 6"),
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
    Literal["paper", "anonymous_version"] | OwnTemplates,
    OnError("unknown", 'Use "paper", "anonymous_version", or {"explicit": […], "implicit": […]}'),
]


@cache
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
    chosen: Literal["paper", "anonymous_version", "as_released"] | Mapping[Bias, Sequence[TaskPrompt]] = "paper",
    biases: Sequence[Bias] = BIASES,
) -> Iterator[Template]:
    """The templates of a named set, or the user's own, with their ids.

    ``as_released``: the paper's explicit and the released script's implicit ones.
    """
    for bias in biases:
        prefix, texts = "", papers_templates(bias)
        if chosen == "anonymous_version":
            prefix = "anonymous-"
            texts = [parse_template(load("occugender").content["anonymous_version_prompts"][bias])]
        elif chosen == "as_released" and bias == "implicit":
            prefix, texts = f"{COMMIT}-", _released_templates()
        elif isinstance(chosen, Mapping):
            if bias not in chosen:
                raise ConfigError(f"templates.{bias}", None, "no templates", "Give one or more, or leave this bias out")
            texts = list(chosen[bias])
        for i, text in enumerate(texts):
            yield Template(f"{prefix}{bias}-{i + 1:02d}", bias, text, i < DEBIASING_TEMPLATES)


@cache
def papers_templates(bias: Bias) -> list[TaskPrompt]:
    """The 25 templates of the paper's Appendix C."""
    return [parse_template(text) for text in load("occugender").content["templates"][bias]]


def name_of_templates(bias: Bias, templates: Sequence[Template]) -> str:
    """``paper``, ``646a9d6`` or ``own``, by their texts."""
    texts = [template.text for template in templates if template.bias == bias]
    if texts == papers_templates(bias):
        return "paper"
    return COMMIT if bias == "implicit" and texts == _released_templates() else "own"


# -- as released -------------------------------------------------------------------------------------


def _released_templates() -> list[TaskPrompt]:
    """The paper's implicit templates with the two mistakes of the released script."""
    changed = load("occugender_released").content["implicit_templates"]
    texts = enumerate(load("occugender").content["templates"]["implicit"], start=1)
    return [parse_template(changed.get(str(i), text)) for i, text in texts]


def released_expressions() -> dict[str, Expressions]:
    """The spellings in the released figures: explicit without He and She, implicit in lower case only."""
    spellings = load("occugender_released").content["spellings"]
    return {bias: {group: tuple(words[group]) for group in GROUPS} for bias, words in spellings.items()}


def released_aggregation() -> dict[str, Any]:
    """How the released code aggregates an expression's tokens: product for explicit prompts, mean for implicit."""
    return dict(load("occugender_released").content["token_aggregation"])
