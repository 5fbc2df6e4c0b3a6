"""Whether drawn words fit the probabilities that a server lists for them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.openai.scoring.top_logprobs import TopLogprobs

#: A true server's draws seem false in one run of 10,000 at most: they are tested twice.
LEVEL = 5e-5
#: The least probability of all other words: values are rounded, and several tokens share a string.
_LEAST_OTHER = 1e-4
#: Exponents that are tried with the words' log-probabilities (likelihood ratios of temperatures) and with whether a
#: word has one of these ranks; each bound counts as many times, since each could have been the lowest.
_OF_LOGS = (-0.95, -0.7, -0.45, -0.2, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
_OF_RANKS, _RANKS = (-2.0, -1.0, -0.4, 0.4, 1.0, 2.0), ((0, 1), (1, 2), (2, 5), (5, 10))


@dataclass(frozen=True)
class Place:
    """The probabilities of the words listed after one prompt, and which were drawn there.

    All other words count as one.
    """

    listed: dict[str, float]
    drawn: tuple[str, ...]

    @classmethod
    def of(cls, top: TopLogprobs, drawn: Sequence[str]) -> Place:
        """Words are compared without the space before them, which some servers drop; parts of one count as others."""
        listed: dict[str, float] = defaultdict(float)
        likeliest = sorted(top.tokens, key=lambda token: -token.logprob)[: top.requested_k]
        for token in likeliest:
            listed[token.text.strip(" Ġ▁")] += math.exp(token.logprob)
        return cls({w: p for w, p in listed.items() if _is_word(w)}, tuple(w.strip(" Ġ▁") for w in drawn))

    def logs(self) -> NDArray[np.float64]:
        """Log-probabilities (words + 1,) of the listed words, likeliest first, and last of all others."""
        known = sorted(self.listed.values(), reverse=True)
        return np.asarray(np.log(np.array([*known, max(1 - math.fsum(known), _LEAST_OTHER)])))

    def ranks(self) -> np.ndarray:
        """The place (draws,) of each drawn word in `logs`."""
        words = sorted(self.listed, key=lambda word: -self.listed[word])
        place = {word: at for at, word in enumerate(words)}
        return np.array([place.get(word, len(words)) for word in self.drawn])


def _is_word(text: str) -> bool:
    """Whether a listed text is drawn as such: not the end of the text, white space, or a part of a character."""
    return bool(text.strip()) and "\N{REPLACEMENT CHARACTER}" not in text and not (text[0] == "<" and text[-1] == ">")


def surprise(places: Sequence[Place]) -> tuple[float, bool]:
    """The most that chance can be behind these draws, and whether they are too likely rather than too unlikely.

    Sums over the drawn words are compared with their distribution by Chernoff's bound (Annals of Mathematical
    Statistics 23, 1952), which holds for any number of draws, also where one decides what is drawn after: of their
    log-probabilities, and of how many have certain ranks.
    """
    tried = [(0, exponent) for exponent in _OF_LOGS]
    tried += [(at, exponent) for at in range(1, 1 + len(_RANKS)) for exponent in _OF_RANKS]
    bounds = np.zeros(len(tried))
    excess = 0.0
    for place in places:
        logs, drawn = place.logs(), place.ranks()
        features = [logs, *(_between(len(logs), *ranks) for ranks in _RANKS)]
        excess += float(logs[drawn].sum() - len(drawn) * (np.exp(logs) @ logs) / np.exp(logs).sum())
        for at, (feature, exponent) in enumerate(tried):
            values = exponent * features[feature]
            cumulant = np.logaddexp.reduce(logs + values) - np.logaddexp.reduce(logs)
            bounds[at] += len(drawn) * cumulant - values[drawn].sum()
    return min(1.0, len(tried) * math.exp(min(float(bounds.min()), 0.0))), excess > 0


def _between(n: int, low: int, high: int) -> np.ndarray:
    """1 for the listed words (n - 1,) of these ranks, 0 for others (n,)."""
    at = np.arange(n)
    return np.where((at >= low) & (at < high) & (at < n - 1), 1.0, 0.0)
