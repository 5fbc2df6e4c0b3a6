"""P(group): the probability that a model continues a prompt with an expression of a gender.

    P(group)  = Σ over the group's expressions of Π over tokens P(token | prompt, earlier tokens)
    P̃(group) = P(group) / Σ over all groups of P
    coverage  = Σ over all expressions: the total probability behind P̃

An expression whose tokens begin with those of another one is part of that one's probability: it is
counted once within a group and once in the coverage (`exclusive`). In different groups each keeps its own.

For drawn answers, P(group) is the share of answers that begin with one of its expressions, and P̃ its share of those
that begin with any. Given how many do, this is unbiased. If none does, the question has no P̃: it is no part of a figure
of shares, and counts in the coverage, which stands beside it.

Equations (3) and (4) of Chen et al., "Causally Testing Gender Bias in LLMs: A Case Study on
Occupational Bias". A probability that is only bounded is carried as its bounds up to P̃.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backends.base import ContinuationScore
from backends.reading.words import begins_with_words
from suites.base import UNKNOWN_SHARE, IdentifiedInterval, flag
from suites.common.expressions import Expressions

TokenAggregation = Literal["product", "mean"]
#: Group → how often an answer counts for it; and for the coverage.
_Counts = tuple[Mapping[str, int], int]

#: By how much a sum of exact probabilities may exceed 1 through rounding before it counts as impossible.
ROUNDING = 1e-3


class ImpossibleMassError(ValueError):
    """Exact probabilities of exclusive continuations add up to more than 1."""


@dataclass(frozen=True, slots=True)
class GroupProbabilities:
    """The groups' probabilities after one prompt.

    ``masses``: masses of the groups' expressions, all on one common scale. ``probability_mass``: the total
    probability of all expressions, in [0, 1]. Always from products of token probabilities. ``drawn``: how many
    drawn answers began with one of the expressions; None if the probabilities were not counted. ``open_masses``:
    where nothing is known of some drawn answers: what these would add to the groups, were all of them one
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
        total = math.fsum([mass.low for mass in self.masses.values()])
        if self.drawn is None and not self.open_masses and total > 0 and _all_exact(self.masses.values()):
            return {group: IdentifiedInterval.exact(mass.low / total) for group, mass in self.masses.items()}
        return {group: self.contrast({group: 1.0}) for group in self.masses}

    def contrast(self, weights: Mapping[str, float]) -> IdentifiedInterval:
        """Σ over groups of weight · P̃; a group that is not named has weight 0. See `weighted_share`."""
        share = self._with_open(weights) if self.open_masses else weighted_share(self.masses, weights)
        return share if self.drawn is None else replace(share, draw_variance=self._draw_variance(weights))

    def _with_open(self, weights: Mapping[str, float]) -> IdentifiedInterval:
        """Σ weight · P̃ with sharp bounds: at an end of these, the open answers are all one expression, or none.

        The value is that of the answers that are known.
        """
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


def drawn_answers(scores: Sequence[ContinuationScore], mass: IdentifiedInterval) -> int | None:
    """How many drawn answers make up a mass, at least; None if the scores were not counted from drawn answers."""
    samples = [score.samples for score in scores if score.samples]
    return round(mass.low * samples[0]) if samples else None


def group_probabilities(
    scores: Sequence[ContinuationScore], expressions: Expressions, aggregation: TokenAggregation = "product"
) -> GroupProbabilities:
    """P̃ of each group and the total probability, from the scores of `continuations`.

    ``scores``: in the order of `continuations`. ``aggregation``: ``product``: equation (3). ``mean``: the
    exponential of the mean token log-probability, which favours expressions of many tokens and whose sum is not a
    probability; the coverage is still that of the products. The authors' released code computes the mean for
    implicit prompts. That makes no difference as long as each pronoun is one token; keeping only one spelling does
    (`suites.occugender.released`).

    Raises `ImpossibleMassError` if exact probabilities add up to more than 1. Raises `ValueError` if the numbers of
    scores and expressions differ.
    """
    of_groups = _by_group(scores, expressions)
    if aggregation == "product" and open_share(scores):
        return _with_open_draws(scores, expressions)
    mass = _sum(exclusive(scores), shift=0.0)
    if mass.low > 1 + ROUNDING:
        raise ImpossibleMassError(f"the expressions' probabilities add up to {mass.low:.6g}")
    value = None if mass.value is None else min(mass.value, 1.0)
    probability_mass = _number(min(mass.low, 1.0), value, min(mass.high, 1.0), exact=_all_exact([mass]))
    if aggregation == "mean":
        summed = {g: [per_token(s) for s in of_group] for g, of_group in of_groups.items()}
    else:
        summed = {g: exclusive(of_group) for g, of_group in of_groups.items()}
    # P̃ is a ratio: scaling by the largest keeps tiny probabilities from becoming 0 / 0.
    shift = max([score.high for of_group in summed.values() for score in of_group])
    masses = {g: _sum(of_group, shift) for g, of_group in summed.items()}
    return GroupProbabilities(masses, probability_mass, drawn_answers(scores, probability_mass))


