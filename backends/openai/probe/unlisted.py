"""Whether a text that a list leaves out is drawn more often than the last one listed, which it cannot be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from backends.openai.probe.calibration import STRAY, Place, is_readable


def unlisted_bound(places: Sequence[Place], *, noise: float) -> float:
    """An upper bound on the chance of one unlisted text as frequent as these, at one place or at all together.

    In N draws all texts are expected N times, one text at most B = Σ n b times (b: what one unlisted text can have).
    So h or more draws of any text have at most the chance N/B exp(h - B) (B/h)ʰ (Chernoff's bound of a Poisson count,
    which rises faster than its mean), times 2, as each text is counted twice. A text drawn once shows nothing.
    """
    places = [place for place in places if place.bound is not None]
    n = sum(place.n for place in places)
    found = [_unlisted(place) for place in places]
    chances = [min(max(place.bound or 0.0, STRAY) * math.exp(noise), 1.0) for place in places]
    logs = [
        _log_chance(hits, place.n * chance, n)
        for place, drawn, chance in zip(places, found, chances, strict=True)
        for hits in drawn.values()
    ]
    for text, hits in sum(found, Counter[str]()).items():
        if hits > 1:
            held = [place.n * b for place, b in zip(places, chances, strict=True) if _may_lack(place, text)]
            logs.append(_log_chance(hits, math.fsum(held), n))
    return min(1.0, 2 * math.exp(min(logs, default=0.0)))


def _may_lack(place: Place, text: str) -> bool:
    return text not in place.listed and text not in place.unclear


def _unlisted(place: Place) -> Counter[str]:
    """How often each text that the list leaves out was drawn, of those that a list would name."""
    return Counter(text for text in place.drawn if is_readable(text) and text.strip() and _may_lack(place, text))


def _log_chance(hits: int, expected: float, n: int) -> float:
    if hits <= expected + 1:
        return 0.0
    return min(math.log(n / expected) + hits - expected + hits * math.log(expected / hits), 0.0)
