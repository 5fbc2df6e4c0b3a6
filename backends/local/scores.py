"""Log-probabilities of planned paths back to the scores of their continuations."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from backends.base import Answer, ContinuationScore, ScoreResponse, TokenLogprob
from backends.errors import BackendError
from backends.local.plans import Ending, PlannedScore, PlannedScores

Values = Sequence[npt.NDArray[np.float64] | BackendError]
"""Per path the log-probabilities (nats) of its scored tokens, then of its token set if it has one; or the error."""

T = TypeVar("T")
_Setter = Callable[[Any, Any], None]

_ROUNDING = 1e-3  # nats by which a sum of probabilities may exceed 1


def answer_of(ending: Ending, prompt_tokens: int, values: Values, route: str) -> Answer:
    """The answer to a request from the values of its paths."""
    try:
        logprobs = _logprobs(ending.scores, values)
        if logprobs is None:
            scores = tuple([_score(planned, values, route) for planned in ending.scores])
        else:
            scores = _exact_scores(ending.scores, logprobs, route)
        return ScoreResponse(scores, prompt_tokens)
    except BackendError as error:
        return error


def _logprobs(scores: PlannedScores, values: Values) -> list[float] | None:
    """The log-probabilities of all scored tokens, one after the other; None where one is missing or none at all."""
    if not scores.paths or any(isinstance(value, BackendError) for value in values):
        return None
    found = np.concatenate([values[path] for path in scores.paths])
    parts: dict[int, float] = {}  # by their first path: continuations share them
    for first, paths in scores.straddled:
        if paths.start not in parts:
            parts[paths.start] = _prompt_part(values, paths)
        found[first] -= parts[paths.start]  # the sum includes the token itself: at most 0
    if len(found) != len(scores.ids) or not ((found > -math.inf) & (found <= _ROUNDING)).all():  # NaN is neither
        return None
    logprobs: list[float] = np.where(found > 0, 0.0, found).tolist()
    return logprobs


def _prompt_part(values: Values, paths: range) -> float:
    """The log-probability of the prompt's part of a straddling token."""
    return float(np.logaddexp.reduce([_value(values, i).sum() for i in paths]))


def _score(planned: PlannedScore, values: Values, route: str) -> ContinuationScore:
    """One score by itself: what is wrong with it is said."""
    if planned.path is None:
        return ContinuationScore.exact((), boundary=planned.boundary, route=route)
    logprobs: list[float] = _value(values, planned.path).tolist()
    if planned.prompt_paths:
        # The sum includes the straddling token itself, so the difference is at most 0.
        logprobs[0] -= _prompt_part(values, planned.prompt_paths)
    if not all(-math.inf < value <= _ROUNDING for value in logprobs):  # NaN is neither
        raise BackendError(
            "internal",
            f"log-probabilities {logprobs}: the model's output is not a distribution over these tokens",
            hint="try float32, or a GGUF file of another quantisation",
        )
    tokens = [
        TokenLogprob(text, start, end, min(value, 0.0), token)
        for (text, start, end, token), value in zip(planned.tokens, logprobs, strict=True)
    ]
    return ContinuationScore.exact(tokens, boundary=planned.boundary, route=route)


def _value(values: Values, path: int) -> npt.NDArray[np.float64]:
    value = values[path]
    if isinstance(value, BackendError):
        raise value
    return value


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
    """What `_score` makes of log-probabilities that are finite and at most 0."""
    always = itertools.repeat
    of_tokens = (scores.texts, scores.starts, scores.ends, logprobs, scores.ids, always(True))
    tokens = _made(TokenLogprob, _SET_OF_TOKEN, of_tokens, len(logprobs))
    bounds = list(itertools.pairwise([0, *scores.stops]))
    totals = [math.fsum(logprobs[start:stop]) for start, stop in bounds]
    parts = [tuple(tokens[start:stop]) for start, stop in bounds]
    rest = (always("exact"), scores.boundaries, parts, always(route), always(None))
    return tuple(_made(ContinuationScore, _SET_OF_SCORE, (totals, totals, totals, *rest), len(totals)))
