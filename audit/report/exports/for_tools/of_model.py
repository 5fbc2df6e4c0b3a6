"""One model's answers to one suite, in the terms of other tools' formats."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.report.plain_text import chat_turns, continuation_text, distinct_names, encodable, file_name, prompt_text
from audit.results import AuditResult, Measure, ModelInfo, SuiteInfo

Record = Mapping[str, Any]


@dataclass(frozen=True)
class OfModel:
    """A model's `item_records` that hold a question for one suite (`of_items`), and their run.

    ``item_numbers``: each row's place among those of all models.
    """

    result: AuditResult
    info: SuiteInfo
    model: ModelInfo
    records: Sequence[Record]
    item_numbers: Mapping[str, int]

    @property
    def model_part(self) -> str:
        """The model's name for a path or an id, which no other model of the run has."""
        return distinct_names([info.name for info in self.result.models], file_name)[self.model.name]

    @property
    def developer_and_model(self) -> tuple[str, str]:
        """The two parts of a name like ``org/model``; no other model of the run has both."""
        parts = distinct_names([info.name for info in self.result.models], _two_parts)[self.model.name]
        developer, _, name = parts.partition("/")
        return developer, name

    @property
    def suite_part(self) -> str:
        """The suite's name for a path, an id or a task, which no other suite of the run has."""
        names = distinct_names([info.name for info in self.result.suites], lambda name: file_name(name, "-"))
        return names[self.info.name]

    def figures(self) -> Iterator[tuple[str, Measure, float]]:
        """(name, figure, value) of figures with a value, without those of single levels."""
        for name, measure in self._named:
            if measure.value is not None:
                yield name, measure, measure.value

    def without_value(self) -> list[str]:
        """The names of the figures that are known only by bounds, or not at all."""
        return [name for name, measure in self._named if measure.value is None]

    @cached_property
    def _named(self) -> list[tuple[str, Measure]]:
        """The figures, without those of single levels; those that a name would merge have their ids in it."""
        of = self.model.name, self.info.name
        own = [m for m in self.result.measures if (m.model, m.suite) == of and not m.is_subgroup]
        times = Counter(map(_figure_name, own))
        return [(name if times[name := _figure_name(m)] == 1 else f"{name}#{m.id}", m) for m in own]


def _figure_name(measure: Measure) -> str:
    """``measure[factor=level;…]``: no comma, which these tools split names at."""
    where = ";".join(f"{factor}={level}" for factor, level in measure.where.items())
    return (f"{measure.measure}[{where}]" if where else measure.measure).replace(",", " ")


def _two_parts(model: str) -> str:
    developer, _, name = model.rpartition("/")
    return f"{file_name(developer) if developer else 'unknown'}/{file_name(name)}"


def turns(prompt: Any) -> list[dict[str, str]]:
    """A prompt as messages; a plain text is the user's."""
    return [
        {"role": role, "content": content} for role, content in chat_turns(prompt) or [("user", prompt_text(prompt))]
    ]


def numbers(record: Record) -> dict[str, float]:
    """The record's quantities that are known exactly."""
    return {name: value for name, (_, value, _) in record["quantities"].items() if value is not None}


def answer_text(answers: Sequence[Mapping[str, Any]]) -> str:
    """The model's text; or its likeliest scored continuations, all that are equally likely; or else nothing."""
    written = [str(answer["text"]) for answer in answers if "text" in answer]
    if written:
        return "\n\n".join(written)
    known = [a for a in answers if "continuation" in a and a["logprob"] is not None]
    likeliest = max((a["logprob"] for a in known), default=None)
    tied = [continuation_text(a) for a in known if a["logprob"] == likeliest]
    return tied[0] if len(tied) == 1 else " / ".join(text.strip() for text in tied)


def as_json(data: Any, indent: int | None = 1) -> str:
    """JSON text with lone surrogates, which models may write, replaced."""
    return json.dumps(encodable(data), ensure_ascii=False, indent=indent, allow_nan=False)