def open_share(scores: Sequence[ContinuationScore]) -> float:
    """The share of drawn answers that may be any of the continuations, as an unfinished thought; 0 if it is not known.

    Answers that were cut off within one continuation are open for that one alone: then it is not known.
    """
    if not all(score.samples for score in scores) or any(score.exactness == "sampled" for score in scores):
        return 0.0
    shares = [math.exp(score.high) - (0.0 if score.low is None else math.exp(score.low)) for score in scores]
    return shares[0] if max(shares) - min(shares) < ROUNDING / 100 else 0.0


def with_open_answers(
    known_masses: Mapping[str, float], coverage: float, scores: Sequence[ContinuationScore], added: Sequence[_Counts]
) -> GroupProbabilities:
    """The groups' masses and coverage in known answers, and what open ones may add, for each expression.

    ``added``: how often an answer that is this expression counts for each group, and for the coverage.
    """
    left = open_share(scores)

    def bounded(least: float, times: Iterable[float]) -> IdentifiedInterval:
        return IdentifiedInterval(None, min(1.0, least), min(1.0, least + left * max(times)))

    mass = bounded(coverage, [of_coverage for _, of_coverage in added])
    masses = {g: bounded(least, [of_group.get(g, 0) for of_group, _ in added]) for g, least in known_masses.items()}
    may_add = [{group: left * times for group, times in of_group.items()} for of_group, _ in added]
    return GroupProbabilities(masses, mass, drawn_answers(scores, mass), may_add)


def _with_open_draws(scores: Sequence[ContinuationScore], expressions: Expressions) -> GroupProbabilities:
    """As `group_probabilities`, where a share of the drawn answers is open: each of these is one expression at most."""
    known = [replace(score, logprob=score.low, exactness="sampled") for score in scores]
    known_masses = {
        group: math.fsum(drawn_share(score) for score in of_group)
        for group, of_group in _by_group(known, expressions).items()
    }
    coverage = math.fsum(map(drawn_share, known))
    listed = tuple((group, tuple(words)) for group, words in expressions.items())
    return with_open_answers(known_masses, coverage, scores, _counted_by(listed))


@functools.lru_cache(maxsize=64)
def _counted_by(listed: tuple[tuple[str, tuple[str, ...]], ...]) -> Sequence[_Counts]:
    """For each expression: how often an answer that is this one counts, as an answer counts for all that begin it."""
    words = dict.fromkeys(word for _, of_group in listed for word in of_group)
    return [
        (
            {group: sum(begins_with_words(word, one) for one in of_group) for group, of_group in listed},
            sum(begins_with_words(word, one) for one in words),
        )
        for word in words
    ]


def weighted_share(masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]) -> IdentifiedInterval:
    """Σ weight · mass / Σ mass, with sharp bounds given those of the masses.

    A single weight of 1 gives a group's share; 1 and -1 give the difference of two. The sum is an average of the
    weights, weighted by the masses. It is largest when the masses above some weight are at their upper bounds and the
    others at their lower ones. These bounds are tighter than those of separate shares. If nothing is known, it lies
    between the smallest and the largest weight.
    """
    of = {group: weights.get(group, 0.0) for group in masses}
    values = {group: mass.value for group, mass in masses.items() if mass.value is not None}
    value = None
    if len(values) == len(masses) and (total := math.fsum(values.values())) > 0:
        value = math.fsum([of[group] * (mass / total) for group, mass in values.items()])
        if _all_exact(masses.values()):  # the usual case, for every item of a run: no bounds to compute
            return IdentifiedInterval.exact(value)
    rising = sorted(masses, key=of.__getitem__)
    low, high = _least_average(rising, masses, of), _most_average(rising, masses, of)
    return _number(low, value, high, exact=False)


def _least_average(
    rising: Sequence[str], masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]
) -> float:
    """The smallest average of the weights; ``rising``: the groups by ascending weight."""
    found = []
    for turn in range(len(rising) + 1):
        at = [masses[g].high for g in rising[:turn]] + [masses[g].low for g in rising[turn:]]
        if (total := math.fsum(at)) > 0:
            found.append(math.fsum(weights[g] * mass for g, mass in zip(rising, at, strict=True)) / total)
    return min(found, default=weights[rising[0]])


