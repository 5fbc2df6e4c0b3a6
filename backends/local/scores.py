"""Log-probabilities of planned paths back to the scores of their continuations."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from backends.base import Answer, ContinuationScore, ScoreResponse, TokenLogprob
from backends.errors import BackendError
from backends.local.plans import Ending, PlannedScores
from backends.local.trie import Floats

T = TypeVar("T")
_Setter = Callable[[Any, Any], None]

_ROUNDING = 1e-3  # nats by which a sum of probabilities may exceed 1


def answer_of(ending: Ending, prompt_tokens: int, values: Floats, route: str) -> Answer:
    """The answer to a request from the values (nats) of its branches' asks."""
    scores = ending.scores
    found = values[scores.asks]
    parts: dict[int, float] = {}  # by their list: continuations share them
    for first, paths in scores.straddled:
        if id(paths) not in parts:
            parts[id(paths)] = float(np.logaddexp.reduce([values[asks].sum() for asks in paths]))
        found[first] -= parts[id(paths)]  # the sum includes the token itself: at most 0
    if not ((found > -math.inf) & (found <= _ROUNDING)).all():  # NaN is neither
        return BackendError(
            "internal",
            f"log-probabilities {found.tolist()}: the model's output is not a distribution over these tokens",
            hint="try float32, or a GGUF file of another quantisation",
        )
    return ScoreResponse(_exact_scores(scores, np.minimum(found, 0.0).tolist(), route), prompt_tokens)


# -- many at once ---------------------------------------------------------------------------------
# Millions of tokens and scores are made. ``__init__`` of a frozen dataclass takes four times as long as setting the
# fields of all instances one column after the other.


def _setters(kind: type) -> list[_Setter]:
    """What sets each field of a new instance."""
    return [getattr(kind, name).__set__ for name in kind.__slots__]  # type: ignore[attr-defined]


_SET_OF_TOKEN, _SET_OF_SCORE = _setters(TokenLogprob), _setters(ContinuationScore)


def _made(kind: type[T], setters: list[_Setter], columns: Sequence[Iterable[Any]], n: int) -> list[T]:
    """``n`` instances, given each field's values."""
    made = list(map(object.__new__, itertools.repeat(kind, n)))
    for setter, column in zip(setters, columns, strict=True):
        collections.deque(map(setter, made, column), maxlen=0)
    return made


def _exact_scores(scores: PlannedScores, logprobs: list[float], route: str) -> tuple[ContinuationScore, ...]:
    """Exact scores of log-probabilities that are finite and at most 0."""
    always = itertools.repeat
    of_tokens = (scores.texts, scores.starts, scores.ends, logprobs, scores.ids, always(True))
    tokens = _made(TokenLogprob, _SET_OF_TOKEN, of_tokens, len(logprobs))
    bounds = list(itertools.pairwise([0, *scores.stops]))
    totals = [math.fsum(logprobs[start:stop]) for start, stop in bounds]
    parts = [tuple(tokens[start:stop]) for start, stop in bounds]
    rest = (always("exact"), scores.boundaries, parts, always(route), always(None))
    return tuple(_made(ContinuationScore, _SET_OF_SCORE, (totals, totals, totals, *rest), len(totals)))
