"""The items of a run, prepared for the pages of `audit view`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from audit.report.exports.items import of_items, questions, records_of
from audit.report.phrases.example import answer_line
from audit.report.plain_text import chat_turns, prompt_text
from audit.results import AuditResult
from audit.store import Store

Record = Mapping[str, Any]

PAGE = 30  # items on a page


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item with the answers of the chosen models, to each of its questions; None if a model has no such item."""

    id: str
    factors: Mapping[str, Any]
    prompt: str
    records: Sequence[Record | None]
    answers: Sequence[Sequence[Sequence[Record]]]
    lines: Sequence[str]


def find_items(
    store: Store, result: AuditResult, suite: str, models: Sequence[str], *, search: str, page: int
) -> tuple[list[ItemView], bool]:
    """A page of a suite's items, and whether there are more.

    ``search``: words that an item's id, factors, prompt and one model's answers hold, all of them, in any case.
    """
    words = search.casefold().split()
    first = page * PAGE
    found: dict[str, None] = {}
    for model in models if words else models[:1]:
        for record in _asked(store, result, model, suite):
            if all(word in _text(record) for word in words):
                found[record["item"]] = None
            if not words and len(found) > first + PAGE:
                break
    wanted = list(islice(found, first, first + PAGE))
    return list(_views(store, result, suite, models, wanted)), len(found) > first + PAGE


def find_item(store: Store, result: AuditResult, suite: str, item: str) -> ItemView | None:
    """One item with the answers of all models; None if there is no such item."""
    models = [model.name for model in result.models]
    return next(_views(store, result, suite, models, [item]), None)


def _asked(store: Store, result: AuditResult, model: str, suite: str) -> Iterator[Record]:
    return of_items(records_of(store, store.runs.read_rows(result.run_id, model, suite)))


def _views(
    store: Store, result: AuditResult, suite: str, models: Sequence[str], wanted: Sequence[str]
) -> Iterator[ItemView]:
    by_model = []
    for model in models:
        rows = store.runs.read_rows(result.run_id, model, suite)
        records = records_of(store, (row for row in rows if row.row.item_id in wanted))
        by_model.append({record["item"]: record for record in records if questions(record)})
    for item in wanted:
        of_models = [of_model.get(item) for of_model in by_model]
        known = next((record for record in of_models if record is not None), None)
        if known is not None:
            answers = [[of for _, of in questions(record)] if record else [] for record in of_models]
            yield ItemView(item, known["factors"], _prompts(known), of_models, answers, [*map(_line, of_models)])


def _line(record: Record | None) -> str:
    if record is None:
        return "not asked"
    if record["missing"] is not None:
        return f"no answer: {record['missing']}"
    return " · ".join(_said(answers) for _, answers in questions(record))


def _said(answers: Sequence[Record]) -> str:
    """The answers to one question."""
    scored = bool(answers) and "continuation" in answers[0]
    return answer_line({"scores": [a for a in answers if "continuation" in a]} if scored else next(iter(answers), None))


def _prompts(record: Record) -> str:
    """What was asked; of several questions all of them, numbered."""
    prompts = [_prompt(prompt) for prompt, _ in questions(record)]
    return prompts[0] if len(prompts) == 1 else "\n\n".join(f"({n}) {text}" for n, text in enumerate(prompts, 1))


def _prompt(prompt: Any) -> str:
    turns = chat_turns(prompt)
    return prompt_text(prompt) if turns is None else "\n".join(f"{role}: {content}" for role, content in turns)


def _text(record: Record) -> str:
    """The text that a search covers."""
    answers = [str(a.get("text", a.get("continuation", ""))) for _, of in questions(record) for a in of]
    factors = [f"{name} {level}" for name, level in record["factors"].items()]
    return "\n".join([record["item"], _prompts(record), *factors, *answers]).casefold()
