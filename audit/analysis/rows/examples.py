"""Example items behind the figures, with prompts and raw answers from the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.analysis.rows.responses import ParsedResponses
from audit.results import Example, writable
from audit.store import Store
from backends.base import ClassifyRequest, prompt_to_json
from backends.errors import BackendError
from suites.base import Item

_SCORE_FIELDS = ("logprob", "low", "high", "exactness", "boundary", "tokens", "route", "samples")
_TEXT_FIELDS = ("text", "finish_reason", "prompt_tokens", "completion_tokens", "thought", "thought_tokens")


def read_examples(
    store: Store,
    suite: str,
    model: str,
    items: Sequence[Item],
    parsed: ParsedResponses,
    figures: Mapping[str, Sequence[str]],
) -> Iterator[Example]:
    """Examples of one model and suite.

    Parameters
    ----------
    items : sequence of Item
        The suite's own items. The prompt of a follow-up is in the store, if it was ever sent.
    figures : mapping
        The items to show, and the ids of the figures that use each.
    """
    for item_id, ids in figures.items():
        place, response = parsed.place(item_id), parsed.by_item[item_id]
        stored = [found for key in response.keys if (found := store.answers.inspect(key)) is not None]
        if len(place) == 1:
            prompt = _prompt_of(items[place[0]])
        else:
            prompt = next((found["prompt"] for found in stored if "prompt" in found), None)
        yield Example(
            model=model,
            suite=suite,
            item_id=item_id,
            factors=dict(response.factors),
            figures=list(ids),
            prompt=writable(prompt),
            answer=writable(_answer_of(response.keys, stored)),
        )


def _prompt_of(item: Item) -> Any:
    request = item.request
    return request.text if isinstance(request, ClassifyRequest) else prompt_to_json(request.prompt)


def _answer_of(keys: Sequence[str], stored: Sequence[Mapping[str, Any]]) -> Any:
    """The answer with named fields; an error if a part of it failed, None if one is missing."""
    for found in stored:
        if not found["answered"] and found["failures"]:
            return {"error": BackendError.from_json(found["failures"][-1]["error"]).to_json()}
    answers = [found["answer"] for found in stored if found["answered"]]
    if len(answers) < len(keys):
        return None
    kind, *fields = answers[0]
    if kind == "generate":
        return dict(zip(_TEXT_FIELDS, fields, strict=False))  # a thought is stored only if there is one
    if kind == "classify":
        return {"labels": fields[0]}
    continuations = [found["detail"] for found in stored]
    return {
        "scores": [
            {"continuation": continuation, **_score_of(score)}
            for continuation, (_, (score,), _) in zip(continuations, answers, strict=True)
        ]
    }


def _score_of(score: Sequence[Any]) -> dict[str, Any]:
    named = dict(zip(_SCORE_FIELDS, score, strict=True))
    del named["samples"]
    tokens = [[text, logprob, exact] for text, _, _, logprob, _, exact in named.pop("tokens")]
    return {**named, "tokens": tokens}
