"""Questions asked again and again, whose answers change only when the model does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from backends.base import Message, ScoreRequest
from backends.errors import BackendError
from backends.openai.findings import Findings
from backends.openai.routes import Routes

Canary = tuple[float | None, ...]

_TEXTS = (
    ("Monday, Tuesday,", (" Wednesday", " Thursday")),
    ("Her brother is a", (" doctor", " nurse")),
)
_CHAT = (Message("user", "Which day comes after Tuesday? Answer with one word."),)
_CHAT_ANSWERS = ("Wednesday", "Tuesday")
#: Nats by which a canary may move although the server's own spread is smaller.
_LEAST_TOLERANCE = 0.02
#: A grid this wide is hardly ever crossed by noise.
_FINE_GRID, _COARSE_GRID = 0.25, 2.0
_QUIET = 0.01


async def ask_canary(routes: Routes, found: Findings) -> Canary:
    """The canary's log-probabilities by the route that the audit uses; None where only bounded."""
    if found.text_route not in (None, "sampled"):
        requests = [ScoreRequest(prompt, answers) for prompt, answers in _TEXTS]
    elif found.chat_route not in (None, "sampled"):
        requests = [ScoreRequest(_CHAT, _CHAT_ANSWERS)]
    else:
        return ()  # a drawn text proves nothing; the model's name is watched in every answer
    values: list[float | None] = []
    for request in requests:
        try:
            values += [score.logprob for score in (await routes.score(request)).scores]
        except BackendError as error:
            if error.kind != "unsupported":
                raise
            values += [None] * len(request.continuations)
    return tuple(values)


def farthest(then: Sequence[float | None], now: Sequence[float | None]) -> float:
    """The largest move of a canary, in nats, where both times gave a value."""
    return max((abs(a - b) for a, b in zip(then, now, strict=True) if a is not None and b is not None), default=0.0)


def tolerance(spread: float) -> float:
    """How far a canary of the same model may move, in nats."""
    return max(_LEAST_TOLERANCE, 4 * spread)


def coarse_identity(canary: Canary, spread: float) -> str:
    """The canary on a grid so wide that the server's noise does not change it."""
    grid = _FINE_GRID if spread < _QUIET else _COARSE_GRID
    return " ".join("-" if v is None else str(round(v / grid)) for v in canary)


def exact_identity(canary: Canary) -> str:
    """Tells this very measurement apart: for a model that came after another under one name."""
    return hashlib.sha256(json.dumps(canary).encode()).hexdigest()[:8]
