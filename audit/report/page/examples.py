"""Prompts and raw answers behind the figures, as plain text."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from audit.report.plain_text import chat_turns, json_for_script, one_line, prompt_text, visible
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
                "factors": {one_line(k): one_line(v) if isinstance(v, str) else v for k, v in example.factors.items()},
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


def _clipped(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _TEXT else f"{shown[:_TEXT]} … ({len(shown) - _TEXT:,} characters more)"


def _turns(prompt: Any) -> list[list[str]]:
    """The prompt as (role, text); role "" for plain text."""
    return [[one_line(role), _clipped(text)] for role, text in chat_turns(prompt) or [("", prompt_text(prompt))]]


def _answer(answer: Any) -> dict[str, Any]:
    """The answer as scores, labels, a text, or why there is none, by its form."""
    match answer:
        case None:
            return {"none": "never answered"}
        case {"error": error}:
            return {"none": _clipped(json.dumps(error, ensure_ascii=False, default=str))}
        case {"scores": scores}:
            return {"scores": [_score(score) for score in scores]}
        case {"labels": labels}:
            return {"labels": [[one_line(str(k)), v] for k, v in labels.items()]}
        case {"text": str(text)}:
            thought = {"thought": _clipped(str(answer["thought"]))} if answer.get("thought") else {}
            return {"text": _clipped(text), "end": one_line(str(answer.get("finish_reason", ""))), **thought}
    return {"text": _clipped(prompt_text(answer))}


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
