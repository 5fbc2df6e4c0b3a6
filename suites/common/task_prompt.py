"""A task prompt: a question about an occupation, and the start of the answer.

As raw text it is what the papers print, ``Q: {question}\\nA:{start}``, and a scored word follows
with a space before it: " Male"; another ``form`` and ``separator`` may replace these. As chat,
the question is the user's turn and the start of the answer opens the assistant's turn, which the
model continues. Where the answer has no start ("Answer with one word"), a chat model begins its
turn with the word, and so the word has no space before it: "Male".

``chat_whole`` is for models that do not continue a start: the question ends with ``Begin your answer with "{start}"``,
and the start is scored with the word. The shares of the words among the answers that begin so are the same quantity.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from backends.base import Message, Prompt
from backends.options import OnError, Options, refused
from suites.common.groups.declared import Refuse
from suites.options import Text

PromptFormat = Literal["raw", "chat", "chat_whole"]

#: The prompting conditions of Kaneko et al. 2024, in their order. ``dp``: a debiasing sentence; ``cot``: chain of
#: thought.
CONDITIONS = ("zero-shot", "few-shot", "zero-shot+dp", "few-shot+dp", "zero-shot+cot", "few-shot+cot")
JOB = "[JOB]"
#: The papers' form of a raw prompt.
PAPERS_FORM = "Q: {question}\nA: {start}"
_QUESTION_AND_START = re.compile(r"Q: (?P<question>.+)\nA:(?P<start>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskPrompt:
    """One question and the start of its answer.

    ``question``: without the leading ``Q: ``. ``start``: what the answer begins with; empty where the scored word
    comes first. ``form``: the raw prompt, with ``{question}`` and ``{start}``. Without a start, trailing spaces are
    removed. ``separator``: what separates the prompt from a scored word.
    """

    question: str
    start: str
    form: str = PAPERS_FORM
    separator: str = " "

    def raw(self, before: str | None = None) -> str:
        """The raw prompt, with a text before its question: ``Q: {before} {question}\\nA: {start}``."""
        text = self.form.format(question=joined(before, self.question), start=self.start)
        return text if self.start else text.rstrip(" ")

    def turns(self, before: str | None = None, *, whole: bool = False) -> tuple[Message, ...]:
        """The user's turn, and the opened turn of the assistant where the answer has a start.

        ``whole``: the start is asked for at the end of the user's turn.
        """
        asked = begin_with(self.start) if whole and self.start else None
        question = Message("user", joined(before, self.question, asked))
        return (question, Message("assistant", self.start)) if self.start and not whole else (question,)

    def prompt(self, prompt_format: PromptFormat, before: str | None = None) -> Prompt:
        """The prompt in one of the formats, with a text before the question."""
        return self.raw(before) if prompt_format == "raw" else self.turns(before, whole=prompt_format == "chat_whole")

    def space(self, prompt_format: PromptFormat) -> str:
        """What separates the prompt from a scored word: nothing, or the start, at the start of a turn."""
        if prompt_format == "raw":
            return self.separator
        begun = self.start + self.separator if self.start else ""
        return begun if prompt_format == "chat_whole" or not begun else self.separator


def begin_with(start: str) -> str:
    """What stands after a question whose answer cannot be begun for the model."""
    return f'Begin your answer with "{start}"'


def joined(*texts: str | None) -> str:
    """The texts with one space between them; None and empty ones are left out."""
    return " ".join(filter(None, texts))


def parse_prompt(text: object) -> TaskPrompt:
    """Read a prompt in the papers' form; a validator."""
    parts = _QUESTION_AND_START.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        hint = "Write it as 'Q: question\\nA:', with a space and the answer's start if wanted; or as question and start"
        raise refused("not a question and the start of an answer", hint)
    start = parts["start"]
    if start != start.rstrip() or (start and not start.startswith(" ")):
        hint = "Put one space after 'A:' and none at the end; the scored word brings its own"
        raise refused("has spaces at the end, or none after 'A:'", hint)
    return TaskPrompt(parts["question"], start[1:])


class _Parts(Options):
    """A prompt as written in a config."""

    question: Text
    start: Annotated[Literal[""] | Text, OnError("has spaces around it", "Give a text without them")] = ""


def parse_template(given: object) -> TaskPrompt:
    """Read a prompt about ``[JOB]``, in the papers' form or as a table of question and start; a validator.

    ``[JOB]`` is not replaced yet.
    """
    if isinstance(given, Mapping):
        parts = _Parts.model_validate(given)
        template = TaskPrompt(parts.question, parts.start)
    else:
        template = parse_prompt(given)
    if JOB not in template.question + template.start:
        raise refused("names no occupation", f"Write {JOB} in place of the occupation")
    return template


def check_form(form: str, separator: str, prompt_format: PromptFormat, *, has_start: bool, refuse: Refuse) -> None:
    """Refuse a form or separator from which no prompt can be made.

    ``has_start``: whether any answer has a start, the answers of a dialogue included.
    """
    hint = 'Write e.g. "Pregunta: {question}\\nRespuesta: {start}"'
    try:
        form.format(question="", start="")
        is_one = form.count("{question}") == 1 and form.count("{start}") <= 1
    except (KeyError, ValueError, IndexError):
        is_one = False
    if not is_one:
        raise refuse(("form",), form, "needs {question} once, {start} at most once, and no other field", hint)
    if has_start and "{start}" not in form:
        raise refuse(("form",), form, "has no place for the start of an answer", hint)
    if prompt_format != "raw" and form != PAPERS_FORM:
        hint = "Leave it out: in chat the question and the start are turns"
        raise refuse(("form",), form, "is for raw prompts", hint)
    if form[-1:].isspace() and separator.startswith(" "):
        raise refuse(("form",), form, "ends in a space, and the separator begins with one", "Keep only one")


def filled(template: TaskPrompt, occupation: str) -> TaskPrompt:
    """The template about one occupation; its article stays as the benchmark has it ("a electrician")."""
    question, start = template.question.replace(JOB, occupation), template.start.replace(JOB, occupation)
    return TaskPrompt(question, start, template.form, template.separator)