def _most_average(
    rising: Sequence[str], masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]
) -> float:
    return -_least_average(rising[::-1], masses, {group: -weight for group, weight in weights.items()})


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
    exact = [s.logprob for s in scores if s.logprob is not None and s.low == s.logprob == s.high]
    if len(exact) == len(scores):  # the usual case: without a number with bounds for each
        return IdentifiedInterval.exact(math.fsum([math.exp(logprob - shift) for logprob in exact]))
    parts = [_probability(score, shift) for score in scores]
    values = [part.value for part in parts if part.value is not None]
    low, high = math.fsum(part.low for part in parts), math.fsum(part.high for part in parts)
    return _number(low, math.fsum(values) if len(values) == len(parts) else None, high, exact=_all_exact(parts))


def _probability(score: ContinuationScore, shift: float) -> IdentifiedInterval:
    """One probability, divided by exp(shift); for drawn answers their share, which is unbiased.

    The error of such a share is sampling error: it varies between items, is part of every interval over items, and
    averages out. It is not a bound within which the probability could lie on all items at once.
    """
    if score.exactness == "sampled":
        return IdentifiedInterval.exact(drawn_share(score, shift))
    low = 0.0 if score.low is None else math.exp(score.low - shift)
    value = None if score.logprob is None else math.exp(score.logprob - shift)
    return _number(low, value, math.exp(score.high - shift), exact=score.low == score.logprob == score.high)


def total_probability(scores: Sequence[ContinuationScore]) -> IdentifiedInterval:
    """The total probability of texts of which none begins another, only bounded where that of one is."""
    if all(score.exactness != "bounded" for score in scores):
        return IdentifiedInterval.exact(math.fsum(map(drawn_share, scores)))
    parts = [_probability(score, 0.0) for score in scores]
    low, high = math.fsum(part.low for part in parts), math.fsum(part.high for part in parts)
    return IdentifiedInterval(None, low, min(high, max(1.0, low)))


def drawn_share(score: ContinuationScore, shift: float = 0.0) -> float:
    """The share of drawn answers that begin with this continuation, divided by exp(shift)."""
    return 0.0 if score.logprob is None else math.exp(score.logprob - shift)


def _number(low: float, value: float | None, high: float, *, exact: bool) -> IdentifiedInterval:
    """A number whose bounds equal its value if it is exact, and otherwise enclose it despite rounding."""
    if exact and value is not None:
        return IdentifiedInterval.exact(value)
    inner = (low, high) if value is None else (low, value, high)
    return IdentifiedInterval(value, min(inner), max(inner))


def _all_exact(numbers: Collection[IdentifiedInterval]) -> bool:
    return len(numbers) == len([n for n in numbers if n.low == n.value == n.high])


def _by_group(scores: Sequence[ContinuationScore], expressions: Expressions) -> dict[str, Sequence[ContinuationScore]]:
    """Each group's scores; a spelling that is listed twice counts twice, as in the released list of Mattern et al."""
    spellings = list(dict.fromkeys([e for words in expressions.values() for e in words]))
    if len(scores) != len(spellings):
        raise ValueError(f"{len(scores)} scores for {len(spellings)} expressions")
    score_of = dict(zip(spellings, scores, strict=True))
    return {group: [score_of[e] for e in words] for group, words in expressions.items()}


def exclusive(scores: Sequence[ContinuationScore]) -> list[ContinuationScore]:
    """The scores without those whose tokens begin with all of another one's.

    If each digit is a token, " 10" begins with the tokens of " 1", whose probability already includes it. Texts
    that begin with each other but are tokenised differently are mutually exclusive. If a server reports no tokens,
    nothing is left out: such scores are upper bounds, and adding them up is safe. A score with a lower bound is not
    left out for a mere upper bound either, which may cover the first tokens alone.
    """
    if max([len(score.tokens) for score in scores], default=0) < 2:
        return list(scores)
    paths = [token_path(score) for score in scores]
    reported = set(paths) - {()}
    with_lower_bound = {path for score, path in zip(scores, paths, strict=True) if score.low is not None} - {()}
    return [
        score
        for score, path in zip(scores, paths, strict=True)
        if not any(path[:n] in (reported if score.low is None else with_lower_bound) for n in range(1, len(path)))
    ]


def token_path(score: ContinuationScore) -> tuple[tuple[str, int, int | str], ...]:
    """What distinguishes one token sequence from another; empty if the first token is not reported."""
    if not score.tokens or score.tokens[0].start > 0:
        return ()
    return tuple((score.boundary, t.start, t.text if t.token_id is None else t.token_id) for t in score.tokens)
