"""Answer a mixed batch on a local model: each kind of request together, answers in the batch's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backends.base import Answer, GenerateRequest, OnResponse, Request, ScoreRequest
from backends.errors import BackendError


def answer_by_kind(
    batch: Sequence[Request],
    score: Callable[[Sequence[ScoreRequest]], Sequence[Answer]],
    generate: Callable[[Sequence[GenerateRequest], OnResponse], Sequence[Answer]],
    on_response: OnResponse,
) -> list[Answer]:
    """One answer for each request, in order; ``on_response`` is called with each text as soon as it is finished."""
    refusal = BackendError("unsupported", "a causal language model classifies no texts", hint="use a classifier")
    answers: list[Answer] = [refusal] * len(batch)
    scored = [(i, r) for i, r in enumerate(batch) if isinstance(r, ScoreRequest)]
    generated = [(i, r) for i, r in enumerate(batch) if isinstance(r, GenerateRequest)]
    for (i, _), answer in zip(scored, score([r for _, r in scored]) if scored else (), strict=True):
        answers[i] = answer
    if generated:
        texts = generate([r for _, r in generated], lambda at, answer: on_response(generated[at][0], answer))
        for (i, _), answer in zip(generated, texts, strict=True):
            answers[i] = answer
    return answers
