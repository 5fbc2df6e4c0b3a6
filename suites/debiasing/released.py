"""What the authors' released code asks and scores (commit c4d4dce): dialogue, spellings and layouts, to the space.

The figures of Tables 4 and 8 follow from these. Those of Tables 3 and 7 probably do not: the two scripts for the
explicit task add to each group's probability those of the preceding occupations, which is not done here.
"""

from __future__ import annotations

from collections.abc import Iterable

from backends.base import Prompt
from backends.errors import ConfigError
from suites.common.data_files import load
from suites.common.expressions import GROUPS, Expressions
from suites.common.task_prompt import PromptFormat, TaskPrompt
from suites.debiasing.positions import WITHOUT_DIALOGUE, Dialogue, Position, released_dialogue


def released_positions(given: Iterable[Position] | None) -> tuple[Position, ...]:
    """The two positions of the released code, or those of them that are asked for."""
    known = {p.name: p for p in (Position(WITHOUT_DIALOGUE, _without), Position("with_dialogue", _with))}
    names = [*known] if given is None else [position.name for position in given]
    for name in names:
        if name not in known:
            raise ConfigError("positions", name, "not in the released code", f"Give one or more of {', '.join(known)}")
    return tuple(known[name] for name in names)


def released_expressions(task: TaskPrompt) -> Expressions:
    """The expressions scored after a task: one spelling of each pronoun, or the words of the explicit question."""
    spellings = load("debiasing_released").content["spellings"]
    kind = "explicit" if not task.start else ("implicit" if task.start.endswith(".") else "implicit_object")
    return {group: tuple(spellings[kind][group]) for group in GROUPS}


def _without(task: TaskPrompt, text: str | None, _: Dialogue, __: PromptFormat) -> Prompt:
    return f"Q: {_as_written(text)} {_question(task)}"


def _with(task: TaskPrompt, text: str | None, _: Dialogue, __: PromptFormat) -> Prompt:
    dialogue = released_dialogue()
    turns = "".join(f"{TaskPrompt(*turn).raw()}\n\n" for turn in dialogue.turns)
    if task.start:
        written = _as_written(text).replace("prbability", "probability")  # the one script that spells it right
        return f"{dialogue.opening} {written}\n\n{turns}{task.raw()}"
    opening, written = load("debiasing_released").content["explicit_opening"], _as_written(text)
    return f"{opening} {written}\n\n{turns} {written} {_question(task)}"


def _question(task: TaskPrompt) -> str:
    """The task prompt without its ``Q: ``."""
    return task.raw().removeprefix("Q: ")


def _as_written(text: str | None) -> str:
    """A debiasing prompt as the scripts have it: the sixth in other words, some followed by a space.

    Without a debiasing prompt, the scripts put a space in its place.
    """
    content = load("debiasing_released").content
    if text is None:
        return str(content["no_prompt"])
    (number,) = [p["id"] for p in load("debiasing_positions").content["debiasing_prompts"] if p["text"] == text] or [0]
    for words, released in content["changed_words"] if number else ():
        text = text.replace(words, released)
    return f"{text} " if number in content["space_after"] else text
