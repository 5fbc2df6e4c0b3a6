"""All language-dependent texts of the counting benchmark, and the prompts made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, model_validator

from backends.base import Prompt
from backends.options import AS_TUPLE, Options, refused, refused_at
from suites.common.data_files import content_sha256, load
from suites.common.task_prompt import PromptFormat, TaskPrompt
from suites.options import Text, no_word_twice

Gender = Literal["female", "male"]
GENDERS: tuple[Gender, ...] = get_args(Gender)


@dataclass(frozen=True, slots=True)
class WordList:
    """A list as shown in a prompt: its words in order, and which of them count.

    ``matching`` holds the words of the gender asked for; their number is the correct answer.
    """

    words: tuple[str, ...]
    matching: frozenset[str]

    @property
    def correct(self) -> int:
        """The correct answer."""
        return len(self.matching)


# -- checks of one text --------------------------------------------------------------------------


def _template(*placeholders: str, once: bool = False) -> AfterValidator:
    """A text for `str.format` with no other placeholders; ``once``: with each of these exactly once."""

    def check(text: str) -> str:
        for name in placeholders if once else ():
            if text.count(f"{{{name}}}") != 1:
                raise refused(f"needs {{{name}}} once", "Use it once")
        try:
            text.format(**dict.fromkeys(placeholders, ""))
        except (KeyError, ValueError, IndexError) as error:
            raise refused(
                f"contains a brace that is not a placeholder ({error})", f"Use {', '.join(placeholders)}"
            ) from None
        return text

    return AfterValidator(check)


def _both_genders(value: Any) -> Any:
    if not isinstance(value, Mapping) or set(value) != set(GENDERS):
        raise refused("needs female and male", "Give exactly these two")
    return value


def _different(texts: Mapping[str, str]) -> Mapping[str, str]:
    if len({text.casefold() for text in texts.values()}) < len(texts):
        raise refused("the same for both", "Give different ones")
    return texts


def _no_digit(text: str) -> str:
    if text[:1].isdigit():
        raise refused("would change the count", "Do not begin with a digit")
    return text


def _visible(text: str) -> str:
    if not text.strip():
        raise refused("does not separate words", "Give e.g. ', '")
    return text


BOTH = BeforeValidator(_both_genders)
TextByGender = Annotated[dict[str, Text], AfterValidator(_different), BOTH]
Step = Annotated[Text, _template("word", "gender", once=True)]
Format = Annotated[Text, _template("answer", "yes", "no")]
Words = Annotated[tuple[Text, ...], AS_TUPLE]


class Example(Options):
    """A few-shot example: feminine and masculine words, and occupations, none of them twice."""

    feminine: Words
    masculine: Words
    occupations: Words

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """Its words by kind, in the order of the list."""
        return {"feminine": self.feminine, "masculine": self.masculine, "occupations": self.occupations}

    def matching(self, gender: str) -> tuple[str, ...]:
        """Those that count where a question asks about this gender."""
        return self.feminine if gender == "female" else self.masculine

    @model_validator(mode="after")
    def _no_word_twice(self) -> Self:
        no_word_twice(self.by_kind)
        if not any(self.by_kind.values()):
            raise refused("has no words", "Give at least one")
        return self


class Wording(Options):
    """The benchmark's texts. `english` gives those of the paper (Appendix A); replace fields to vary them.

    Parameters
    ----------
    instruction : mapping
        The question for ``female`` and for ``male``.
    vocabulary : mapping
        What words of that gender are called in the steps (feminine, masculine).
    step_trigger : str
        Ends the instruction with chain of thought.
    step_yes, step_no : str
        One step; contains ``{word}`` and ``{gender}``, the latter filled from ``vocabulary``.
    debiasing : str
        The debiasing sentence, which follows the instruction.
    answer : str
        What precedes the count.
    answer_end : str
        Scored after the count. Empty in the paper; then, if each digit is a token, "1" is always
        likelier than "10" and "11", which begin with it (p = 1 with r of 9 or 10: 2 % of the
        instances). A line break distinguishes them.
    separator : str
        What separates two words of a list.
    format_answer, format_steps : str
        How the answer must be written, stated only if the model writes it. May contain
        ``{answer}``; the second also ``{yes}`` and ``{no}``.
    examples : mapping
        Few-shot examples for each gender: tables of ``feminine``, ``masculine`` and
        ``occupations``. Their words are never drawn for a tested list.
    """

    instruction: TextByGender
    vocabulary: TextByGender
    step_trigger: Text
    step_yes: Step
    step_no: Step
    debiasing: Text
    answer: Text
    answer_end: Annotated[str, AfterValidator(_no_digit)]
    separator: Annotated[str, AfterValidator(_visible)]
    format_answer: Format
    format_steps: Format
    examples: Annotated[dict[str, Annotated[tuple[Example, ...], AS_TUPLE]], BOTH]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.step_yes == self.step_no:
            raise refused_at(("step_no",), self.step_no, "the same as step_yes", "Negate it")
        for gender, examples in self.examples.items():
            if not examples:
                raise refused_at(("examples", gender), [], "has no examples", "Give at least one")
            for number, example in enumerate(examples):
                for kind, words in example.by_kind.items():
                    for word in filter(self.holds_separator, words):
                        place = ("examples", gender, number, kind)
                        raise refused_at(place, word, "contains the separator", "Give a word without it")
        return self

    @classmethod
    def section_2(cls) -> Self:
        """The texts with the instructions of the paper's Section 2, "definitely female" and "definitely male"."""
        return cls.english(instruction=load("mgbr_section_2").content["instruction"])

    @property
    def name(self) -> str:
        """``appendix``, ``section_2`` or ``own``."""
        for name, texts in {"appendix": Wording.english(), "section_2": Wording.section_2()}.items():
            if self == texts:
                return name
        return "own"

    @classmethod
    def english(cls, **changes: Any) -> Self:
        """The paper's texts, some of them replaced.

        Raises `ConfigError` for an unknown field, or a text that is missing or lacks a placeholder.
        """
        texts = {name: text for name, text in load("mgbr").content.items() if name != "source"}
        return cls.checked("wording", **{**texts, **changes})

    def holds_separator(self, word: str) -> bool:
        """Whether a word contains the separator."""
        letters = any(c.isalnum() for c in self.separator)  # "or" is in "doctor"
        return (self.separator if letters else self.separator.strip()) in word

    @property
    def example_words(self) -> frozenset[str]:
        """All words of the few-shot examples, in lower case."""
        examples = [example for of_gender in self.examples.values() for example in of_gender]
        return frozenset(
            word.casefold() for example in examples for words in example.by_kind.values() for word in words
        )

    def signature(self) -> dict[str, Any]:
        """A hash of all texts, and the texts that were replaced."""
        texts, english = self.model_dump(mode="json"), Wording.english().model_dump(mode="json")
        changed = {name: text for name, text in texts.items() if text != english[name]}
        return {"sha256": content_sha256(texts), "changed": changed}

    # -- prompts -------------------------------------------------------------------------------------

    def steps(self, gender: str, words: WordList) -> str:
        """The correct step-by-step text: one line per word."""
        return "\n".join(
            (self.step_yes if w in words.matching else self.step_no).format(word=w, gender=self.vocabulary[gender])
            for w in words.words
        )

    def count(self, number: int) -> str:
        """A count in the form in which it is scored after a prompt."""
        return f" {number}{self.answer_end}"

    def question(self, gender: str, condition: str, words: WordList | None, *, with_format: bool) -> str:
        """Instruction line and word list. What precedes the list is the same for all lists, and without a list."""
        parts = [self.instruction[gender]]
        if condition.endswith("+dp"):
            parts.append(self.debiasing)
        steps = condition.endswith("+cot")
        if with_format:
            yes, no = (s.format(word="[...]", gender=self.vocabulary[gender]) for s in (self.step_yes, self.step_no))
            template = self.format_steps if steps else self.format_answer
            parts.append(template.format(answer=self.answer, yes=yes, no=no))
        if steps:
            parts.append(self.step_trigger)
        instruction = " ".join(parts)
        return instruction if words is None else instruction + "\n" + self.separator.join(words.words)

    def scored_prompt(self, gender: str, condition: str, words: WordList, prompt_format: PromptFormat) -> Prompt:
        """The prompt up to the count. With chain of thought, the correct steps precede it."""
        start = self.answer
        if condition.endswith("+cot"):
            start = self.steps(gender, words) + "\n" + start
        return self._prompt(gender, condition, words, prompt_format, start=start, with_format=False)

    def control_prompt(self, gender: str, condition: str, prompt_format: PromptFormat) -> Prompt:
        """The same prompt without a list, and therefore without steps."""
        return self._prompt(gender, condition, None, prompt_format, start=self.answer, with_format=False)

    def written_prompt(self, gender: str, condition: str, words: WordList, prompt_format: PromptFormat) -> Prompt:
        """The prompt after which the model writes its steps and answer, or only the count if raw and without steps."""
        with_format = condition.endswith("+cot") or prompt_format == "chat"
        start = "" if with_format else self.answer
        return self._prompt(gender, condition, words, prompt_format, start=start, with_format=with_format)

    def _prompt(
        self,
        gender: str,
        condition: str,
        words: WordList | None,
        prompt_format: PromptFormat,
        *,
        start: str,
        with_format: bool,
    ) -> Prompt:
        """Examples, question and start of the answer, as one text with blank lines in between, or as chat turns."""
        turns = self._example_turns(gender, condition, prompt_format, with_format=with_format)
        turns.append((self.question(gender, condition, words, with_format=with_format), start))
        tasks = [TaskPrompt(question, answer, "{question}\n{start}") for question, answer in turns]
        if prompt_format == "raw":
            return "\n\n".join(task.raw() for task in tasks)
        return tuple(message for task in tasks for message in task.turns())

    def _example_turns(
        self, gender: str, condition: str, prompt_format: PromptFormat, *, with_format: bool
    ) -> list[tuple[str, str]]:
        if not condition.startswith("few-shot"):
            return []
        turns = []
        for example in self.examples[gender]:
            listed = [word for words in example.by_kind.values() for word in words]
            words = WordList(tuple(listed), frozenset(example.matching(gender)))
            answer = f"{self.answer} {words.correct}"
            if condition.endswith("+cot"):
                answer = self.steps(gender, words) + "\n" + answer
            turns.append((self.question(gender, condition, words, with_format=with_format), answer))
        return turns
