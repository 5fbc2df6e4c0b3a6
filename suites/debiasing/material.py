"""The material of the experiment: debiasing prompts with their placebos, tasks, and neutral reference texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from backends.options import AS_TUPLE, OnError, Table, refused_at
from suites.common.data_files import load
from suites.common.expressions import Expressions, spellings
from suites.common.task_prompt import TaskPrompt, parse_prompt, parse_template
from suites.occugender import BIASES, occugender_expressions, occugender_instructions, occugender_templates
from suites.options import Text, each_once

Design = Literal["paper", "occugender"]
#: The factor ``bias`` of reference texts.
REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class DebiasingPrompt(Table):
    """A debiasing text with its placebo.

    Attributes
    ----------
    id : int
        The level of the factors ``debiasing`` and ``instruction``.
    text : str
        The treatment.
    abstraction : str
        ``high``, ``medium`` or ``low``, or any other word to group prompts by.
    placebo : str or None
        A neutral text with the same number of words. None: no placebo for this prompt.
    """

    id: int
    text: Text
    abstraction: Text
    placebo: Text | None = None


def _with_fitting_placebo(prompt: DebiasingPrompt) -> DebiasingPrompt:
    if prompt.placebo is None:
        return prompt
    if prompt.placebo == prompt.text:
        raise refused_at(("placebo",), prompt.placebo, "the same as its prompt", "Give a neutral text")
    words, words_of_prompt = len(prompt.placebo.split()), len(prompt.text.split())
    if words != words_of_prompt:
        problem = f"has {words} words, and its prompt has {words_of_prompt}"
        raise refused_at(("placebo",), prompt.placebo, problem, "Give as many words as the prompt has")
    return prompt


#: The option: `DebiasingPrompt` objects, or tables of their fields.
DebiasingPrompts = Annotated[
    tuple[
        Annotated[
            DebiasingPrompt,
            AfterValidator(_with_fitting_placebo),
            OnError("not a debiasing prompt", "Give id (a number), text, abstraction and optionally placebo"),
        ],
        ...,
    ],
    AS_TUPLE,
    Field(min_length=1),
    each_once(lambda prompt: prompt.id, "Give each prompt an id of its own"),
    OnError("not a list of debiasing prompts", "Give one or more"),
]


def papers_prompts(design: Design) -> tuple[DebiasingPrompt, ...]:
    """The six debiasing prompts of the design's paper, with this project's placebos."""
    placebos = load("debiasing_controls").content["placebos"][design]
    if design == "occugender":
        texts = occugender_instructions()
    else:
        printed = load("debiasing_positions").content["debiasing_prompts"]
        texts = {d["id"]: (d["text"], d["abstraction"]) for d in printed}
    return tuple(DebiasingPrompt(i, text, degree, placebos[str(i)]) for i, (text, degree) in texts.items())


@dataclass(frozen=True, slots=True)
class Task:
    """A question about an occupation, and the expressions that are scored as its answers."""

    id: str
    bias: str
    template: TaskPrompt
    expressions: Expressions


def own_tasks(templates: Mapping[Any, Sequence[TaskPrompt]]) -> Iterator[Task]:
    """Tasks from a user's own templates, with the expressions of OccuGender for the same kind of prompt."""
    for bias in BIASES:
        for number, template in enumerate(templates.get(bias, ()), 1):
            yield Task(f"{bias}-{number:02d}", bias, template, occugender_expressions()[bias])


def papers_tasks(design: Design) -> Iterator[Task]:
    """The four task prompts of Mattern et al., or OccuGender's ten debiasing templates."""
    if design == "occugender":
        expressions = occugender_expressions()
        for template in occugender_templates():
            if template.for_debiasing:
                yield Task(template.id, template.bias, template.text, expressions[template.bias])
        return
    for task in load("debiasing_positions").content["task_prompts"]:
        yield Task(
            f"task-{task['id']}", task["bias"], parse_template(task["prompt"]), spellings(task["verbalizations"])
        )


def reference_texts() -> list[tuple[TaskPrompt, str]]:
    """Neutral questions, each with its answer of one or more words."""
    texts = load("debiasing_controls").content["reference_texts"]
    return [(parse_prompt(text["prompt"]), str(text["continuation"])) for text in texts]
