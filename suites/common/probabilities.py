"""P(group): the probability that a model continues a prompt with an expression of a group.

    P(group)  = Σ over the group's expressions of Π over tokens P(token | prompt, earlier tokens)
    P̃(group) = P(group) / Σ over all groups of P
    coverage  = Σ over all expressions: the total probability behind P̃

Equations (3) and (4) of Chen et al. 2025. An expression whose tokens begin with those of another one is part of that
one's probability. For the papers' groups it is counted once within a group and once in the coverage, and each group
keeps its own (`exclusive`). For declared groups a text counts for the longest expression that it begins with:

    mass("profesor") = P("profesor") − P("profesora")

For drawn answers, P(group) is the share of answers that begin with one of its expressions, and P̃ its share of those
that begin with any, which is unbiased. If none does, the question counts in the coverage alone. A probability that is
only bounded is carried as its bounds up to P̃.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Literal

from backends.base import ContinuationScore
from backends.reading.words import begins_with_words, is_word_character
from suites.base import UNKNOWN_SHARE, IdentifiedInterval, flag
from suites.common.expressions import Expressions

TokenAggregation = Literal["product", "mean"]

#: By how much a sum of exact probabilities may exceed 1 through rounding before it counts as impossible.
ROUNDING = 1e-3

_HIGH, _SAMPLES, _TOKENS = map(operator.attrgetter, ("high", "samples", "tokens"))
_begins = functools.lru_cache(4096)(begins_with_words)


class ImpossibleMassError(ValueError):
    """Exact probabilities of exclusive continuations add up to more than 1."""


@dataclass(frozen=True, slots=True)
class GroupProbabilities:
    """The groups' probabilities after one prompt.

    ``masses``: those of the groups' expressions, on one common scale. ``probability_mass``: the total probability of
    all expressions. ``drawn``: how many drawn answers began with one of them; None if nothing was drawn.
    ``open_masses``: what the drawn answers of which nothing is known would add to the groups, were all of them one
    expression; for each expression. Upper bounds of masses hold them for all groups at once.
    """

    masses: Mapping[str, IdentifiedInterval]
    probability_mass: IdentifiedInterval
    drawn: int | None = None
    open_masses: Sequence[Mapping[str, float]] = ()

    @property
    def names_none(self) -> bool:
        """Whether answers were drawn, and none that is known begins with an expression: then there is no P̃."""
        return self.drawn == 0

    @property
    def normalised(self) -> dict[str, IdentifiedInterval]:
        """P̃ of each group, in [0, 1]."""
        return self.contrasts({group: {group: 1.0} for group in self.masses})

    def contrasts(self, weights: Mapping[str, Mapping[str, float]]) -> dict[str, IdentifiedInterval]:
        """`contrast` of each of these weights, by name."""
        shares = None if self.open_masses or self.drawn is not None else _exact_shares(self.masses)
        if shares is None:
            return {name: self.contrast(of) for name, of in weights.items()}
        return {name: _exact_share(self.masses, of, shares) for name, of in weights.items()}

    def contrast(self, weights: Mapping[str, float]) -> IdentifiedInterval:
        """Σ over groups of weight · P̃; a group that is not named has weight 0. See `weighted_share`."""
        share = self._with_open(weights) if self.open_masses else weighted_share(self.masses, weights)
        return share if self.drawn is None else replace(share, draw_variance=self._draw_variance(weights))

    def _with_open(self, weights: Mapping[str, float]) -> IdentifiedInterval:
        """Sharp bounds, at whose ends the open answers are all one expression, or none; the value is without them."""
        known = {group: mass.low for group, mass in self.masses.items()}
        ends: list[float] = []
        for added in ({}, *self.open_masses):
            masses = {group: mass + added.get(group, 0.0) for group, mass in known.items()}
            if (total := math.fsum(masses.values())) > 0:
                ends.append(math.fsum(weights.get(group, 0.0) * mass / total for group, mass in masses.items()))
        return IdentifiedInterval(None if self.names_none else ends[0], min(ends), max(ends))

    def _draw_variance(self, weights: Mapping[str, float]) -> float | None:
        """The unbiased variance of Σ weight · P̃, given how many answers name a group; None with fewer than two."""
        masses = {group: (mass.low + mass.high) / 2 for group, mass in self.masses.items()}
        total = math.fsum(masses.values())
        if not self.drawn or self.drawn < 2 or total <= 0:
            return None
        of = {group: weights.get(group, 0.0) for group in masses}
        mean = math.fsum(of[group] * mass / total for group, mass in masses.items())
        squares = math.fsum((of[group] - mean) ** 2 * mass / total for group, mass in masses.items())
        return squares / (self.drawn - 1)


def group_probabilities(
    scores: Sequence[ContinuationScore], expressions: Expressions, aggregation: TokenAggregation | None = "product"
) -> GroupProbabilities:
    """P̃ of each group and the total probability, from the scores of `suites.common.expressions.continuations`.

    ``aggregation``: ``product``: equation (3). None: the same for declared groups. ``mean``: the exponential of the
    mean token log-probability, as in the authors' released code for implicit prompts; the coverage is still that of
    the products. A spelling that a group lists twice counts twice in it, as in the released list of Mattern et al.

    Raises `ImpossibleMassError` if exact probabilities add up to more than 1, or a longer expression of declared groups
    is likelier than its beginning. Raises `ValueError` if the numbers of scores and expressions differ.
    """
    spellings = list(dict.fromkeys(chain.from_iterable(expressions.values())))
    if len(scores) != len(spellings):
        raise ValueError(f"{len(scores)} scores for {len(spellings)} expressions")
    score_of = dict(zip(spellings, scores, strict=True))
    if aggregation != "mean" and open_share(scores):
        return _with_open_draws(score_of, expressions, longest=aggregation is None)
    if aggregation is None:
        shift = max(score.high for score in scores)
        masses = dict(zip(spellings, _own_masses(scores, spellings, shift), strict=True))
        total, scale = IdentifiedInterval.total([*masses.values()]), math.exp(shift)
        of_groups = {g: IdentifiedInterval.total([masses[word] for word in words]) for g, words in expressions.items()}
    else:
        combined = exclusive if aggregation == "product" else lambda of_group: [*map(per_token, of_group)]
        summed = {group: combined([*map(score_of.__getitem__, words)]) for group, words in expressions.items()}
        # P̃ is a ratio: scaling by the largest keeps tiny probabilities from becoming 0 / 0.
        shift = max(map(_HIGH, chain.from_iterable(summed.values())))
        total, scale = _sum(exclusive(scores), 0.0), 1.0
        of_groups = {group: _sum(of_group, shift) for group, of_group in summed.items()}
    if total.low * scale > 1 + ROUNDING:
        raise ImpossibleMassError(f"the expressions' probabilities add up to {total.low * scale:.6g}")
    value = None if total.value is None else min(1.0, total.value * scale)
    mass = IdentifiedInterval(value, min(1.0, total.low * scale), min(1.0, total.high * scale))
    return GroupProbabilities(of_groups, mass, _drawn_answers(scores, mass))


def _drawn_answers(scores: Sequence[ContinuationScore], mass: IdentifiedInterval) -> int | None:
    """How many drawn answers make up a mass, at least; None if the scores were not counted from drawn answers."""
    samples = next(filter(None, map(_SAMPLES, scores)), None)
    return round(mass.low * samples) if samples else None


def open_share(scores: Sequence[ContinuationScore]) -> float:
    """The share of drawn answers that may be any of the continuations, as an unfinished thought; 0 if it is not known.

    Answers that were cut off within one continuation are open for that one alone: then it is not known.
    """
    if not all(map(_SAMPLES, scores)) or any(score.exactness == "sampled" for score in scores):
        return 0.0
    shares = [math.exp(score.high) - (0.0 if score.low is None else math.exp(score.low)) for score in scores]
    return shares[0] if max(shares) - min(shares) < ROUNDING / 100 else 0.0


def _with_open_draws(
    score_of: Mapping[str, ContinuationScore], expressions: Expressions, *, longest: bool
) -> GroupProbabilities:
    """The groups' masses where a share of the drawn answers is open: each of these is one expression at most.

    ``longest``: an answer counts for its longest expression; else for all expressions that begin it.
    """
    scores, left = [*score_of.values()], open_share([*score_of.values()])
    known = [replace(score, logprob=score.low, exactness="sampled") for score in scores]
    shares = [mass.low for mass in _drawn_masses(known, [*score_of], 0.0)] if longest else [*map(drawn_share, known)]
    masses = dict(zip(score_of, shares, strict=True))
    counts: Callable[[str, str], bool] = str.__eq__ if longest else _begins

    def bounded(least: float, added: Sequence[int]) -> IdentifiedInterval:
        return IdentifiedInterval(None, min(1.0, least), min(1.0, least + left * max(added)))

    added = {
        group: [sum(counts(one, word) for word in words) for one in masses] for group, words in expressions.items()
    }
    mass = bounded(math.fsum(shares), [sum(counts(one, word) for word in masses) for one in masses])
    of_groups = {g: bounded(math.fsum(masses[w] for w in words), added[g]) for g, words in expressions.items()}
    may_add = [{group: left * times[place] for group, times in added.items()} for place in range(len(masses))]
    return GroupProbabilities(of_groups, mass, _drawn_answers(scores, mass), may_add)


# -- declared groups: each text counts for its longest expression ------------------------------------


def _own_masses(
    scores: Sequence[ContinuationScore], texts: Sequence[str], shift: float
) -> Iterator[IdentifiedInterval]:
    """Each expression's probability without those that continue it, all divided by exp(shift)."""
    paths = [_token_path(score) for score in scores]
    if all(score.exactness == "sampled" for score in scores):
        yield from _drawn_masses(scores, texts, shift)
        return

    def goes_on(one: int, other: int) -> bool:
        """Whether the other's tokens begin with these; compared by letters if a server reports no tokens."""
        short, long = (paths[one], paths[other]) if paths[one] and paths[other] else (texts[one], texts[other])
        return len(short) < len(long) and long[: len(short)] == short

    for place, score in enumerate(scores):
        longer = [i for i in range(len(scores)) if goes_on(place, i)]
        # Among those that continue each other, the shortest include the others.
        nearest = [i for i in longer if not any(goes_on(j, i) for j in longer)]
        surely = [i for i in nearest if paths[place] and paths[i]]
        yield _difference(score, [scores[i] for i in surely], [scores[i] for i in nearest if i not in surely], shift)


