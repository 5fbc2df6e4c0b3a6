"""Questions asked again and again, whose answers change only when the model does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from backends.base import ContinuationScore, Message, ScoreRequest
from backends.errors import BackendError
from backends.openai.probe.capabilities import CanaryValue, ServerCapabilities
from backends.openai.probe.session import FAR_DOWN, LARGEST_SPREAD
from backends.openai.scoring.routes import Routes

Canary = tuple[CanaryValue, ...]

_TEXTS = (
    ("Monday, Tuesday,", (" Wednesday", " Thursday")),
    ("Her brother is a", (" doctor", " nurse")),
)
#: Every model is sure of the day. Which digit it takes is its own, and all of a short list are digits.
OPEN_CHAT = (Message("user", "Pick a digit from 0 to 9 at random. Answer with the digit alone."),)
_CHATS = (
    ((Message("user", "Which day comes after Tuesday? Answer with one word."),), ("Wednesday", "Tuesday")),
    (OPEN_CHAT, tuple("0123456789")),
)
_TEXT_VALUES = sum(len(answers) for _, answers in _TEXTS)
#: Nats by which a canary may move although the server's own spread is smaller, and never more than which.
_LEAST_TOLERANCE, _LARGEST_TOLERANCE = 0.02, 2 * LARGEST_SPREAD
#: A grid this wide is hardly ever crossed by noise.
_FINE_GRID, _COARSE_GRID = 0.25, 2.0
_QUIET = 0.01


async def ask_canary(routes: Routes, found: ServerCapabilities) -> Canary:
    """The canary's log-probabilities by the route that the audit uses."""
    if found.text_route not in (None, "sampled"):
        requests = [ScoreRequest(prompt, answers) for prompt, answers in _TEXTS]
    elif found.chat_route not in (None, "sampled"):
        requests = [ScoreRequest(turns, answers) for turns, answers in _CHATS]
    else:
        return ()  # a drawn text proves nothing; the model's name is watched in every answer
    values: list[CanaryValue] = []
    for request in requests:
        try:
            values += [_known(score) for score in (await routes.score(request)).scores]
        except BackendError as error:
            if error.kind != "unsupported":
                raise
            values += [CanaryValue(None, 0.0)] * len(request.continuations)
    return tuple(values)


def _known(score: ContinuationScore) -> CanaryValue:
    """A value; of what lies far down, where noise is large, only that it does."""
    if score.logprob is not None and score.logprob <= FAR_DOWN:
        return CanaryValue(None, FAR_DOWN)
    return CanaryValue(score.logprob, score.high)


def farthest(then: Sequence[CanaryValue], now: Sequence[CanaryValue]) -> float:
    """The largest sure move of a canary, in nats: of a value, or from a value to below it by a bound."""
    return max((_moved(a, b) for a, b in zip(then, now, strict=True)), default=0.0)


def _moved(a: CanaryValue, b: CanaryValue) -> float:
    if a.value is not None and b.value is not None:
        return abs(a.value - b.value)
    if a.value is None and b.value is None:
        return 0.0
    value, high = (a.value, b.high) if a.value is not None else (b.value, a.high)
    assert value is not None
    return max(0.0, value - high)


def tolerance(spread: float) -> float:
    """How far a canary of the same model may move, in nats."""
    return min(max(_LEAST_TOLERANCE, 4 * spread), _LARGEST_TOLERANCE)


def coarse_identity(canary: Canary, spread: float) -> str:
    """The canary's first values on a grid so wide that the server's noise does not change them.

    Of a chat these are the sure ones: ten more roundings would be ten more chances to fall on the other side.
    """
    grid = _FINE_GRID if spread < _QUIET else _COARSE_GRID
    named = canary[: len(_CHATS[0][1])] if len(canary) > _TEXT_VALUES else canary
    return " ".join("-" if c.value is None else str(round(c.value / grid)) for c in named)


def exact_identity(canary: Canary) -> str:
    """Tells this very measurement apart: for a model that came after another under one name."""
    return hashlib.sha256(json.dumps(canary).encode()).hexdigest()[:8]
