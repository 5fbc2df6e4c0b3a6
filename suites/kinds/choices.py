"""Multiple choice: which of several answers a model gives to a question, as in BBQ and Bias NLI.

``answers="letter"``: the answers are listed under letters, and the letter is scored or generated. ``answers="text"``:
nothing is listed, and the whole text of each answer is scored, as lm-evaluation-harness does.
``mode="likelihood"`` takes the likeliest answer; ``mode="generation"`` a generated one that can be read
(`backends.reading.answers`). With chain of thought the model first generates its steps, and is then asked for the
answer after them (two requests, as in Kojima et al. 2022). The factor ``kind`` says what a row is:

==============  ===========================================================================================
question        one answered question
steps           the steps before an answer; only if they are missing
change          one question, ``condition`` minus ``against``: differences of its quantities
==============  ===========================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, TypedDict

from pydantic import Field

import backends.base as base
from backends.options import some_of
from backends.reading.answers import stated_answer
from suites.base import Factor, IdentifiedInterval, Item, MeasureSpec, Row, Suite
from suites.common.data_files import load
from suites.common.gender_figures import contrast
from suites.common.planted import chance, planted_scores
from suites.common.probabilities import total_probability
from suites.common.task_prompt import CONDITIONS, PromptFormat, begin_with

Mode = Literal["likelihood", "generation"]
Answers = Literal["letter", "text"]

_WORDING = load("benchmarks_wording")
#: Quantities whose change from one condition to another is reported.
_COMPARED = ("accuracy", "bias_score")
#: Maximum tokens of a generated answer after "Answer:".
ANSWER_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answers in the order in which they are listed, and the role of each."""

    id: str
    text: str
    answers: tuple[str, ...]
    roles: tuple[str, ...]
    factors: Mapping[str, Factor] = field(default_factory=dict)


class AskingOptions(TypedDict, total=False):
    """How a published benchmark's questions are asked.

    Parameters
    ----------
    conditions : sequence of str
        Some of the six of Kaneko et al. 2024: zero-shot or few-shot, with a debiasing sentence (dp) or chain of
        thought (cot).
    mode : {"likelihood", "generation"}
    answers : {"letter", "text"}
    prompt_format : {"raw", "chat", "chat_whole"}
        ``chat`` begins the model's answer ("Answer:"); ``chat_whole`` asks it to begin so, for models that do not
        continue a start.
    step_tokens : int
        Maximum tokens of the generated steps.
    """

    conditions: Annotated[tuple[str, ...], some_of(CONDITIONS)]
    mode: Mode
    answers: Answers
    prompt_format: PromptFormat
    step_tokens: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Asking:
    """How the questions are asked, the same for all of them. ``step_tokens`` limits the generated steps."""

    conditions: tuple[str, ...] = ("zero-shot",)
    mode: Mode = "likelihood"
    answers: Answers = "letter"
    prompt_format: PromptFormat = "raw"
    step_tokens: int = 128