def _drawn_masses(
    scores: Sequence[ContinuationScore], texts: Sequence[str], shift: float
) -> Iterator[IdentifiedInterval]:
    """The same from drawn answers, among which "profesora" did not count as "profesor": shares of all answers.

    An answer with a further word ("gender neutral") was also counted for its beginning, and is subtracted there.
    """
    for score, text in zip(scores, texts, strict=True):
        longer = [other for other in texts if _goes_on_by_a_word(text, other)]
        nearest = [other for other in longer if not any(_goes_on_by_a_word(one, other) for one in longer)]
        held = math.fsum(drawn_share(scores[texts.index(other)], shift) for other in nearest)
        yield IdentifiedInterval.exact(max(0.0, drawn_share(score, shift) - held))


def _goes_on_by_a_word(text: str, other: str) -> bool:
    rest = other[len(text) :][:1]
    return bool(rest) and other.startswith(text) and not (is_word_character(rest) and is_word_character(text[-1]))


def _difference(
    score: ContinuationScore, longer: Sequence[ContinuationScore], perhaps: Sequence[ContinuationScore], shift: float
) -> IdentifiedInterval:
    """P(score) − Σ P(longer), with bounds that subtract those of ``perhaps`` or not."""

    def scaled(logprob: float | None) -> float:
        return 0.0 if logprob is None else math.exp(logprob - shift)

    high = scaled(score.high) - math.fsum(scaled(one.low) for one in longer)
    low = scaled(score.low) - math.fsum(scaled(one.high) for one in (*longer, *perhaps))
    if high < -ROUNDING:
        raise ImpossibleMassError("a longer expression is likelier than its beginning")
    low, high = max(0.0, low), max(0.0, high)
    if perhaps or score.logprob is None or any(one.logprob is None for one in longer):
        return IdentifiedInterval(None, min(low, high), high)
    value = scaled(score.logprob) - math.fsum(scaled(one.logprob) for one in longer)
    return IdentifiedInterval(min(max(value, low), high), min(low, high), high)


