"""Where in a prompt a debiasing text stands.

The list is open: a position is a name and a function that builds the prompt, for example ::

    def at_the_end(task, text, dialogue, prompt_format):
        return TaskPrompt(joined(task.question, text), task.start).prompt(prompt_format)

    DebiasingPositions(positions=["without_dialogue", Position("at_the_end", at_the_end)])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.base import Message, Prompt
from backends.errors import ConfigError
from suites.common.task_prompt import PromptFormat, TaskPrompt, joined


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation that comes before the question.

    Attributes
    ----------
    opening : str
        The instruction that opens the conversation.
    turns : tuple of (question, answer)
    """

    opening: str
    turns: tuple[tuple[str, str], ...]


Build = Callable[[TaskPrompt, str | None, Dialogue, PromptFormat], Prompt]


@dataclass(frozen=True, slots=True)
class Position:
    """A place for the debiasing text.

    Attributes
    ----------
    name : str
        The level of the factor ``position``.
    build : callable
        ``(task, text, dialogue, prompt_format) → Prompt``. ``text`` None is the condition without
        any: the prompt must be the same but for the text.
    formats : tuple of str
        The prompt formats in which it makes sense.
    """

    name: str
    build: Build
    formats: tuple[PromptFormat, ...] = ("raw", "chat")


def _without_dialogue(task: TaskPrompt, text: str | None, _: Dialogue, prompt_format: PromptFormat) -> Prompt:
    return task.prompt(prompt_format, text)


def _with_dialogue(task: TaskPrompt, text: str | None, dialogue: Dialogue, prompt_format: PromptFormat) -> Prompt:
    beginning = joined(dialogue.opening, text)
    if prompt_format == "raw":
        return "\n\n".join([beginning, *(TaskPrompt(*turn).raw() for turn in dialogue.turns), task.raw()])
    turns = [*_spoken(dialogue), *task.turns()]
    return (Message("user", f"{beginning}\n\n{turns[0].content}"), *turns[1:])


def _repeated(task: TaskPrompt, text: str | None, dialogue: Dialogue, prompt_format: PromptFormat) -> Prompt:
    return _with_dialogue(TaskPrompt(joined(text, task.question), task.start), text, dialogue, prompt_format)


def _system(task: TaskPrompt, text: str | None, dialogue: Dialogue, _: PromptFormat) -> Prompt:
    return (Message("system", joined(dialogue.opening, text)), *_spoken(dialogue), *task.turns())


def _spoken(dialogue: Dialogue) -> list[Message]:
    return [m for q, a in dialogue.turns for m in (Message("user", q), Message("assistant", a))]


#: The paper's two positions (Mattern et al., Section 4.2 and Table 5), and two it could not test.
POSITIONS = {
    position.name: position
    for position in (
        # Q: {text} {question}
        Position("without_dialogue", _without_dialogue),
        # {opening} {text}, the dialogue, then the question
        Position("with_dialogue", _with_dialogue),
        # the same, and the text once more right before the question
        Position("repeated", _repeated),
        # opening and text as system message, the dialogue as real turns
        Position("system", _system, formats=("chat",)),
    )
}


def checked_positions(
    field: str, given: Sequence[str | Position] | None, prompt_format: PromptFormat
) -> list[Position]:
    """Positions by name or of the user's own; None for all that the format allows."""
    if given is None:
        return [p for p in POSITIONS.values() if prompt_format in p.formats]
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ConfigError(field, given, "not a list of positions", f"Give one or more of {', '.join(POSITIONS)}")
    positions: list[Position] = []
    for entry in given:
        position = POSITIONS.get(entry) if isinstance(entry, str) else entry
        if not isinstance(position, Position):
            raise ConfigError(field, entry, "unknown", f"Use {', '.join(POSITIONS)}, or a Position of your own")
        if not isinstance(position.name, str) or not position.name.strip():
            raise ConfigError(field, position.name, "not a name", "Give the position a name")
        if POSITIONS.get(position.name, position) is not position:
            problem = "is the name of another position, which has figures of its own"
            raise ConfigError(field, position.name, problem, "Give yours another name")
        if prompt_format not in position.formats:
            hint = f"Leave it out, or set prompt_format to {position.formats[0]!r}"
            raise ConfigError(field, position.name, f"is not possible in {prompt_format!r} prompts", hint)
        if position.name in [p.name for p in positions]:
            raise ConfigError(field, position.name, "named twice", "Name each position once")
        positions.append(position)
    return positions


def checked_dialogue(field: str, given: Dialogue | Mapping[str, Any]) -> Dialogue:
    """The user's dialogue, e.g. ``{"opening": "…", "turns": [["question", "answer"], …]}``."""
    hint = 'Give {"opening": "…", "turns": [["question", "answer"], …]}'
    if isinstance(given, Dialogue):
        given = {"opening": given.opening, "turns": given.turns}
    if not isinstance(given, Mapping) or set(given) != {"opening", "turns"}:
        raise ConfigError(field, given, "not a dialogue", hint)
    opening, turns = given["opening"], given["turns"]
    if not isinstance(opening, str) or not opening or opening != opening.strip():
        raise ConfigError(f"{field}.opening", opening, "not a text without outer spaces", hint)
    if isinstance(turns, str) or not isinstance(turns, Sequence) or not turns:
        raise ConfigError(f"{field}.turns", turns, "no turns", hint)
    return Dialogue(opening, tuple(_checked_turn(f"{field}.turns[{i}]", turn, hint) for i, turn in enumerate(turns)))


def _checked_turn(field: str, turn: object, hint: str) -> tuple[str, str]:
    if isinstance(turn, Mapping) and set(turn) == {"question", "answer"}:
        turn = turn["question"], turn["answer"]
    if not isinstance(turn, list | tuple) or len(turn) != 2:
        raise ConfigError(field, turn, "not a question and its answer", hint)
    question, answer = turn
    for text in turn:
        if not isinstance(text, str) or not text or text != text.strip():
            raise ConfigError(field, text, "not a text without outer spaces", hint)
    return question, answer
