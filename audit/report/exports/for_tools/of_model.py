"""One model's answers to one suite, in the terms of other tools' formats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.report.formatting import encodable
from audit.results import AuditResult, Measure, ModelInfo, SuiteInfo

Record = Mapping[str, Any]


@dataclass(frozen=True)
class OfModel:
    """A model's `item_records` with a prompt for one suite, and their run."""

    result: AuditResult
    model: str
    suite: str
    records: Sequence[Record]

    @property
    def info(self) -> SuiteInfo:
        """The suite as it was run."""
        return next(info for info in self.result.suites if info.name == self.suite)

    @property
    def model_info(self) -> ModelInfo:
        """The model as it was audited."""
        return next(info for info in self.result.models if info.name == self.model)

    def figures(self) -> Iterator[tuple[str, Measure, float]]:
        """(name, figure, value) of figures with a value, without those of single levels."""
        for measure in self.result.measures:
            of_this = (measure.model, measure.suite) == (self.model, self.suite)
            if of_this and not measure.is_subgroup and measure.value is not None:
                yield figure_name(measure), measure, measure.value

    def without_value(self) -> list[str]:
        """The names of the figures that are known only by bounds, or not at all."""
        return [
            figure_name(m)
            for m in self.result.measures
            if (m.model, m.suite) == (self.model, self.suite) and not m.is_subgroup and m.value is None
        ]


def figure_name(measure: Measure) -> str:
    """``measure[factor=level;…]``: no comma, which these tools split names at."""
    where = ";".join(f"{factor}={level}" for factor, level in measure.where.items()).replace(",", " ")
    return f"{measure.measure}[{where}]" if where else measure.measure


def turns(prompt: Any) -> list[tuple[str, str]]:
    """A prompt as (role, content); a plain text is the user's."""
    if isinstance(prompt, list) and all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in prompt):
        return [(str(role), str(content)) for role, content in prompt]
    return [("user", prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False))]


def prompt_text(prompt: Any) -> str:
    """A prompt as one text; a chat's turns follow each other."""
    return "\n".join(content for _, content in turns(prompt))


def continuation(answer: Record) -> str:
    """A scored continuation's text, even if its first token is given."""
    kept = answer["continuation"]
    return str(kept[0] if isinstance(kept, list) else kept)


def numbers(record: Record) -> dict[str, float]:
    """The record's quantities that are known exactly."""
    return {name: value for name, (_, value, _) in record["quantities"].items() if value is not None}


def bounds(record: Record) -> dict[str, list[float]]:
    """(low, high) of those that are known only by bounds."""
    return {name: [low, high] for name, (low, value, high) in record["quantities"].items() if value is None}


def answer_text(record: Record) -> str:
    """The model's text, or the likeliest scored continuation with a known log-probability, or else nothing."""
    written = [str(answer["text"]) for answer in record["answers"] if "text" in answer]
    if written:
        return "\n\n".join(written)
    known = [a for a in record["answers"] if "continuation" in a and a["logprob"] is not None]
    return continuation(max(known, key=lambda a: a["logprob"])) if known else ""


def file_part(name: str) -> str:
    """A name for use in these tools' paths: letters, digits, dots, hyphens and underscores."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "unnamed"


def as_json(data: Any, indent: int | None = 1) -> str:
    """JSON text with lone surrogates, which models may write, replaced."""
    return json.dumps(encodable(data), ensure_ascii=False, indent=indent, allow_nan=False)
