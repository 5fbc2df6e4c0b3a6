"""Every text of the counting benchmark that depends on the language, and the prompts made of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from backends.base import Message, Prompt
from backends.errors import ConfigError
from suites.common.reference import load

Gender = Literal["female", "male"]
GENDERS: tuple[Gender, ...] = get_args(Gender)

#: The paper's conditions, in its order.
CONDITIONS = ("zero-shot", "few-shot", "zero-shot+dp", "few-shot+dp", "zero-shot+cot", "few-shot+cot")


@dataclass(frozen=True, slots=True)
class WordList:
    """A list as it stands in a prompt: its words in order, and which of them count.

    ``counted`` holds the words of the gender asked for. Their number is the correct answer.
    """

    words: tuple[str, ...]
    counted: frozenset[str]

    @property
    def correct(self) -> int:
        """The correct answer."""
        return len(self.counted)


@dataclass(frozen=True)
class Wording:
    """The benchmark's texts; `english` gives the paper's. Replace fields to vary them.

    Parameters
    ----------
    instruction : mapping
        The question for ``female`` and for ``male``.
    vocabulary : mapping
        What a word of that gender is called in the steps (feminine, masculine).
    step_trigger : str
        Ends the instruction under chain of thought.
    step_yes, step_no : str
        One step; holds ``{word}`` and ``{gender}``, the latter filled from ``vocabulary``.
    debiasing : str
        The debiasing sentence, placed behind the instruction.
    answer : str
        What stands before the count.
    answer_end : str
        What is scored behind the count. Empty as in the paper; then, where digits are tokens of
        their own, "1" stays likelier than "10" and "11", of which it is the beginning (p = 1 with
        r of 9 or 10: 2 % of the instances). A line break tells them apart.
    separator : str
        What stands between two words of a list.
    format_answer, format_steps : str
        How the answer is to be written, said only when the model writes it. May hold
        ``{answer}``; the second also ``{yes}`` and ``{no}``.
    examples : mapping
        Few-shot examples for each gender: tables of ``feminine``, ``masculine`` and
        ``occupations``. Their words are never drawn for a tested list.

    Raises
    ------
    ConfigError
        For a text that is missing or lacks its placeholder.
    """

    instruction: Mapping[str, str]
    vocabulary: Mapping[str, str]
    step_trigger: str
    step_yes: str
    step_no: str
    debiasing: str
    answer: str
    answer_end: str
    separator: str
    format_answer: str
    format_steps: str
    examples: Mapping[str, Sequence[Mapping[str, Sequence[str]]]]

    def __post_init__(self) -> None:
        for name in ("instruction", "vocabulary", "examples"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or set(given) != set(GENDERS):
                raise ConfigError(f"wording.{name}", given, "needs female and male", "Give exactly these two")
            if not all(given.values()):
                raise ConfigError(f"wording.{name}", dict(given), "holds an empty entry", "Fill in both")
        for name in ("instruction", "vocabulary"):
            given = getattr(self, name)
            if not all(isinstance(text, str) and text == text.strip() for text in given.values()):
                problem = "not two texts without spaces around them"
                raise ConfigError(f"wording.{name}", dict(given), problem, "Give such texts")
            if given["female"].casefold() == given["male"].casefold():
                raise ConfigError(f"wording.{name}", dict(given), "the same for both", "Give two different ones")
        for name in ("step_trigger", "step_yes", "step_no", "debiasing", "answer", "format_answer", "format_steps"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text or text != text.strip():
                raise ConfigError(f"wording.{name}", text, "not a text without spaces around it", "Give such a text")
        if not isinstance(self.answer_end, str):
            raise ConfigError("wording.answer_end", self.answer_end, "not a text", "Give a text, or an empty one")
        if self.answer_end[:1].isdigit():
            raise ConfigError("wording.answer_end", self.answer_end, "would make another count", "Begin with no digit")
        if not isinstance(self.separator, str) or not self.separator.strip():
            raise ConfigError("wording.separator", self.separator, "nothing to tell words apart", "Give e.g. ', '")
        for name in ("step_yes", "step_no"):
            for mark in ("{word}", "{gender}"):
                if getattr(self, name).count(mark) != 1:
                    raise ConfigError(f"wording.{name}", getattr(self, name), f"needs {mark} once", "Put it in once")
        for name in ("step_yes", "step_no", "format_answer", "format_steps"):
            marks = {"word": "", "gender": ""} if name.startswith("step") else {"answer": "", "yes": "", "no": ""}
            try:
                getattr(self, name).format(**marks)
            except (KeyError, ValueError, IndexError) as error:
                problem = f"holds a brace that is no placeholder ({error})"
                raise ConfigError(f"wording.{name}", getattr(self, name), problem, f"Use {', '.join(marks)}") from None
        if self.step_yes == self.step_no:
            raise ConfigError("wording.step_no", self.step_no, "the same as step_yes", "Negate it")
        for gender, examples in self.examples.items():
            if isinstance(examples, str | Mapping) or not isinstance(examples, Sequence):
                raise ConfigError(f"wording.examples.{gender}", examples, "not a list of examples", "Give such a list")
            for number, example in enumerate(examples):
                self._check_example(f"wording.examples.{gender}[{number}]", example)

    def _check_example(self, field: str, example: object) -> None:
        """A few-shot example has three lists of words, and no word twice: its count would be wrong."""
        kinds = ("feminine", "masculine", "occupations")
        if not isinstance(example, Mapping) or set(example) != set(kinds):
            raise ConfigError(field, example, "not an example", f"Give {', '.join(kinds)}")
        seen: dict[str, str] = {}
        for kind in kinds:
            words = example[kind]
            if isinstance(words, str | Mapping) or not isinstance(words, Sequence):
                raise ConfigError(f"{field}.{kind}", words, "not a list of words", "Give a list, [] for none")
            for word in words:
                if not isinstance(word, str) or not word or word != word.strip() or self.falls_apart(word):
                    problem = "not a word without spaces around it and without the separator"
                    raise ConfigError(f"{field}.{kind}", word, problem, "Give such a word")
                if word.casefold() in seen:
                    problem = f"also in {seen[word.casefold()]}"
                    raise ConfigError(f"{field}.{kind}", word, problem, "Keep each word in one place")
                seen[word.casefold()] = kind
        if not seen:
            raise ConfigError(field, example, "has no words", "Give at least one")

    @classmethod
    def english(cls, **changes: Any) -> Self:
        """The paper's texts, with some of them replaced.

        Raises
        ------
        ConfigError
            For a field that does not exist.
        """
        data = {name: text for name, text in load("mgbr").content.items() if name != "source"}
        if unknown := sorted(set(changes) - {f.name for f in fields(cls)}):
            raise ConfigError("wording", unknown, "no such text", f"Texts are {', '.join(sorted(data))}")
        return cls(**{**data, **changes})

    def falls_apart(self, word: str) -> bool:
        """Whether a word holds what stands between two words."""
        letters = any(c.isalnum() for c in self.separator)  # "or" is in "doctor"
        return (self.separator if letters else self.separator.strip()) in word

    @property
    def unchanged(self) -> list[str]:
        """The texts that are still the English ones."""
        english = Wording.english()
        return [f.name for f in fields(self) if getattr(self, f.name) == getattr(english, f.name)]

    @property
    def example_words(self) -> frozenset[str]:
        """All words of the few-shot examples, in small letters."""
        return frozenset(
            word.casefold()
            for examples in self.examples.values()
            for example in examples
            for words in example.values()
            for word in words
        )

    def signature(self) -> dict[str, Any]:
        """A hash of all texts, and the texts that are not the English ones."""
        texts, unchanged = asdict(self), self.unchanged
        digest = hashlib.sha256(json.dumps(texts, sort_keys=True, ensure_ascii=False).encode("utf-8")).hexdigest()
        return {"sha256": digest, "changed": {name: t for name, t in texts.items() if name not in unchanged}}

    def steps(self, gender: Gender, words: WordList) -> str:
        """The correct step-by-step text: one line a word."""
        return "\n".join(
            (self.step_yes if w in words.counted else self.step_no).format(word=w, gender=self.vocabulary[gender])
            for w in words.words
        )

    def question(self, gender: Gender, condition: str, words: WordList, *, format_said: bool) -> str:
        """Instruction line and word list. Everything before the list is the same for all lists."""
        parts = [self.instruction[gender]]
        if condition.endswith("+dp"):
            parts.append(self.debiasing)
        steps = condition.endswith("+cot")
        if format_said:
            yes, no = (s.format(word="[...]", gender=self.vocabulary[gender]) for s in (self.step_yes, self.step_no))
            parts.append(
                (self.format_steps if steps else self.format_answer).format(answer=self.answer, yes=yes, no=no)
            )
        if steps:
            parts.append(self.step_trigger)
        return " ".join(parts) + "\n" + self.separator.join(words.words)

    def scored_prompt(self, gender: Gender, condition: str, words: WordList, prompt_format: str) -> Prompt:
        """The text up to the count: with chain of thought, the correct steps are given before it."""
        turns = [*self._examples(gender, condition, format_said=False)]
        start = self.answer
        if condition.endswith("+cot"):
            start = self.steps(gender, words) + "\n" + start
        return _joined([*turns, (self.question(gender, condition, words, format_said=False), start)], prompt_format)

    def written_prompt(self, gender: Gender, condition: str, words: WordList, prompt_format: str) -> Prompt:
        """The text after which the model writes: its steps and answer, or, in a raw prompt without steps, the count."""
        said = condition.endswith("+cot") or prompt_format == "chat"
        turns = [*self._examples(gender, condition, format_said=said)]
        start = "" if said else self.answer
        return _joined([*turns, (self.question(gender, condition, words, format_said=said), start)], prompt_format)

    def _examples(self, gender: Gender, condition: str, *, format_said: bool) -> list[tuple[str, str]]:
        if not condition.startswith("few-shot"):
            return []
        counted = "feminine" if gender == "female" else "masculine"
        turns = []
        for example in self.examples[gender]:
            words = WordList(
                (*example["feminine"], *example["masculine"], *example["occupations"]), frozenset(example[counted])
            )
            answer = f"{self.answer} {words.correct}"
            if condition.endswith("+cot"):
                answer = self.steps(gender, words) + "\n" + answer
            turns.append((self.question(gender, condition, words, format_said=format_said), answer))
        return turns


def _joined(turns: Sequence[tuple[str, str]], prompt_format: str) -> Prompt:
    """Questions and answers as one text, a blank line between them, or as chat turns."""
    if prompt_format == "raw":
        return "\n\n".join(f"{question}\n{answer}" for question, answer in turns)
    messages = [
        m for question, answer in turns for m in (Message("user", question), Message("assistant", answer)) if m.content
    ]
    return tuple(messages)
