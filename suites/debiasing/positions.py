"""The places in a prompt where a debiasing text can be put."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from backends.base import Message, Prompt
from backends.errors import ConfigError
from backends.options import AS_TUPLE, OnError, Table, some_of
from suites.common.data_files import Variant, load
from suites.common.expressions import GROUPS, Expressions
from suites.common.task_prompt import PromptFormat, TaskPrompt, joined
from suites.options import Text

_DIALOGUE = 'Give {"opening": "…", "turns": [["question", "answer"], …]}'


def _turn(given: Any) -> Any:
    if isinstance(given, Mapping) and set(given) == {"question", "answer"}:
        return given["question"], given["answer"]
    return tuple(given) if isinstance(given, list) else given


_Turn = Annotated[tuple[Text, Text], BeforeValidator(_turn), OnError("not a question and its answer", _DIALOGUE)]


@dataclass(frozen=True, slots=True)
class Dialogue(Table):
    """A conversation that comes before the question.

    Attributes
    ----------
    opening : str
        The instruction that opens the conversation.
    turns : tuple of (question, answer)
    """

    opening: Text
    turns: Annotated[tuple[_Turn, ...], AS_TUPLE, Field(min_length=1), OnError("no turns", _DIALOGUE)]


#: The option: a `Dialogue`, a table of its fields, or ``released`` for the authors' own.
DialogueOption = Annotated[
    Literal["released"] | Dialogue, OnError("not a dialogue", f'Give "released", or {_DIALOGUE[5:]}')
]


def named_dialogue(name: Literal["own", "released"]) -> Dialogue:
    """This project's own generic conversation of three turns, or that of the authors' code. The paper prints none."""
    dialogue = load("debiasing_controls" if name == "own" else "debiasing_released").content["dialogue"]
    return Dialogue(dialogue["opening"], tuple((question, answer) for question, answer in dialogue["turns"]))


Build = Callable[[TaskPrompt, str | None, Dialogue, PromptFormat], Prompt]


@dataclass(frozen=True, slots=True)
class Position:
    """A place for the debiasing text.

    Attributes
    ----------
    name : str
        The level of the factor ``position``.
    build : callable
        ``(task, text, dialogue, prompt_format) → Prompt``. Without a text, ``text`` is None: the
        prompt must then differ only by the missing text.
    formats : tuple of str
        The prompt formats in which it makes sense.
    """

    name: str
    build: Build
    formats: tuple[PromptFormat, ...] = ("raw", "chat", "chat_whole")


def _without_dialogue(task: TaskPrompt, text: str | None, _: Dialogue, prompt_format: PromptFormat) -> Prompt:
    return task.prompt(prompt_format, text)


def _with_dialogue(task: TaskPrompt, text: str | None, dialogue: Dialogue, prompt_format: PromptFormat) -> Prompt:
    beginning = joined(dialogue.opening, text)
    if prompt_format == "raw":
        return "\n\n".join(
            [beginning, *(replace(task, question=q, start=a).raw() for q, a in dialogue.turns), task.raw()]
        )
    turns = [*_conversation(dialogue), *_turns(task, prompt_format)]
    return (Message("user", f"{beginning}\n\n{turns[0].content}"), *turns[1:])


def _repeated(task: TaskPrompt, text: str | None, dialogue: Dialogue, prompt_format: PromptFormat) -> Prompt:
    return _with_dialogue(replace(task, question=joined(text, task.question)), text, dialogue, prompt_format)


def _system(task: TaskPrompt, text: str | None, dialogue: Dialogue, prompt_format: PromptFormat) -> Prompt:
    opening = Message("system", joined(dialogue.opening, text))
    return (opening, *_conversation(dialogue), *_turns(task, prompt_format))


def _turns(task: TaskPrompt, prompt_format: PromptFormat) -> tuple[Message, ...]:
    return task.turns(whole=prompt_format == "chat_whole")


def _conversation(dialogue: Dialogue) -> list[Message]:
    return [m for q, a in dialogue.turns for m in (Message("user", q), Message("assistant", a))]


WITHOUT_DIALOGUE = "without_dialogue"
#: The paper's two positions (Mattern et al., Section 4.2 and Table 5); the one from which its explicit figures with
#: dialogue come (``repeated``, apart from the ``Q:``); and one for chat models.
POSITIONS = {
    position.name: position
    for position in (
        # Q: {text} {question}
        Position(WITHOUT_DIALOGUE, _without_dialogue),
        # {opening} {text}, the dialogue, then the question
        Position("with_dialogue", _with_dialogue),
        # the same, with the text once more right before the question
        Position("repeated", _repeated),
        # opening and text as system message, the dialogue as real turns
        Position("system", _system, formats=("chat", "chat_whole")),
    )
}


#: The option: positions by name.
Positions = Annotated[tuple[str, ...], some_of(POSITIONS)]


def asked_positions(variant: Variant, prompt_format: PromptFormat, given: Sequence[str] | None) -> tuple[Position, ...]:
    """The given positions, or all that the variant and the prompt format allow. Refuses one that they do not allow."""
    released = Position(WITHOUT_DIALOGUE, _without), Position("with_dialogue", _with)
    of_variant = released if variant == "as_released" else POSITIONS.values()
    known = {position.name: position for position in of_variant if prompt_format in position.formats}
    for name in given or ():
        if name not in known:
            problem = f"is not possible in {prompt_format!r} prompts of this variant"
            raise ConfigError("positions", name, problem, f"Give one or more of {', '.join(known)}")
    return tuple(known[name] for name in (known if given is None else given))


# -- as released -------------------------------------------------------------------------------------


def released_expressions(task: TaskPrompt) -> Expressions:
    """The expressions scored after a task: one spelling of each pronoun, or the words of the explicit question."""
    spellings = load("debiasing_released").content["spellings"]
    kind = "explicit" if not task.start else ("implicit" if task.start.endswith(".") else "implicit_object")
    return {group: tuple(spellings[kind][group]) for group in GROUPS}


def _without(task: TaskPrompt, text: str | None, _: Dialogue, __: PromptFormat) -> Prompt:
    return f"Q: {_as_written(text)} {_question(task)}"


def _with(task: TaskPrompt, text: str | None, _: Dialogue, __: PromptFormat) -> Prompt:
    dialogue = named_dialogue("released")
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
