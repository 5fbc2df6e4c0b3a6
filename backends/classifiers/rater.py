"""A language model as a text classifier: a rubric asks a question about the text, and the answer is the label.

``answer="likelihood"`` scores every answer of the rubric after the question; a label's probability is its answer's
share of their sum, and `ANSWER_MASS` is that sum. ``answer="text"`` lets the model generate greedily; unless its text
is one of the answers and nothing else (`backends.reading.answers`), there is no label, but an error, which is counted.
Whether such a rater is reliable is tested in `suites.common.raters`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from backends.base import (
    ANSWER_MASS,
    Answer,
    Backend,
    ClassifyRequest,
    ClassifyResponse,
    Description,
    GenerateRequest,
    GenerateResponse,
    Message,
    Prompt,
    Request,
    Sampling,
    Scalar,
    ScoreRequest,
    ScoreResponse,
    SupportsIdentityCheck,
    SupportsPrices,
    SupportsStopping,
)
from backends.errors import BackendError, ConfigError
from backends.options import Options, checked_options, refused
from backends.reading.answers import stated_answer

_PLACE = "{text}"
#: Labels are stored, not the texts that they were read from. 3: a text that says more than an answer is none.
READING_VERSION = 3


class RatedExample(Options):
    """A text with the label that it should get."""

    text: str
    label: str


class Rubric(Options):
    """A question about a text, and its valid answers.

    Attributes
    ----------
    question : str
        With ``{text}`` where the text stands.
    answers : dict
        Label → what the model answers, e.g. ``{"toxic": "yes", "harmless": "no"}``.
    start : str
        How an answer starts, before the space and the answer itself.
    examples : tuple of RatedExample
        Shown before the question, with their answers.
    """

    question: str
    answers: dict[str, str]
    start: str = "Answer:"
    examples: tuple[RatedExample, ...] = ()

    @field_validator("question")
    @classmethod
    def _one_place(cls, question: str) -> str:
        if question.count(_PLACE) != 1:
            raise refused("has no place for the text, or several", f"Write {_PLACE} once")
        return question

    @field_validator("answers")
    @classmethod
    def _distinct(cls, answers: dict[str, str]) -> dict[str, str]:
        said = [answer.strip().casefold() for answer in answers.values()]
        if len(said) < 2 or len(set(said)) < len(said) or "" in said or ANSWER_MASS in answers:
            raise refused("not two or more different answers", "Map each label to an answer of its own")
        return answers

    @field_validator("examples")
    @classmethod
    def _known_labels(cls, examples: tuple[RatedExample, ...], info: ValidationInfo) -> tuple[RatedExample, ...]:
        for example in examples:
            if example.label not in info.data.get("answers", {example.label: ""}):
                raise refused(f"{example.label!r} is no label of the answers", "Use one of the labels")
        return examples

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Rubric:
        """The rubric from a table of its fields. Raises `ConfigError` naming the field."""
        examples = tuple(RatedExample.checked("rubric.examples", **example) for example in table.get("examples", ()))
        return cls.checked("rubric", **{**table, "examples": examples})

    @classmethod
    def read(cls, path: str | Path) -> Rubric:
        """The rubric in a JSON file. Raises `ConfigError` if it cannot be read."""
        try:
            return cls.of(json.loads(Path(path).expanduser().read_text("utf-8")))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            problem = f"no rubric ({type(error).__name__})"
            raise ConfigError("rubric", str(path), problem, "Give a JSON file of question and answers") from error

    @property
    def sha256(self) -> str:
        """Hash over all fields."""
        written = json.dumps(self.model_dump(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(written.encode()).hexdigest()


class LLMRater(Backend):
    """Any backend that scores or generates texts, as a text classifier.

    Parameters
    ----------
    backend : Backend
        The model that rates.
    rubric : Rubric or path
        The question and its answers, or a JSON file of them.
    answer : {"likelihood", "text"}
        Score the answers' log-probabilities, which must be exact, or read the text that the model generates.
    prompt_format : {"raw", "chat"}
        Plain text, or turns of a chat.
    name : str, optional
        The model's name in reports. Default: its own name, or that of its file.
    """

    @checked_options
    def __init__(
        self,
        backend: Backend,
        rubric: Rubric | str | Path,
        *,
        answer: Literal["likelihood", "text"] = "likelihood",
        prompt_format: Literal["raw", "chat"] = "raw",
        name: str | None = None,
    ) -> None:
        self.backend, self.answer, self.prompt_format = backend, answer, prompt_format
        self.name = name or _name_of(backend)
        self.rubric = rubric if isinstance(rubric, Rubric) else Rubric.read(rubric)
        self.device, self.endpoint = backend.device, backend.endpoint
        self.batch_size, self.max_in_flight = backend.batch_size, backend.max_in_flight
        self._asked: dict[Request, ClassifyRequest] = {}

    def check(self) -> None:
        self.backend.check()

    @property
    def asking(self) -> dict[str, str]:
        """How texts are rated: the rubric's hash, the kind of answer, and the prompt format."""
        return {"rubric": self.rubric.sha256, "answer": self.answer, "prompt_format": self.prompt_format}

    def label_names(self) -> list[str]:
        """The rubric's labels."""
        return list(self.rubric.answers)

    async def describe(self) -> Description:
        inner = await self.backend.describe()
        needed = {"score" if self.answer == "likelihood" else "generate"}
        needed |= {"chat"} if self.prompt_format == "chat" else set()
        if lacking := needed - inner.capabilities:
            problem = f"the model cannot {' and '.join(sorted(lacking))}"
            raise ConfigError("answer", self.answer, problem, "Use another answer or prompt_format, or another model")
        fingerprint: dict[str, Scalar] = {f"rater.{name}": value for name, value in inner.fingerprint.items()}
        fingerprint |= {"backend": "rater", **self.asking}
        if self.answer == "text":
            fingerprint["reading_version"] = READING_VERSION
        notes = {**inner.notes, "rubric": self.rubric.question}
        return Description(
            fingerprint,
            frozenset({"classify"}),
            notes,
            frozenset(f"rater.{name}" for name in inner.retired),
            statements=inner.statements,
            limits=inner.limits,
            requests=inner.requests,
        )

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        answers: list[Answer] = [
            BackendError("unsupported", f"a rater cannot answer a {type(request).__name__}") for request in batch
        ]
        asked = {i: self._question(request) for i, request in enumerate(batch) if isinstance(request, ClassifyRequest)}
        if asked:
            self._asked |= {asked[i]: batch[i] for i in asked if isinstance(self.backend, SupportsIdentityCheck)}  # type: ignore[misc]
            given = await self.backend.run(list(asked.values()))
            for i, answer in zip(asked, given, strict=True):
                answers[i] = self._read(answer)
        return answers

    def stop_computing(self) -> None:
        """As in `backends.base.SupportsStopping`."""
        if isinstance(self.backend, SupportsStopping):
            self.backend.stop_computing()

    async def close(self) -> None:
        await self.backend.close()

    def _question(self, request: ClassifyRequest) -> ScoreRequest | GenerateRequest:
        prompt, said = self._prompt(request.text), tuple(f" {answer}" for answer in self.rubric.answers.values())
        if self.answer == "likelihood":
            return ScoreRequest(prompt, said)
        longest = max(map(len, said))  # a token is a character or more
        return GenerateRequest(prompt, Sampling(max_tokens=longest + 4, stop=("\n",)))

    def _prompt(self, text: str) -> Prompt:
        rubric = self.rubric
        turns = [(e.text, f"{rubric.start} {rubric.answers[e.label]}") for e in rubric.examples]
        turns = [(rubric.question.replace(_PLACE, shown), said) for shown, said in [*turns, (text, rubric.start)]]
        if self.prompt_format == "raw":
            return "\n\n".join(f"{question}\n{said}" for question, said in turns)
        return tuple(m for question, said in turns for m in (Message("user", question), Message("assistant", said)))

    def _read(self, answer: Answer) -> Answer:
        match answer:
            case ScoreResponse(scores):
                if any(score.exactness != "exact" for score in scores):
                    hint = 'Let it write instead: answer="text"'
                    return BackendError("unsupported", "the probability of an answer is only bounded", hint=hint)
                masses = [math.exp(score.high) for score in scores]
                highest = max(score.high for score in scores)
                shares = [math.exp(score.high - highest) for score in scores]
                labels = {label: s / sum(shares) for label, s in zip(self.rubric.answers, shares, strict=True)}
                return ClassifyResponse({**labels, ANSWER_MASS: min(1.0, math.fsum(masses))})
            case GenerateResponse(text):
                chosen = stated_answer(text, list(self.rubric.answers.values()))
                if chosen is None:
                    problem = "undecided: the rater's text is none of the rubric's answers, or says more than that"
                    return BackendError("malformed", problem)
                return ClassifyResponse({label: float(at == chosen) for at, label in enumerate(self.rubric.answers)})
            case _:
                return answer

    # -- optional protocols, forwarded to the rating model -----------------------------------------------

    def spent(self) -> float | None:
        """As `SupportsPrices`; None without prices."""
        return self.backend.spent() if isinstance(self.backend, SupportsPrices) else None

    def highest_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """As `SupportsPrices`."""
        if isinstance(self.backend, SupportsPrices):
            return self.backend.highest_cost(prompt_tokens, completion_tokens)
        return None

    @property
    def unverified_since(self) -> float | None:
        """As `SupportsIdentityCheck`."""
        return self.backend.unverified_since if isinstance(self.backend, SupportsIdentityCheck) else None

    @property
    def unverified_reason(self) -> str:
        """As `SupportsIdentityCheck`."""
        return self.backend.unverified_reason if isinstance(self.backend, SupportsIdentityCheck) else ""

    async def verify_identity(self) -> None:
        """As `SupportsIdentityCheck`."""
        if isinstance(self.backend, SupportsIdentityCheck):
            await self.backend.verify_identity()

    def drain_ambiguous(self) -> list[Request]:
        """As `SupportsIdentityCheck`: the texts behind the model's ambiguous questions."""
        if not isinstance(self.backend, SupportsIdentityCheck):
            return []
        return [self._asked[request] for request in self.backend.drain_ambiguous() if request in self._asked]


def _name_of(backend: Backend) -> str:
    """A model's own name, or that of its file or folder."""
    named = getattr(getattr(backend, "source", backend), "model", None) or getattr(backend, "name", None)
    return Path(str(named)).name if named is not None else type(backend).__name__
