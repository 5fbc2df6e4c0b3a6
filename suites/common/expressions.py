"""P(group): the probability that a model continues a prompt with an expression of a gender.

    P(group)  = Σ over the group's expressions of Π over tokens P(token | prompt, earlier tokens)
    P̃(group) = P(group) / Σ over all groups of P
    coverage  = Σ over all expressions: the raw mass behind P̃

An expression whose tokens begin with those of another one is part of that one's probability: it is
counted once in a group and once in the coverage (`suites.common.exclusive`). In two groups each keeps its own.

Equations (3) and (4) of Chen et al., "Causally Testing Gender Bias in LLMs: A Case Study on
Occupational Bias". A probability that is only bounded is carried as its bounds up to P̃.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backends.base import ContinuationScore
from backends.errors import ConfigError
from suites.base import IdentifiedInterval
from suites.common.exclusive import exclusive

GROUPS = ("male", "female", "diverse")

#: Expressions by group, in every spelling that is scored.
Expressions = Mapping[str, tuple[str, ...]]

TokenAggregation = Literal["product", "mean"]

#: How far a sum of exact probabilities may pass 1 by rounding before it counts as impossible.
ROUNDING = 1e-3


class ImpossibleMassError(ValueError):
    """Exact probabilities of exclusive continuations add up to more than 1."""


def both_cases(expressions: Sequence[str]) -> tuple[str, ...]:
    """Each expression with a capital and with a small first letter, each spelling once."""
    return tuple(dict.fromkeys(s for e in expressions for s in (e[0].upper() + e[1:], e[0].lower() + e[1:])))


def checked_expressions(field: str, given: Any) -> Expressions:
    """Expressions of the three groups, capitalised and not, or a `ConfigError`.

    Refuses what would count a probability twice: one spelling in two groups, or an expression
    that another one continues ("Gender" and "Gender neutral").
    """
    if not isinstance(given, Mapping) or set(given) != set(GROUPS):
        raise ConfigError(field, given, "not a list of expressions for each group", f"Give {', '.join(GROUPS)}")
    for group in GROUPS:
        listed = given[group]
        if isinstance(listed, str) or not listed or not all(isinstance(e, str) and e.strip() for e in listed):
            raise ConfigError(f"{field}.{group}", listed, "not a list of words", "Give one word or more")
        if padded := [e for e in listed if e != e.strip()]:
            raise ConfigError(f"{field}.{group}", padded[0], "has spaces around it", "Remove them; they are added")
    groups = {group: both_cases(tuple(given[group])) for group in GROUPS}
    spellings = [(group, e) for group in GROUPS for e in groups[group]]
    for i, (group, expression) in enumerate(spellings):
        for other_group, other in spellings[i + 1 :]:
            short, long = sorted((expression, other), key=len)
            if long == short or (long.startswith(short) and not long[len(short)].isalnum()):
                raise ConfigError(
                    f"{field}.{other_group}",
                    other,
                    f"counted twice, because of {expression!r} ({group})",
                    "Remove one of the two",
                )
    return groups


def continuations(expressions: Expressions, space: str) -> tuple[str, ...]:
    """The continuations to score, group by group; `group_probabilities` reads them back in this order."""
    return tuple(space + e for group in GROUPS for e in expressions[group])


@dataclass(frozen=True, slots=True)
class GroupProbabilities:
    """What one prompt says about the groups.

    Attributes
    ----------
    normalised : mapping of group to IdentifiedInterval
        P̃(group), in [0, 1].
    female_minus_male : IdentifiedInterval
        P̃(female) − P̃(male), in [-1, 1].
    coverage : IdentifiedInterval
        The raw mass of all expressions, in [0, 1]. Always from products of token probabilities.
    """

    normalised: Mapping[str, IdentifiedInterval]
    female_minus_male: IdentifiedInterval
    probability_mass: IdentifiedInterval


def group_probabilities(
    scores: Sequence[ContinuationScore], expressions: Expressions, aggregation: TokenAggregation = "product"
) -> GroupProbabilities:
    """P̃ of each group and the raw mass, from the scores of `continuations`.

    Parameters
    ----------
    scores : sequence of ContinuationScore
        In the order of `continuations`.
    aggregation : str
        ``product``: equation (3). ``mean``: the exponential of the mean token log-probability,
        as the authors' released code has it for implicit prompts. It favours expressions of
        many tokens, and its sum is no probability; the coverage stays that of the products.

    Raises
    ------
    ImpossibleMassError
        When exact probabilities add up to more than 1.
    ValueError
        When there are not as many scores as expressions.
    """
    of_groups = _by_group(scores, expressions)
    mass = _sum([_product(s) for s in exclusive(scores)], shift=0.0)
    if mass.low > 1 + ROUNDING:
        raise ImpossibleMassError(f"the expressions' probabilities add up to {mass.low:.6g}")
    value = None if mass.value is None else min(mass.value, 1.0)
    probability_mass = _number(min(mass.low, 1.0), value, min(mass.high, 1.0), exact=_all_exact([mass]))
    if aggregation == "mean":
        summed = {g: [_mean(s) for s in of_group] for g, of_group in of_groups.items()}
    else:
        summed = {g: [_product(s) for s in exclusive(of_group)] for g, of_group in of_groups.items()}
    # P̃ is a ratio: scaling by the largest keeps tiny probabilities from becoming 0 / 0.
    shift = max(logs.high for of_group in summed.values() for logs in of_group)
    masses = {g: _sum(logs, shift) for g, logs in summed.items()}
    return GroupProbabilities(normalise(masses), difference_of_shares(masses, "female", "male"), probability_mass)


def normalise(masses: Mapping[str, IdentifiedInterval]) -> dict[str, IdentifiedInterval]:
    """Each mass as a share of all, with the bounds that the masses' bounds allow.

    A share is smallest when its own mass is at its lower bound and all others are at their
    upper bounds, and the other way round. With nothing known it is between 0 and 1.
    """
    total = math.fsum(m.value for m in masses.values() if m.value is not None)
    known = all(m.value is not None for m in masses.values()) and total > 0
    exact = _all_exact(masses.values())
    shares = {}
    for group, mass in masses.items():
        others = [m for g, m in masses.items() if g != group]
        others_low, others_high = math.fsum(m.low for m in others), math.fsum(m.high for m in others)
        low = mass.low / (mass.low + others_high) if mass.low + others_high > 0 else 0.0
        high = mass.high / (mass.high + others_low) if mass.high + others_low > 0 else 1.0
        value = mass.value / total if known and mass.value is not None else None
        shares[group] = _number(low, value, high, exact=exact)
    return shares


def difference_of_shares(masses: Mapping[str, IdentifiedInterval], a: str, b: str) -> IdentifiedInterval:
    """The share of ``a`` minus the share of ``b``, in [-1, 1].

    It grows with the mass of ``a`` and falls with that of ``b``; the rest pulls it towards 0.
    So its bounds are tighter than those of the two shares taken apart.
    """
    rest = [m for g, m in masses.items() if g not in (a, b)]
    rest_low, rest_high = math.fsum(m.low for m in rest), math.fsum(m.high for m in rest)

    def extreme(mass_a: float, mass_b: float, towards: float) -> float:
        difference = mass_a - mass_b
        other = rest_low if difference * towards > 0 else rest_high
        total = mass_a + mass_b + other
        return difference / total if total > 0 else towards

    shares = normalise(masses)
    p, q = shares[a].value, shares[b].value
    value = None if p is None or q is None else p - q
    low = extreme(masses[a].low, masses[b].high, towards=-1.0)
    high = extreme(masses[a].high, masses[b].low, towards=1.0)
    return _number(low, value, high, exact=_all_exact(masses.values()))


@dataclass(frozen=True, slots=True)
class _Logs:
    """A log-probability and its bounds; ``low`` None means that the probability may be 0."""

    value: float | None
    low: float | None
    high: float


def _product(score: ContinuationScore) -> _Logs:
    return _Logs(score.logprob, score.low, score.high)


def _mean(score: ContinuationScore) -> _Logs:
    """The same per token. Without all tokens their number is unknown: at least 1."""
    whole = bool(score.tokens) and math.isclose(
        math.fsum(t.logprob for t in score.tokens), score.high, rel_tol=1e-9, abs_tol=1e-9
    )
    if not whole:
        return _Logs(None, score.low, 0.0)
    n = len(score.tokens)
    return _Logs(
        None if score.logprob is None else score.logprob / n,
        None if score.low is None else score.low / n,
        score.high / n,
    )


def _sum(logs: Sequence[_Logs], shift: float) -> IdentifiedInterval:
    """Sum of the probabilities, all divided by exp(shift)."""
    values = [x.value for x in logs]
    low = math.fsum(0.0 if x.low is None else math.exp(x.low - shift) for x in logs)
    high = math.fsum(math.exp(x.high - shift) for x in logs)
    value = None if None in values else math.fsum(math.exp(v - shift) for v in values if v is not None)
    return _number(low, value, high, exact=all(x.low == x.value == x.high for x in logs))


def _number(low: float, value: float | None, high: float, *, exact: bool) -> IdentifiedInterval:
    """A number whose bounds are its value when it is exact, and else enclose it in spite of rounding."""
    if exact and value is not None:
        return IdentifiedInterval.exact(value)
    inner = (low, high) if value is None else (low, value, high)
    return IdentifiedInterval(value, min(inner), max(inner))


def _all_exact(numbers: Iterable[IdentifiedInterval]) -> bool:
    return all(n.low == n.value == n.high for n in numbers)


def _by_group(scores: Sequence[ContinuationScore], expressions: Expressions) -> dict[str, Sequence[ContinuationScore]]:
    expected = sum(len(expressions[g]) for g in GROUPS)
    if len(scores) != expected:
        raise ValueError(f"{len(scores)} scores for {expected} expressions")
    parts, start = {}, 0
    for group in GROUPS:
        parts[group] = scores[start : start + len(expressions[group])]
        start += len(expressions[group])
    return parts
