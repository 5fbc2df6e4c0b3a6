"""P(group): the probability that a model continues a prompt with an expression of a gender.

    P(group)  = Σ over the group's expressions of Π over tokens P(token | prompt, earlier tokens)
    P̃(group) = P(group) / Σ over all groups of P
    coverage  = Σ over all expressions: the raw mass behind P̃

An expression whose tokens begin with those of another one is part of that one's probability: it is
counted once in a group and once in the coverage (`exclusive`). In two groups each keeps its own.

Where answers are drawn, P(group) is the share of those that begin with one of its expressions, and P̃ its share of those
that begin with any. Given how many do, that is unbiased; of a question where none does, P̃ is unknown.

Equations (3) and (4) of Chen et al., "Causally Testing Gender Bias in LLMs: A Case Study on
Occupational Bias". A probability that is only bounded is carried as its bounds up to P̃.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backends.base import ContinuationScore
from suites.base import UNKNOWN_SHARE, IdentifiedInterval, flag
from suites.common.expressions import Expressions

TokenAggregation = Literal["product", "mean"]

#: How far a sum of exact probabilities may pass 1 by rounding before it counts as impossible.
ROUNDING = 1e-3


class ImpossibleMassError(ValueError):
    """Exact probabilities of exclusive continuations add up to more than 1."""


@dataclass(frozen=True, slots=True)
class GroupProbabilities:
    """What one prompt says about the groups.

    Attributes
    ----------
    masses : mapping of group to IdentifiedInterval
        Of the groups' expressions, all on one scale.
    probability_mass : IdentifiedInterval
        The raw mass of all expressions, in [0, 1]. Always from products of token probabilities.
    """

    masses: Mapping[str, IdentifiedInterval]
    probability_mass: IdentifiedInterval

    @property
    def normalised(self) -> dict[str, IdentifiedInterval]:
        """P̃ of each group, in [0, 1]."""
        return {group: self.contrast({group: 1.0}) for group in self.masses}

    def contrast(self, weights: Mapping[str, float]) -> IdentifiedInterval:
        """Σ over groups of weight · P̃; a group that is not named has the weight 0. See `weighted_share`."""
        return weighted_share(self.masses, weights)


def group_probabilities(
    scores: Sequence[ContinuationScore], expressions: Expressions, aggregation: TokenAggregation = "product"
) -> GroupProbabilities:
    """P̃ of each group and the raw mass, from the scores of `continuations`.

    Parameters
    ----------
    scores : sequence of ContinuationScore
        In the order of `continuations`.
    aggregation : str
        ``product``: equation (3). ``mean``: the exponential of the mean token log-probability. It favours
        expressions of many tokens, and its sum is not a probability; the coverage stays that of the products. The
        authors' released code computes it for implicit prompts, where it makes no difference as long as each pronoun
        is one token; what does is that it keeps one spelling (`suites.occugender.released`).

    Raises
    ------
    ImpossibleMassError
        When exact probabilities add up to more than 1.
    ValueError
        When there are not as many scores as expressions.
    """
    of_groups = _by_group(scores, expressions)
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
    shift = max(score.high for of_group in summed.values() for score in of_group)
    return GroupProbabilities({g: _sum(of_group, shift) for g, of_group in summed.items()}, probability_mass)


def weighted_share(masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]) -> IdentifiedInterval:
    """Σ weight · mass / Σ mass, with the bounds that the masses' bounds allow.

    One weight of 1 is a group's share; 1 and -1 are a difference of two. The sum is an average of the weights, which
    the masses weigh: it is largest where the masses of the largest weights are at their upper bounds and the others at
    their lower ones, from some weight on. These bounds are tighter than those of shares taken apart. With nothing known
    it lies between the smallest and the largest weight.
    """
    of = {group: weights.get(group, 0.0) for group in masses}
    total = math.fsum(m.value for m in masses.values() if m.value is not None)
    value = None
    if total > 0 and all(m.value is not None for m in masses.values()):
        value = math.fsum(of[g] * (m.value / total) for g, m in masses.items() if m.value is not None)
        if _all_exact(masses.values()):  # nearly always, on every item of a run: there are no bounds to work out
            return IdentifiedInterval.exact(value)
    rising = sorted(masses, key=of.__getitem__)
    low, high = _least_average(rising, masses, of), _most_average(rising, masses, of)
    return _number(low, value, high, exact=False)


def _least_average(
    rising: Sequence[str], masses: Mapping[str, IdentifiedInterval], weights: Mapping[str, float]
) -> float:
    """The smallest average of the weights; ``rising``: the groups by their weights."""
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
    """1 where ``a`` is the likelier one, 0 where it is not (a tie), 0 to 1 where the bounds leave it open."""
    if a.low is not None and a.low > b.high:
        return flag(True)
    return flag(False) if b.low is not None and b.low >= a.high else UNKNOWN_SHARE


def per_token(score: ContinuationScore) -> ContinuationScore:
    """The mean log-probability of the tokens. Without all tokens their number is unknown: at least 1."""
    sum_of_tokens = math.fsum(t.logprob for t in score.tokens)
    if not score.tokens or not math.isclose(sum_of_tokens, score.high, rel_tol=1e-9, abs_tol=1e-9):
        return ContinuationScore(None, score.low, 0.0, "bounded")
    n = len(score.tokens)
    return ContinuationScore(
        None if score.logprob is None else score.logprob / n,
        None if score.low is None else score.low / n,
        score.high / n,
        "bounded",
    )


def _sum(scores: Sequence[ContinuationScore], shift: float) -> IdentifiedInterval:
    """Sum of the probabilities, all divided by exp(shift)."""
    parts = [_probability(score, shift) for score in scores]
    values = [part.value for part in parts if part.value is not None]
    low, high = math.fsum(part.low for part in parts), math.fsum(part.high for part in parts)
    return _number(low, math.fsum(values) if len(values) == len(parts) else None, high, exact=_all_exact(parts))


def _probability(score: ContinuationScore, shift: float) -> IdentifiedInterval:
    """One probability, divided by exp(shift); of drawn answers their share, which is unbiased.

    How far that share may be off is sampling error: it varies from item to item, and so is part of every interval
    over items, where it averages out. It is no bound within which the probability could be on all items alike.
    """
    if score.exactness == "sampled":
        return IdentifiedInterval.exact(drawn_share(score, shift))
    low = 0.0 if score.low is None else math.exp(score.low - shift)
    value = None if score.logprob is None else math.exp(score.logprob - shift)
    return _number(low, value, math.exp(score.high - shift), exact=score.low == score.logprob == score.high)


def drawn_share(score: ContinuationScore, shift: float = 0.0) -> float:
    """The share of drawn answers that begin with this continuation, divided by exp(shift)."""
    return 0.0 if score.logprob is None else math.exp(score.logprob - shift)


def _number(low: float, value: float | None, high: float, *, exact: bool) -> IdentifiedInterval:
    """A number whose bounds are its value when it is exact, and otherwise enclose it despite rounding."""
    if exact and value is not None:
        return IdentifiedInterval.exact(value)
    inner = (low, high) if value is None else (low, value, high)
    return IdentifiedInterval(value, min(inner), max(inner))


def _all_exact(numbers: Iterable[IdentifiedInterval]) -> bool:
    return all(n.low == n.value == n.high for n in numbers)


def _by_group(scores: Sequence[ContinuationScore], expressions: Expressions) -> dict[str, Sequence[ContinuationScore]]:
    """Each group's scores; a spelling that is listed twice counts twice, as in the released list of Mattern et al."""
    spellings = list(dict.fromkeys(e for words in expressions.values() for e in words))
    if len(scores) != len(spellings):
        raise ValueError(f"{len(scores)} scores for {len(spellings)} expressions")
    score_of = dict(zip(spellings, scores, strict=True))
    return {group: [score_of[e] for e in words] for group, words in expressions.items()}


def exclusive(scores: Sequence[ContinuationScore]) -> list[ContinuationScore]:
    """The scores without those whose tokens begin with all of another one's.

    Where digits are tokens of their own, " 1" begins " 10", and its probability holds that of " 10"
    already. Texts that begin each other in other tokens exclude each other all the same. Where a server
    reports no tokens, nothing is left out: such scores are upper bounds, and adding those up is safe. Nor is
    a score with a lower bound left out for a mere upper bound, which may be that of the first tokens alone.
    """
    paths = [token_path(score) for score in scores]
    reported = set(paths) - {()}
    with_lower_bound = {path for score, path in zip(scores, paths, strict=True) if score.low is not None} - {()}
    return [
        score
        for score, path in zip(scores, paths, strict=True)
        if not any(path[:n] in (reported if score.low is None else with_lower_bound) for n in range(1, len(path)))
    ]


def token_path(score: ContinuationScore) -> tuple[tuple[str, int, int | str], ...]:
    """What distinguishes one token sequence from another; empty where the first token is not reported."""
    if not score.tokens or score.tokens[0].start > 0:
        return ()
    return tuple((score.boundary, t.start, t.text if t.token_id is None else t.token_id) for t in score.tokens)
