"""Upper bounds for tokens that a server did not list: never a value."""

from __future__ import annotations

import math

from backends.base import Boundary, ContinuationScore, TokenLogprob
from backends.openai.scoring.top_logprobs import MASS_SLACK, TopLogprobs


def upper_bound(top: TopLogprobs) -> float:
    """The highest log-probability that a token outside the list can have, in nats.

    It is at most that of the last of the k likeliest, and at most the mass outside the list.
    A drawn token that is listed beyond the k has no rank and does not lower the bound.
    """
    # If a server's probabilities add up to more than 1, the mass outside the list seems too small.
    leftover = math.log(max(1.0 - top.mass, 0.0) + MASS_SLACK)
    return min(last_rank(top) if top.complete else 0.0, leftover, 0.0)


def last_rank(top: TopLogprobs) -> float:
    """The log-probability of the last of the k likeliest tokens, in nats."""
    ranked = sorted((t.logprob for t in top.tokens), reverse=True)
    lowest = min(top.tokens, key=lambda t: t.logprob)
    if len(ranked) > top.requested_k:
        return ranked[top.requested_k - 1]
    # A capped list may be the k - 1 likeliest tokens and the drawn one, which then has no rank.
    if lowest.text == top.sampled:
        return ranked[-2] if len(ranked) > 1 else 0.0
    return ranked[-1]


def bounded(
    tokens: tuple[TokenLogprob, ...], high: float, *, repeat_noise: float, boundary: Boundary, route: str
) -> ContinuationScore:
    """A score that is only known to be at most ``high`` nats.

    ``repeat_noise`` (nats) widens the bound: the listed values behind it move by as much.
    """
    high = min(high + repeat_noise, 0.0)
    return ContinuationScore(None, None, high, "bounded", boundary, tokens, route)
