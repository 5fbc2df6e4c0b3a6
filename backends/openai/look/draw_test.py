"""Whether drawn words fit the probabilities that a server lists for them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backends.openai.scoring.top_logprobs import TopLogprobs

#: A true server's draws seem false in one run of 10,000 at most: they are tested twice.
LEVEL = 5e-5
#: The least probability of all other words: values are rounded, and several tokens share a string.
_LEAST_OTHER = 1e-4
#: Those of the likelihood ratios that are tried: each bound counts as many times, since each could have been the best.
_EXPONENTS = np.array([-0.95, -0.7, -0.45, -0.2, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0])


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

    def logs(self) -> np.ndarray:
        """Log-probabilities (words + 1,) of the listed words and, last, of all others."""
        known = list(self.listed.values())
        return np.log(np.array([*known, max(1 - math.fsum(known), _LEAST_OTHER)]))

    def log_of(self, word: str) -> float:
        """The log-probability of a drawn word."""
        return math.log(self.listed[word]) if word in self.listed else float(self.logs()[-1])


def _is_word(text: str) -> bool:
    """Whether a listed text is drawn as such: not the end of the text, white space, or a part of a character."""
    return bool(text.strip()) and "\N{REPLACEMENT CHARACTER}" not in text and not (text[0] == "<" and text[-1] == ">")


def surprise(places: Sequence[Place]) -> tuple[float, bool]:
    """The most that chance can be behind these draws, and whether they are too likely rather than too unlikely.

    The sum of the drawn words' log-probabilities is compared with its distribution by Chernoff's bound (Annals of
    Mathematical Statistics 23, 1952), which holds for any number of draws, also where one decides what is drawn after.
    """
    total = math.fsum(place.log_of(word) for place in places for word in place.drawn)
    cumulants = np.zeros_like(_EXPONENTS)
    for place in places:
        logs = place.logs()
        each = np.logaddexp.reduce(np.outer(1 + _EXPONENTS, logs), axis=1) - np.logaddexp.reduce(logs)
        cumulants += len(place.drawn) * each
    bounds = cumulants - _EXPONENTS * total
    at = int(np.argmin(bounds))
    return min(1.0, len(bounds) * math.exp(min(float(bounds[at]), 0.0))), bool(_EXPONENTS[at] > 0)