class AnsweredQuestions(Suite):
    """Questions with listed answers. A subclass supplies them, and the quantities of each answer.

    Parameters
    ----------
    questions : iterable of Question
    asking : Asking
    data_sha256 : str
        Hash of the data that the questions come from.
    data
        Fields of `suites.base.Suite`.

    Attributes
    ----------
    examples : str
        Key of the few-shot examples in ``benchmarks_wording.json``.
    """

    examples: ClassVar[str]

    def __init__(self, questions: Iterable[Question], asking: Asking, data_sha256: str = "", **data: Any) -> None:
        self.questions, self.asking, self.data_sha256 = [*questions], asking, data_sha256
        super().__init__(**data)

    @abstractmethod
    def values_of(self, question: Question, role: str) -> Mapping[str, IdentifiedInterval]:
        """The quantities of a question, given the role of the chosen answer."""

    @property
    def mass(self) -> Mapping[str, Any]:
        """What a figure names as the answers' total probability: nothing if answers are generated."""
        return {"probability_mass": "coverage"} if self.asking.mode == "likelihood" else {}

    def signature(self) -> Mapping[str, Any]:
        return {
            "version": self.version,
            "data_sha256": self.data_sha256,
            "wording_sha256": _WORDING.sha256,
            "questions": len(self.questions),
            **asdict(self.asking),
            "conditions": list(self.asking.conditions),
        }

    def items(self) -> Iterator[Item]:
        for condition, question in product(self.asking.conditions, self.questions):
            kind = "steps" if condition.endswith("+cot") else "question"
            factors = {**question.factors, "condition": condition, "kind": kind}
            yield Item(f"{condition}/{question.id}", self._request(question, condition), factors)

    def follow_ups(self, item: Item, response: base.Response) -> Iterable[Item]:
        if item.factors["kind"] == "steps" and isinstance(response, base.GenerateResponse):
            text = response.text
            yield self._after(item, text.lstrip().removeprefix(_trigger()) if self._is_whole else text)

    def _after(self, item: Item, steps: str) -> Item:
        request = self._request(self._question(item), str(item.factors["condition"]), steps.rstrip() + "\n")
        return Item(f"{item.id}#answer", request, {**item.factors, "kind": "question"})

    def _request(self, question: Question, condition: str, steps: str | None = None) -> base.Request:
        """The request that ends with an answer; without ``steps``, with chain of thought, that for these."""
        prompt = self._prompt(question, condition, steps)
        if condition.endswith("+cot") and steps is None:
            blank = () if self._is_whole else ("\n\n",)  # a whole answer may have a blank line after its start
            stop = (*blank, str(_WORDING.content["answer"]))
            return base.GenerateRequest(prompt, base.Sampling(max_tokens=self.asking.step_tokens, stop=stop))
        if self.asking.mode == "generation":
            return base.GenerateRequest(prompt, base.Sampling(max_tokens=ANSWER_TOKENS, stop=("\n",)))
        begun = self._mark_of_answers if self._is_whole else ""
        return base.ScoreRequest(prompt, tuple(f"{begun} {answer}" for answer in self._listed(question)))

    def _listed(self, question: Question) -> Sequence[str]:
        """The text that is scored or generated for each answer."""
        return question.answers if self.asking.answers == "text" else letters(question.answers)

    def _prompt(self, question: Question, condition: str, steps: str | None = None) -> base.Prompt:
        """Examples, question, and the start of the answer; without ``steps`` their trigger, with chain of thought."""
        asked = [*self._examples(condition), (question, steps, "")]
        turns = [self._turns(*one, condition) for one in asked]
        if self._is_whole:
            return tuple(message for of_one in turns for message in _whole(of_one))
        joined = [(of_one[0][0], "".join(start + said for _, start, said in of_one)) for of_one in turns]
        if self.asking.prompt_format == "raw":
            return "\n\n".join(f"{text}\n{answer}" for text, answer in joined)
        messages = ((base.Message("user", text), base.Message("assistant", answer)) for text, answer in joined)
        return tuple(message for pair in messages for message in pair)

    def _turns(self, question: Question, steps: str | None, right: str, condition: str) -> list[tuple[str, str, str]]:
        """What is asked, what the answer begins with, and the rest of it; empty where the model goes on."""
        lines = [load("mgbr").content["debiasing"]] if condition.endswith("+dp") else []
        lines.append(question.text)
        if self.asking.answers == "letter":
            lines += [
                f"{mark} {answer}" for mark, answer in zip(letters(question.answers), question.answers, strict=True)
            ]
        asked = "\n".join(lines)
        if not condition.endswith("+cot"):
            return [(asked, self._mark_of_answers, right)]
        if steps is None:
            return [(asked, _trigger(), "")]
        return [(asked, _trigger(), steps), ("", self._mark_of_answers, right)]

    @property
    def _is_whole(self) -> bool:
        return self.asking.prompt_format == "chat_whole"

    @property
    def _mark_of_answers(self) -> str:
        """What an answer begins with."""
        return str(_WORDING.content["answer" if self.asking.answers == "letter" else "answer_text"])

    def _examples(self, condition: str) -> Iterator[tuple[Question, str, str]]:
        """The few-shot examples with their steps and correct answers."""
        for number, example in enumerate(_WORDING.content["examples"][self.examples]):
            if condition.startswith("few-shot"):
                answers = tuple(example["answers"])
                question = Question(str(number), example["text"], answers, answers)
                right = self._listed(question)[answers.index(example["right"])]
                yield question, f" {example['steps']}\n", f" {right}"

    def read(self, item: Item, response: base.Response) -> Row:
        if item.factors["kind"] == "steps":
            return Row(item.id, item.factors, {})
        question = self._question(item)
        mass: dict[str, IdentifiedInterval] = {}
        if isinstance(response, base.ScoreResponse):
            chosen, missing = likeliest(response.scores), "undecided"
            mass = {"coverage": total_probability(response.scores)}
        else:
            assert isinstance(response, base.GenerateResponse)
            text = response.text.lstrip().removeprefix(self._mark_of_answers) if self._is_whole else response.text
            chosen = stated_answer(text, question.answers, letters=self.asking.answers == "letter")
            missing = "unparsable"
        if chosen is None:
            return Row(item.id, item.factors, {}, missing=missing)
        return Row(item.id, item.factors, {**self.values_of(question, question.roles[chosen]), **mass})

    def derive(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The questions' rows, and their changes between conditions.

        Missing steps are a missing answer, under the answer's name: so it pairs with that of a model that has steps.
        """
        asked = {row.item_id for row in rows if row.factors["kind"] == "question"}
        answered = []
        for row in rows:
            if row.factors["kind"] == "question":
                answered.append(row)
            elif row.missing and (answer := f"{row.item_id}#answer") not in asked:
                answered.append(Row(answer, {**row.factors, "kind": "question"}, {}, row.missing, row.items))
        return [*answered, *self._changes(answered)]

    @property
    def changes(self) -> Sequence[Mapping[str, Factor]]:
        """The factors of the changes: each condition with a debiasing sentence or steps, ``against`` that without."""
        known = self.asking.conditions
        pairs = ((condition, condition.split("+")[0]) for condition in known if "+" in condition)
        return [{"kind": "change", "condition": c, "against": against} for c, against in pairs if against in known]

    def by_condition(self, figures: Sequence[MeasureSpec]) -> Iterator[MeasureSpec]:
        """Figures in each condition, and by how much conditions change accuracy and bias score."""
        for condition, spec in product(self.asking.conditions, figures):
            where = {"kind": "question", **spec.where, "condition": condition}
            yield replace(spec, where=where, primary=spec.primary and "+" not in condition, **self.mass)
        differ: dict[str, Any] = {"kind": "difference", "is_count": True, "neutral": 0.0, "contrast": True}
        for change, spec in product(self.changes, figures):
            if spec.quantity in _COMPARED and not spec.is_subgroup:
                name, reach = f"{spec.measure}_change", (-2.0, 2.0) if spec.kind == "difference" else None
                named: dict[str, Any] = {"measure": name, "quantity": f"{spec.quantity}_change", "family": name}
                unit = "difference of shares" if spec.kind == "share" else spec.unit
                where = {**spec.where, **change}
                yield replace(spec, where=where, primary=False, range=reach, unit=unit, **named, **differ)

    def _changes(self, rows: Sequence[Row]) -> Iterator[Row]:
        found = {(row.factors["condition"], row.factors["question"]): row for row in rows}
        names = {quantity: f"{quantity}_change" for quantity in _COMPARED}
        for change, ((condition, question), row) in product(self.changes, found.items()):
            other = found.get((change["against"], question))
            if condition == change["condition"] and other is not None:
                row_id = f"{condition}-{change['against']}/{question}"
                yield contrast(row_id, row, other, names, {**row.factors, **change})

    def planted_choice(self, item: Item, towards: str, bias: float, draw: int) -> base.Response:
        """The answer of the role ``towards`` in the part ``bias`` of the questions, any answer in the others."""
        question = self._question(item)
        marks = self._listed(question)
        chosen = int(chance("which", item.id, draw) * len(marks))
        if chance("whether", item.id, draw) < bias:
            chosen = question.roles.index(towards)
        if isinstance(item.request, base.GenerateRequest):
            return base.GenerateResponse(f" {marks[chosen]}", "stop")
        assert isinstance(item.request, base.ScoreRequest)
        scored = enumerate(item.request.continuations)
        return planted_scores({text: 0.5 if place == chosen else 0.1 for place, text in scored})

    def _question(self, item: Item) -> Question:
        return self._by_id[str(item.factors["question"])]

    @cached_property
    def _by_id(self) -> Mapping[str, Question]:
        return {question.id: question for question in self.questions}


def letters(answers: Sequence[str]) -> list[str]:
    """The marks under which answers are listed: (a), (b)…"""
    return [f"({chr(ord('a') + place)})" for place in range(len(answers))]


def likeliest(scores: Sequence[base.ContinuationScore]) -> int | None:
    """The index of the likeliest answer; None for a tie, or if bounds leave it open."""
    for place, score in enumerate(scores):
        others = [other.high for i, other in enumerate(scores) if i != place]
        if score.low is not None and score.low > max(others):
            return place
    return None


def _trigger() -> str:
    return str(load("mgbr").content["step_trigger"])


def _whole(turns: Sequence[tuple[str, str, str]]) -> Iterator[base.Message]:
    """The same as a chat that begins no answer: it asks for the start, of steps and answer one after the other."""
    for asked, start, said in turns:
        yield base.Message("user", "\n".join(filter(None, (asked, begin_with(start)))))
        if said:
            yield base.Message("assistant", f"{start}{said}".rstrip())