# -- shares ------------------------------------------------------------------------------------------


def weighted_share(masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]) -> IdentifiedInterval:
    """Σ weight · mass / Σ mass, with sharp bounds given those of the masses.

    The sum is an average of the weights, weighted by the masses: it is largest when the masses above some weight are
    at their upper bounds and the others at their lower ones. If nothing is known, it lies between the smallest and the
    largest weight.
    """
    if (shares := _exact_shares(masses)) is not None:
        return _exact_share(masses, weights, shares)
    of = {group: weights.get(group, 0.0) for group in masses}
    values = {group: mass.value for group, mass in masses.items() if mass.value is not None}
    value = None
    if len(values) == len(masses) and (total := math.fsum(values.values())) > 0:
        value = math.fsum([of[group] * (mass / total) for group, mass in values.items()])
    rising = sorted(masses, key=of.__getitem__)
    inner = () if value is None else (value,)  # bounds enclose the value despite rounding
    low = min(_averages(rising, masses, of), default=of[rising[0]])
    high = max(_averages(rising[::-1], masses, of), default=of[rising[-1]])
    return IdentifiedInterval(value, min(low, high, *inner), max(low, high, *inner))


def _exact_shares(masses: Mapping[str, IdentifiedInterval]) -> list[float] | None:
    """Each mass / Σ mass, if all are exact and not all 0: the usual case, without bounds to compute."""
    values = []
    for mass in masses.values():
        if mass.value is None or mass.low != mass.high:
            return None
        values.append(mass.value)
    total = math.fsum(values)
    return [value / total for value in values] if total > 0 else None


def _exact_share(
    masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float], shares: Sequence[float]
) -> IdentifiedInterval:
    value = math.fsum(map(operator.mul, map(weights.get, masses, repeat(0.0)), shares))
    return IdentifiedInterval(value, value, value)


