"""Example items behind the figures, with prompts and raw answers from the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit.analysis.answers import SuiteAnswers
from audit.results import Example, writable
from audit.store import Store
from audit.store.keys import from_json_bytes, key_text, prompt_json
from suites.base import Item


def read_examples(
    store: Store,
    suite: str,
    model: str,
    answers: SuiteAnswers,
    items: Mapping[str, Item],
    figures: Mapping[str, list[str]],
) -> Iterator[Example]:
    """Examples of one model and suite.

    Parameters
    ----------
    items : mapping
        The suite's own items by their ids. The prompt of what follows from an answer is in the store, if it was sent.
    figures : mapping
        The items to show, and the ids of the figures that use each.
    """
    rows = answers.table.rows()
    for item_id, ids in figures.items():
        own = items.get(item_id.partition("~")[0])
        found = store.answers.inspect(key_text(answers.items[item_id])) or {}
        at = answers.table.index.get(item_id)
        factors = own.factors if own is not None else rows[at].factors if at is not None else {}
        prompt = found.get("prompt") if own is None else from_json_bytes(prompt_json(own.request))
        yield Example(
            model=model,
            suite=suite,
            item_id=item_id,
            factors=dict(factors),
            figures=list(ids),
            prompt=writable(prompt),
            answer=writable(_answer_of(found)),
        )


def _answer_of(found: Mapping[str, Any]) -> Any:
    """The answer with named fields; an error if it failed, None if it is missing."""
    if found.get("answered"):
        return found["answer"]
    return {"error": found["failures"][-1]["error"]} if found.get("failures") else None
