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

    def logs(self) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Log-probabilities (words + 1,) of the listed words, likeliest first, then of all others; who was drawn."""
        words = sorted(self.listed, key=lambda word: -self.listed[word])
        known = [self.listed[word] for word in words]
        place = {word: at for at, word in enumerate(words)}
        logs = np.log(np.array([*known, max(1 - math.fsum(known), _LEAST_OTHER)]))
        return logs, np.array([place.get(word, len(words)) for word in self.drawn], np.intp)


def _is_word(text: str) -> bool:
    """Whether a listed text is drawn as such: not the end of the text, white space, or a part of a character."""
    return bool(text.strip()) and "\N{REPLACEMENT CHARACTER}" not in text and not (text[0] == "<" and text[-1] == ">")


def surprise(places: Sequence[Place]) -> tuple[float, bool]:
    """The most that chance can be behind these draws, and whether they are too likely rather than too unlikely.

    Sums over the drawn words are compared with their distribution by Chernoff's bound (Annals of Mathematical
    Statistics 23, 1952), which holds for any number of draws, also where one decides what is drawn after: of their
    log-probabilities, and of how many have certain ranks.
    """
    bounds, excess = np.zeros(1), 0.0
    for place in places:
        logs, drawn = place.logs()
        excess += float(logs[drawn].sum() - len(drawn) * (np.exp(logs) @ logs) / np.exp(logs).sum())
        at = np.arange(len(logs) - 1)
        of_ranks = [np.append((at >= low) & (at < high), False) for low, high in _RANKS]
        values = np.array([e * logs for e in _OF_LOGS] + [e * one for one in of_ranks for e in _OF_RANKS])
        cumulants = np.logaddexp.reduce(logs + values, axis=1) - np.logaddexp.reduce(logs)
        bounds = bounds + len(drawn) * cumulants - values[:, drawn].sum(1)
    return min(1.0, len(bounds) * math.exp(min(float(bounds.min()), 0.0))), excess > 0
