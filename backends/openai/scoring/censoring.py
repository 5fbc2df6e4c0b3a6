"""What is known of a token that a server did not list: an upper bound, never a value."""

from __future__ import annotations

import math

from backends.base import Boundary, ContinuationScore, TokenLogprob
from backends.openai.scoring.top_logprobs import MASS_SLACK, TopLogprobs


def upper_bound(listing: TopLogprobs) -> float:
    """The highest log-probability that a token outside of the list can have, in nats.

    It is at most the last of the k likeliest, and at most the mass that the list leaves over.
    A drawn token that is listed beyond the k is no rank and does not lower the bound.
    """
    # Where a server's probabilities add up to more than 1, less seems to be left over than is.
    leftover = math.log(max(1.0 - listing.mass, 0.0) + MASS_SLACK)
    return min(_last_rank(listing), leftover, 0.0)


def _last_rank(listing: TopLogprobs) -> float:
    ranked = sorted((t.logprob for t in listing.tokens), reverse=True)
    lowest = min(listing.tokens, key=lambda t: t.logprob)
    if len(ranked) > listing.asked:
        return ranked[listing.asked - 1]
    # A capped list may be k - 1 likeliest tokens and the drawn one: then its value is no rank.
    if lowest.text == listing.sampled:
        return ranked[-2] if len(ranked) > 1 else 0.0
    return ranked[-1]


def bounded(
    tokens: tuple[TokenLogprob, ...], high: float, *, spread: float, boundary: Boundary, route: str
) -> ContinuationScore:
    """A score that is only known to be at most ``high`` nats.

    The server's own ``spread`` widens it: the listed values that the bound rests on move by as much.
    """
    high = min(high + spread, 0.0)
    return ContinuationScore(None, None, high, "bounded", boundary, tokens, route)
