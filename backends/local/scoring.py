"""Score requests on a model in this process: text to token paths, and their values back to scores.

The engine brings its tokenizer and a function that values paths; everything between is the same
for transformers and llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from backends.base import Answer, ContinuationScore, Prompt, ScoreRequest, ScoreResponse, TokenLogprob
from backends.errors import BackendError
from backends.local.boundary import Placed, Vocabulary, place, prefix_tokenizations
from backends.local.trie import Path


class TextEncoder(Protocol):
    """A model's tokenizer, as scoring needs it."""

    def text(self, prompt: Prompt) -> str:
        """The prompt as text: chat messages through the model's template."""

    def encode(self, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
        """Tokens of each text, BOS in front where the model wants it, in a ``chat`` as its engine has it."""

    def added(self, tokens: Sequence[int], text: str) -> int:
        """How many of the first tokens `encode` put in front of the text's own."""

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt, ready to be continued."""

    def piece(self, token: int) -> bytes:
        """A token's text."""

    @property
    def vocabulary(self) -> Vocabulary:
        """All tokens' texts; made when first needed."""


Values = Sequence[npt.NDArray[np.float64] | BackendError]
"""For each path the log-probabilities of its scored tokens, then of its set if it has one; or why there are none."""


@dataclass
class _PlannedScore:
    """One continuation: its tokens, and where its paths stand in the list of all.

    ``path`` is None where no token is to be scored. ``prompt_paths`` are those of a straddling token's prompt part.
    """

    placed: Placed
    path: int | None
    prompt_paths: range


def score_requests(
    requests: Sequence[ScoreRequest],
    encoder: TextEncoder,
    value_paths: Callable[[Sequence[Path]], Values],
    *,
    context: int | None,
    route: str,
) -> list[Answer]:
    """One answer for each request, in order.

    Parameters
    ----------
    value_paths : callable
        Values of all paths; a path's ``next_token_set`` is the bytes its next token must begin with.
    context : int or None
        Most tokens the model can read.
    route : str
        How ``value_paths`` computes, kept with each score.
    """
    paths: list[Path] = []
    plans: list[list[_PlannedScore] | BackendError] = []
    prompt_lengths: list[int] = []
    for request, tokens in zip(requests, _encode(requests, encoder), strict=True):
        mark = len(paths)
        try:
            if isinstance(tokens, BackendError):
                raise tokens
            plans.append(_plan(request, *tokens, encoder, paths, context))
            prompt_lengths.append(len(tokens[1][0]))
        except BackendError as error:
            del paths[mark:]
            plans.append(error)
            prompt_lengths.append(0)
    values = value_paths(paths) if paths else []
    return [_answer(plan, values, length, route) for plan, length in zip(plans, prompt_lengths, strict=True)]


def _encode(requests: Sequence[ScoreRequest], encoder: TextEncoder) -> list[tuple[str, list[list[int]]] | BackendError]:
    """Each request's prompt text, and the tokens of the prompt alone and with each continuation."""
    encoded: list[tuple[str, list[list[int]]] | BackendError | None] = [None] * len(requests)
    for chat in (False, True):
        chosen: list[tuple[int, str]] = []
        for i, request in enumerate(requests):
            if isinstance(request.prompt, str) == chat:
                continue
            try:
                chosen.append((i, encoder.text(request.prompt)))
            except BackendError as error:
                encoded[i] = error
        texts = [prompt + c for i, prompt in chosen for c in ("", *requests[i].continuations)]
        tokens = encoder.encode(texts, chat=chat) if texts else []
        at = 0
        for i, prompt in chosen:
            n = 1 + len(requests[i].continuations)
            encoded[i] = (prompt, tokens[at : at + n])
            at += n
    return [result for result in encoded if result is not None]


def _plan(
    request: ScoreRequest,
    prompt: str,
    tokens: list[list[int]],
    encoder: TextEncoder,
    paths: list[Path],
    context: int | None,
) -> list[_PlannedScore]:
    """Append the request's paths to ``paths``."""
    prompt_tokens, plan = tokens[0], []
    for continuation, joint in zip(request.continuations, tokens[1:], strict=True):
        added = encoder.added(joint, prompt + continuation)
        pieces = [encoder.piece(token) for token in joint]
        placed = place(prompt, continuation, prompt_tokens, joint, pieces, added, first_given=request.first_given)
        # The last token is only predicted, never read.
        if context is not None and len(joint) - 1 > context:
            raise _too_long(f"{len(joint)} tokens of prompt and continuation", context)
        if placed.first == len(placed.tokens):  # one token, and it is given
            plan.append(_PlannedScore(placed, None, range(0)))
            continue
        planned = _PlannedScore(placed, len(paths), range(0))
        paths.append(Path(placed.tokens, placed.first))
        if placed.remainder:
            head = placed.tokens[: placed.first]
            start = len(paths)
            for tokenization in prefix_tokenizations(encoder.vocabulary, placed.remainder):
                read = len(head) + len(tokenization.tokens)
                if context is not None and read > context:  # it takes more tokens where they are short
                    raise _too_long(f"{read} tokens of prompt, as the boundary needs them", context)
                paths.append(Path(head + tokenization.tokens, len(head), tokenization.rest))
            planned.prompt_paths = range(start, len(paths))
        plan.append(planned)
    return plan


def _too_long(what: str, context: int) -> BackendError:
    return BackendError("context_length", f"{what}, and the model reads {context}", hint="shorten the prompt")


def _answer(plan: list[_PlannedScore] | BackendError, values: Values, prompt_tokens: int, route: str) -> Answer:
    if isinstance(plan, BackendError):
        return plan
    try:
        return ScoreResponse(tuple(_score(planned, values, route) for planned in plan), prompt_tokens)
    except BackendError as error:
        return error


def _value(values: Values, path: int) -> npt.NDArray[np.float64]:
    value = values[path]
    if isinstance(value, BackendError):
        raise value
    return value


def _score(planned: _PlannedScore, values: Values, route: str) -> ContinuationScore:
    placed = planned.placed
    if planned.path is None:
        return ContinuationScore.exact((), boundary=placed.boundary, route=route)
    logprobs: list[float] = _value(values, planned.path).tolist()  # a few numbers: lists are faster than arrays
    if planned.prompt_paths:
        # The straddling token is itself one of those the last term sums, so the difference is at most 0.
        prompt_part = float(np.logaddexp.reduce([_value(values, i).sum() for i in planned.prompt_paths]))
        logprobs[0] -= prompt_part
    if not all(-math.inf < value <= 1e-3 for value in logprobs):  # NaN is neither
        raise BackendError(
            "internal",
            f"log-probabilities {logprobs}: the model's output is not a distribution over these tokens",
            hint="try float32, or a GGUF file of another quantisation",
        )
    tokens = [
        TokenLogprob(span.text, span.start, span.end, min(value, 0.0), token)
        for span, value, token in zip(placed.spans, logprobs, placed.tokens[placed.first :], strict=True)
    ]
    return ContinuationScore.exact(tokens, boundary=placed.boundary, route=route)
