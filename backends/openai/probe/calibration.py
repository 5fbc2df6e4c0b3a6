"""Whether drawn tokens fit the probabilities that a server lists: the statistics, without any requests.

Three statistics are compared with their simulated distribution under the listed probabilities, so that small counts
need no approximation: G (the likelihood ratio against any other distribution), the number of draws outside the list
(sensitive to lists that were renormalised, filtered or padded), and the mean listed log-probability of the listed
draws (sensitive to another temperature or base). The p-value is the smallest of the three, times three (Bonferroni).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backends.openai.scoring.top_logprobs import TopLogprobs

_SIMULATED = 4000
#: Minimum probability of a draw outside the list: tokens whose text is not as listed, however rare.
_STRAY = 0.005
#: How many listed texts have a cell of their own, likeliest first.
_OWN_CELLS = 50
#: The text of a special token, which is never drawn.
_SPECIAL = re.compile(r"<[^<>]*>|\[[A-Z_]+\]")
#: Standard errors by which a lie must move a statistic to be detected 19 times in 20 at the first level.
_SEEN_AT = 4.4


@dataclass(frozen=True)
class Place:
    """One prompt: the probability of each listed text, and the texts that were drawn after it."""

    listed: Mapping[str, float]
    drawn: Sequence[str]

    @property
    def n(self) -> int:
        """How many draws there are."""
        return len(self.drawn)


@dataclass(frozen=True, slots=True)
class Unseen:
    """The largest lies that this number of draws would probably not detect.

    Attributes
    ----------
    colder, hotter : float
        True temperatures of lists that claim temperature 1.
    factor : float
        By how much all listed probabilities may be too high or too low.
    """

    colder: float
    hotter: float
    factor: float


def listed_texts(top: TopLogprobs, *, trimmed: bool) -> dict[str, float]:
    """The probability of each text that a list identifies; ``trimmed`` for answers without surrounding spaces."""
    found: dict[str, float] = {}
    for token in top.tokens:
        text = token.text.strip() if trimmed else token.text
        if text and "�" not in text and not _SPECIAL.fullmatch(text.strip()) and top.identifies(token):
            found[text] = found.get(text, 0.0) + math.exp(token.logprob)
    return found


def p_value(places: Sequence[Place], *, noise: float) -> float:
    """The probability of draws that fit their lists as badly as these, or worse, if the lists are true.

    ``noise``: nats by which repeated lists differ; the simulated draws come from lists perturbed by as much.
    """
    random = np.random.default_rng(len(places))
    observed, simulated = np.zeros(3), np.zeros((_SIMULATED, 3))
    for place in (p for p in places if p.n):
        cells = _Cells.of(place)
        observed += cells.statistics(cells.counts(place)[None, :])[0]
        simulated += cells.simulated_statistics(place.n, noise, random)
    center = simulated.mean(0)
    distance, distances = np.abs(observed - center), np.abs(simulated - center)
    distance[0], distances[:, 0] = observed[0], simulated[:, 0]  # G is one-sided
    as_bad = (distances >= distance - 1e-9).sum(0)
    return float(min(1.0, 3 * (1 + as_bad.min()) / (1 + _SIMULATED)))


def pooled_p_value(places: Sequence[Place], *, noise: float) -> float:
    """As `p_value`, for the text whose total count over all places is furthest from what the lists predict.

    The probability of a text that many questions list, such as an audited word, may be slightly false in each.
    """
    random = np.random.default_rng(len(places))
    texts = {
        text: at for at, text in enumerate(dict.fromkeys(text for place in places for text in _Cells.of(place).texts))
    }
    observed, simulated = np.zeros(len(texts)), np.zeros((_SIMULATED, len(texts)))
    for place in (p for p in places if p.n):
        cells = _Cells.of(place)
        own = [texts[text] for text in cells.texts]
        observed[own] += cells.counts(place)[: len(own)]
        simulated[:, own] += cells.simulate(place.n, noise, random)[:, : len(own)]
    center = simulated.mean(0)
    error = np.sqrt(simulated.var(0) + 1)  # so that a single draw does not make a rare text the furthest
    distance = (np.abs(observed - center) / error).max(initial=0.0)
    as_bad = (np.abs(simulated - center) / error).max(1, initial=0.0) >= distance - 1e-9
    return float((1 + as_bad.sum()) / (1 + _SIMULATED))


def entropy(listed: Mapping[str, float]) -> float:
    """Entropy over the listed texts, in nats; unlisted texts are ignored."""
    return -math.fsum(p * math.log(p) for p in listed.values() if p > 0)


def unseen(places: Sequence[Place]) -> Unseen:
    """The largest lies that draws from these lists would probably not detect."""
    information = inside = spread = 0.0
    for place in (p for p in places if p.n):
        probabilities = np.array([p for p in place.listed.values() if p > 0])
        mass = min(float(probabilities.sum()), 1.0)
        share = probabilities / probabilities.sum()
        logs = np.log(share)
        information += place.n * mass * float((share * logs**2).sum() - (share * logs).sum() ** 2)
        inside += place.n * mass
        spread += place.n * mass * (1 - mass)
    error = 1 / math.sqrt(information) if information > 0 else math.inf
    hottest = 1 - _SEEN_AT * error
    factor = _SEEN_AT * math.sqrt(max(spread, inside * _STRAY)) / inside if inside else math.inf
    return Unseen(1 / (1 + _SEEN_AT * error), 1 / hottest if hottest > 0 else math.inf, 1 + factor)


@dataclass(frozen=True)
class _Cells:
    """The cells of one place: one per likely text, one for the other listed texts, one for everything unlisted."""

    texts: Sequence[str]
    probabilities: np.ndarray
    centred: np.ndarray

    @classmethod
    def of(cls, place: Place) -> _Cells:
        listed = dict(sorted(place.listed.items(), key=lambda item: -item[1]))
        own = list(listed)[:_OWN_CELLS]
        rare = math.fsum([*listed.values()][_OWN_CELLS:])
        outside = max(1 - math.fsum(listed.values()), _STRAY)
        p = np.array([*(listed[text] for text in own), rare, outside])
        p = p / p.sum()
        inside = p[:-1] / p[:-1].sum()
        logs = np.log(np.maximum(p[:-1], 1e-12))
        centred = np.append(logs - (inside * logs).sum(), 0.0)
        return cls(own, p, centred)

    def counts(self, place: Place) -> np.ndarray:
        """How often each cell was drawn."""
        drawn = Counter(place.drawn)
        own = [drawn[text] for text in self.texts]
        rare = sum(n for text, n in drawn.items() if text in place.listed and text not in self.texts)
        return np.array([*own, rare, place.n - sum(own) - rare])

    def simulate(self, n: int, noise: float, random: np.random.Generator) -> np.ndarray:
        """Counts under the listed probabilities: simulations × cells."""
        p = np.broadcast_to(self.probabilities, (_SIMULATED, len(self.probabilities)))
        if noise > 0:
            moved = p * np.exp(random.normal(0, noise / 2, p.shape))
            p = moved / moved.sum(1, keepdims=True)
        return np.asarray(random.multinomial(n, p))

    def simulated_statistics(self, n: int, noise: float, random: np.random.Generator) -> np.ndarray:
        """`statistics` of `simulate`; looked up for single draws, since there are hundreds of places."""
        if n > 1:
            return self.statistics(self.simulate(n, noise, random))
        # One draw from a randomly perturbed list is one draw from the mean of such lists.
        moved = self.probabilities * np.exp(random.normal(0, noise / 2, (100, len(self.probabilities))))
        chances = (moved / moved.sum(1, keepdims=True)).mean(0)
        of_each_cell = self.statistics(np.eye(len(self.probabilities)))
        return of_each_cell[random.choice(len(chances), _SIMULATED, p=chances / chances.sum())]

    def statistics(self, counts: np.ndarray) -> np.ndarray:
        """Rows of counts → rows of G, draws outside, and the sum of centred log-probabilities."""
        expected = counts.sum(1, keepdims=True) * self.probabilities
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(counts > 0, counts * np.log(counts / np.maximum(expected, 1e-12)), 0.0)
        return np.stack([2 * terms.sum(1), counts[:, -1].astype(float), counts @ self.centred], axis=1)


def at_temperature(place: Place, temperature: float) -> Place:
    """The place at another temperature: only the listed tokens, with their probabilities, and the draws among them."""
    heated = {text: p ** (1 / temperature) for text, p in place.listed.items()}
    total = math.fsum(heated.values())
    inside = [text for text in place.drawn if text in place.listed]
    return dataclasses.replace(place, listed={t: p / total for t, p in heated.items()}, drawn=inside)


def log_likelihood(place: Place) -> float:
    """Σ log P(draw) over the draws, in nats."""
    return math.fsum(math.log(place.listed[text]) for text in place.drawn)
