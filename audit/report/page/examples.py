"""Prompts and raw answers behind the figures, as plain text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from audit.report.formatting import json_for_script, one_line, visible
from audit.results import AuditResult, Example

BYTES = 840_000  # of all examples in a page together, which has to stay small enough to mail
_TEXT = 4_000  # characters of one prompt or answer


def shown_examples(result: AuditResult, numbers: Mapping[str, int]) -> tuple[list[dict[str, Any]], int]:
    """Examples within `BYTES`, the same share for each model and suite; and how many were left out.

    ``numbers`` are the page's numbers of its figures, by their ids.
    """
    grouped: dict[tuple[str, str], list[Example]] = defaultdict(list)
    for example in result.examples:
        grouped[example.model, example.suite].append(example)
    room = BYTES // max(1, len(grouped))
    shown = []
    for examples in grouped.values():
        spent = 0
        for example in examples:
            ready = {
                "f": [numbers[figure] for figure in example.figures if figure in numbers],
                "item": one_line(example.item_id),
                "factors": {one_line(k): _factor(v) for k, v in example.factors.items()},
                "turns": _turns(example.prompt),
                **_answer(example.answer),
            }
            if not ready["f"]:
                continue  # no figure on the page refers to it
            spent += len(json_for_script(ready).encode())
            if spent > room:
                break
            shown.append(ready)
    return shown, len(result.examples) - len(shown)


def _factor(value: Any) -> Any:
    """A level that is safe to show."""
    return one_line(value) if isinstance(value, str) else value


def _clipped(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _TEXT else f"{shown[:_TEXT]} … ({len(shown) - _TEXT:,} characters more)"


def _turns(prompt: Any) -> list[list[str]]:
    """The prompt as (role, text); role "" for plain text."""
    if isinstance(prompt, str):
        return [["", _clipped(prompt)]]
    if isinstance(prompt, list) and all(
        isinstance(turn, list | tuple) and len(turn) == 2 and all(isinstance(x, str) for x in turn) for turn in prompt
    ):
        return [[one_line(role), _clipped(text)] for role, text in prompt]
    return [["", _clipped(json.dumps(prompt, ensure_ascii=False, indent=1, default=str))]]


def _answer(answer: Any) -> dict[str, Any]:
    """The answer as scores, labels, a text, or nothing, by its form."""
    if answer is None:
        return {"none": "never answered"}
    if isinstance(answer, Mapping):
        if "error" in answer:
            return {"none": _clipped(json.dumps(answer["error"], ensure_ascii=False, default=str))}
        if "scores" in answer:
            return {"scores": [_score(score) for score in answer["scores"]]}
        if "labels" in answer:
            return {"labels": [[one_line(str(k)), v] for k, v in answer["labels"].items()]}
        if isinstance(answer.get("text"), str):
            thought = {"thought": _clipped(str(answer["thought"]))} if answer.get("thought") else {}
            return {"text": _clipped(answer["text"]), "end": one_line(str(answer.get("finish_reason", ""))), **thought}
    return {
        "text": _clipped(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str))
    }


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    """One continuation: its log-probability or bounds (nats), how it met the prompt, its tokens."""
    return {
        "c": _clipped(str(score.get("continuation", ""))),
        "v": score.get("logprob"),
        "l": score.get("low"),
        "h": score.get("high"),
        "e": one_line(str(score.get("exactness", ""))),
        "b": one_line(str(score.get("boundary", ""))),
        "t": [[_clipped(str(text)), logprob, bool(exact)] for text, logprob, exact in score.get("tokens", ())],
    }
