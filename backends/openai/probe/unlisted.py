"""Whether a text that a list leaves out is drawn more often than the last one listed, which it cannot be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from backends.openai.probe.calibration import STRAY, Place, is_readable

#: Allowed probability of drawing an audited text by a token that its list spells otherwise.
_RARELY = 0.001
#: Chance with which the stated probability of the words left out is exceeded.
_UNSURE = 0.05
_STEPS = 60


def unlisted_bound(places: Sequence[Place], *, noise: float) -> float:
    """An upper bound on the chance of unlisted texts as frequent as these: of any, or of the audited ones."""
    return min(1.0, 2 * min(_any_text_bound(places, noise), left_out_bound(places, noise=noise)))


def _any_text_bound(places: Sequence[Place], noise: float) -> float:
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
        _log_chance_of_any(hits, place.n * chance, n)
        for place, drawn, chance in zip(places, found, chances, strict=True)
        for hits in drawn.values()
    ]
    for text, hits in sum(found, Counter[str]()).items():
        if hits > 1:
            held = [place.n * b for place, b in zip(places, chances, strict=True) if _may_lack(place, text)]
            logs.append(_log_chance_of_any(hits, math.fsum(held), n))
    return min(1.0, 2 * math.exp(min(logs, default=0.0)))


def left_out_bound(places: Sequence[Place], *, noise: float) -> float:
    """As `unlisted_bound`, for the audited texts alone: few are compared, so fewer draws show that one was left out.

    Each is counted at each place and over all places, and all of them together (Bonferroni). A single draw of a text
    with a tiny bound shows something.
    """
    lacking = [(place, left_out(place)) for place in places if place.n]
    lacking = [(place, texts) for place, texts in lacking if texts]
    together, n_counts = _Count(), 0
    of_each: dict[str, _Count] = {}
    logs = [0.0]
    for place, texts in lacking:
        most = min(max(place.bound or 0.0, _RARELY) * place.spellings * math.exp(noise), 1.0)
        drawn = Counter(place.drawn)
        for text in texts:
            own = _Count(drawn[text], place.n * most)
            of_each.setdefault(text, _Count()).add(own)
            logs.append(own.log_chance())
            n_counts += 1
        together.add(_Count(sum(drawn[text] for text in texts), place.n * min(len(texts) * most, 1.0)))
    at_a_place = math.log(max(n_counts, 1)) + min(logs)
    over_all = math.log(max(len(of_each), 1)) + min((count.log_chance() for count in of_each.values()), default=0.0)
    return min(1.0, 3 * math.exp(min(at_a_place, over_all, together.log_chance())))


@dataclass
class _Count:
    """How often something was drawn, and how often it may be expected at most."""

    hits: int = 0
    expected: float = 0.0

    def add(self, other: _Count) -> None:
        self.hits += other.hits
        self.expected += other.expected

    def log_chance(self) -> float:
        """Log of an upper bound on the chance of so many hits, or more."""
        if self.hits <= self.expected:
            return 0.0
        return self.hits - self.expected + self.hits * math.log(self.expected / self.hits)


def left_out(place: Place) -> set[str]:
    """The audited texts that the list bounds by its last rank."""
    if place.bound is None:
        return set()
    return {text for text in place.audited if is_readable(text) and text.strip() and _may_lack(place, text)}


def share_left_out(places: Sequence[Place]) -> float:
    """The most that the audited texts which lists leave out may have together, on average over the questions.

    With 95 % confidence, by draws at places that are a random sample of the questions: the least p that the mean share
    x of such draws rules out, KL(x, p) = log(20) / places (Hoeffding, J. Am. Stat. Assoc. 58, 1963; the shares may
    differ). 0 where no list leaves an audited text out, 1 without draws.
    """
    places = [place for place in places if place.n and place.bound is not None]
    if not places:
        return 1.0
    lacking = [left_out(place) for place in places]
    if not any(lacking):
        return 0.0
    shares = [
        sum(text in texts for text in place.drawn) / place.n for place, texts in zip(places, lacking, strict=True)
    ]
    mean = math.fsum(shares) / len(places)
    low, high = mean, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _divergence(mean, middle) >= -math.log(_UNSURE) / len(places) else (middle, high)
    return high


def _divergence(share: float, p: float) -> float:
    """Kullback and Leibler's, of two chances."""
    hit = share * math.log(share / p) if share else 0.0
    miss = (1 - share) * math.log((1 - share) / max(1 - p, 1e-300)) if share < 1 else 0.0
    return hit + miss


def _may_lack(place: Place, text: str) -> bool:
    return text not in place.listed and text not in place.unclear


def _unlisted(place: Place) -> Counter[str]:
    """How often each text that the list leaves out was drawn, of those that a list would name."""
    return Counter(text for text in place.drawn if is_readable(text) and text.strip() and _may_lack(place, text))


def _log_chance_of_any(hits: int, expected: float, n: int) -> float:
    if hits <= expected + 1:
        return 0.0
    return min(math.log(n / expected) + hits - expected + hits * math.log(expected / hits), 0.0)
