"""A task prompt: a question about an occupation, and the start of the answer.

Raw, it is the papers' text, ``Q: {question}\\nA:{start}``, and a scored word follows with a
space of its own: " Male". As chat, the question is the user's turn and the start of the
answer opens the assistant's turn, which the model continues. Where the answer has no start
("Answer with one word"), a chat model begins its turn with the word, so that the word has no
space before it: "Male".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from backends.base import Message, Prompt
from backends.options import refused

PromptFormat = Literal["raw", "chat"]
Article = Literal["as_printed", "grammatical"]

JOB = "[JOB]"
_ARTICLE_AND_JOB = re.compile(r"\b([Aa])n? \[JOB\]")
_QUESTION_AND_START = re.compile(r"Q: (?P<question>.+)\nA:(?P<start>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TaskPrompt:
    """One question and the start of its answer.

    Attributes
    ----------
    question : str
        Without the leading ``Q: ``.
    start : str
        What the answer begins with; empty where the scored word comes first.
    """

    question: str
    start: str

    def raw(self, before: str | None = None) -> str:
        """``Q: {before} {question}\\nA: {start}``."""
        return f"Q: {joined(before, self.question)}\nA:{' ' + self.start if self.start else ''}"

    def turns(self, before: str | None = None) -> tuple[Message, ...]:
        """The user's turn, and the opened turn of the assistant where the answer has a start."""
        question = Message("user", joined(before, self.question))
        return (question, Message("assistant", self.start)) if self.start else (question,)

    def prompt(self, prompt_format: PromptFormat, before: str | None = None) -> Prompt:
        """The prompt in one of the two forms, with a text put before the question."""
        return self.raw(before) if prompt_format == "raw" else self.turns(before)

    def space(self, prompt_format: PromptFormat) -> str:
        """What separates the prompt from a scored word: a space, or nothing at the start of a turn."""
        return "" if prompt_format == "chat" and not self.start else " "


def joined(*texts: str | None) -> str:
    """Texts with one space between them, the missing ones left out."""
    return " ".join(t for t in texts if t)


def parse_prompt(text: object) -> TaskPrompt:
    """Read a prompt in the papers' form; a validator."""
    parts = _QUESTION_AND_START.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        hint = "Write it as 'Q: question\\nA:' and, if wanted, a space and the answer's start"
        raise refused("not a question and the start of an answer", hint)
    start = parts["start"]
    if start != start.rstrip() or (start and not start.startswith(" ")):
        hint = "Put one space after 'A:' and none at the end; the scored word brings its own"
        raise refused("has spaces where the scored word follows, or none after 'A:'", hint)
    return TaskPrompt(parts["question"], start[1:])


def parse_template(text: object) -> TaskPrompt:
    """Read a prompt about ``[JOB]``, which stays in it; a validator."""
    template = parse_prompt(text)
    if JOB not in str(text):
        raise refused("names no occupation", f"Write {JOB} in place of the occupation")
    return template


def filled(template: TaskPrompt, occupation: str, article: Article) -> TaskPrompt:
    """The template about one occupation.

    ``as_printed`` leaves the article as the benchmark has it ("a electrician"), ``grammatical``
    makes it agree ("an electrician").
    """
    return TaskPrompt(*(_filled(text, occupation, article) for text in (template.question, template.start)))


def _filled(text: str, occupation: str, article: Article) -> str:
    if article == "grammatical":
        right = _article_of(occupation)
        text = _ARTICLE_AND_JOB.sub(lambda m: f"{right.capitalize() if m[1] == 'A' else right} {JOB}", text)
    return text.replace(JOB, occupation)


@cache
def _article_of(noun: str) -> str:
    import inflect  # only for this option

    engine = inflect.engine()
    engine.defan("usher")  # which it takes for a word like "user"
    article: str = engine.a(noun).split(" ", 1)[0]
    return article