def _averages(
    order: Sequence[str], masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]
) -> Iterator[float]:
    """The averages of the weights where the first few masses are at their upper bounds, the rest at the lower ones."""
    for turn in range(len(order) + 1):
        at = [masses[g].high for g in order[:turn]] + [masses[g].low for g in order[turn:]]
        if (total := math.fsum(at)) > 0:
            yield math.fsum(weights[g] * mass for g, mass in zip(order, at, strict=True)) / total


# -- single scores -----------------------------------------------------------------------------------


def is_likelier(a: ContinuationScore, b: ContinuationScore) -> IdentifiedInterval:
    """1 if ``a`` is likelier, 0 if it is not, 0 to 1 if the bounds leave it open. Ties: see `is_tie`."""
    if a.low is not None and a.low > b.high:
        return flag(True)
    return flag(False) if b.low is not None and b.low >= a.high else UNKNOWN_SHARE


def is_tie(a: ContinuationScore, b: ContinuationScore) -> bool:
    """Whether both scores are known, and equal."""
    return a.low is not None and a.low == a.high == b.low == b.high


def per_token(score: ContinuationScore) -> ContinuationScore:
    """The mean log-probability per token.

    If the reported tokens are not known to be all, their number is unknown, but at least 1: a score without a value is
    a bound from its first tokens, and perhaps not from the rest.
    """
    total = math.fsum(t.logprob for t in score.tokens)
    if not score.tokens or score.logprob is None or not math.isclose(total, score.logprob, rel_tol=1e-9, abs_tol=1e-9):
        return ContinuationScore(None, score.low, 0.0, "bounded")
    n = len(score.tokens)
    low = None if score.low is None else score.low / n
    return ContinuationScore(score.logprob / n, low, score.high / n, "bounded")


def _sum(scores: Sequence[ContinuationScore], shift: float) -> IdentifiedInterval:
    """Sum of the probabilities, all divided by exp(shift)."""
    exact = []
    for score in scores:
        if score.logprob is None or not score.low == score.logprob == score.high:
            return IdentifiedInterval.total([_probability(score, shift) for score in scores])
        exact.append(math.exp(score.logprob - shift))
    return IdentifiedInterval.exact(math.fsum(exact))  # the usual case: without a number with bounds for each


def _probability(score: ContinuationScore, shift: float) -> IdentifiedInterval:
    """One probability, divided by exp(shift); for drawn answers their share, which is unbiased.

    Its error is sampling error, part of every interval over items: no bound within which it lies on all items at once.
    """
    if score.exactness == "sampled":
        return IdentifiedInterval.exact(drawn_share(score, shift))
    low, value = (None if end is None else math.exp(end - shift) for end in (score.low, score.logprob))
    return IdentifiedInterval(value, low or 0.0, math.exp(score.high - shift))


def total_probability(scores: Sequence[ContinuationScore]) -> IdentifiedInterval:
    """The total probability of texts of which none begins another, only bounded where that of one is."""
    if all(score.exactness != "bounded" for score in scores):
        return IdentifiedInterval.exact(math.fsum(map(drawn_share, scores)))
    total = _sum(scores, 0.0)
    return IdentifiedInterval(None, total.low, min(total.high, max(1.0, total.low)))


def drawn_share(score: ContinuationScore, shift: float = 0.0) -> float:
    """The share of drawn answers that begin with this continuation, divided by exp(shift)."""
    return 0.0 if score.logprob is None else math.exp(score.logprob - shift)


def exclusive(scores: Sequence[ContinuationScore]) -> list[ContinuationScore]:
    """The scores without those whose tokens begin with all of another one's.

    If each digit is a token, " 10" begins with the tokens of " 1", whose probability already includes it. If a server
    reports no tokens, nothing is left out: such scores are upper bounds, and adding them up is safe. A score with a
    lower bound is not left out for a mere upper bound either, which may cover the first tokens alone.
    """
    if max(map(len, map(_TOKENS, scores)), default=0) < 2:
        return list(scores)
    paths = [_token_path(score) for score in scores]
    reported = set(paths) - {()}
    with_lower_bound = {path for score, path in zip(scores, paths, strict=True) if score.low is not None} - {()}
    return [
        score
        for score, path in zip(scores, paths, strict=True)
        if not any(path[:n] in (reported if score.low is None else with_lower_bound) for n in range(1, len(path)))
    ]


def _token_path(score: ContinuationScore) -> tuple[tuple[str, int, int | str], ...]:
    """What distinguishes one token sequence from another; empty if the first token is not reported."""
    if not score.tokens or score.tokens[0].start > 0:
        return ()
    return tuple((score.boundary, t.start, t.text if t.token_id is None else t.token_id) for t in score.tokens)
