"""The probability mass of each group's expressions, none of which counts twice.

A continuation counts for the longest expression that it begins with: the probability of "profesora" is not part of
"profesor", although every text that starts with the former starts with the latter. So

    mass(expression) = P(expression) − Σ P(the expressions that continue it)

whatever group they belong to, if the tokens of the longer one begin with those of the shorter.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

from backends.base import ContinuationScore
from backends.reading.words import comparable, is_word_character
from suites.base import IdentifiedInterval
from suites.common.expressions import Expressions
from suites.common.probabilities import (
    ROUNDING,
    GroupProbabilities,
    ImpossibleMassError,
    drawn_answers,
    drawn_share,
    open_share,
    token_path,
    with_open_answers,
)


def refuse_double(expressions: Mapping[str, Sequence[str]], refusal: Callable[[str, str, str, str], Exception]) -> None:
    """Refuse an expression in two groups, and one that another group's continues.

    "Gender" and "Gender neutral" share the texts that begin with both words. A continuation without a space, such as
    "profesora" of "profesor", does not make the shorter one ambiguous: each text counts for the longest.
    ``refusal`` makes the error from group, expression, problem and hint.
    """
    spelled = [(group, comparable(word)) for group, words in expressions.items() for word in words]
    for (group, word), (other_group, other) in permutations(spelled, 2):
        if group == other_group:
            continue
        if word == other:
            problem = f"also an expression of {group!r}: its probability would count for both"
            raise refusal(other_group, other, problem, "Remove one of the two")
        if other.startswith(word) and not is_word_character(other[len(word)]):
            problem = f"continues {word!r} of {group!r}: a model that says the latter may go on to the former"
            raise refusal(other_group, other, problem, "Remove one of the two")


def without_spaces(character: str) -> bool:
    """Whether a letter belongs to a script without spaces between words."""
    return unicodedata.name(character, "").startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER"))


def read_groups(scores: Sequence[ContinuationScore], expressions: Expressions) -> GroupProbabilities:
    """The groups' masses from the scores of `suites.common.expressions.continuations`.

    Raises `ImpossibleMassError` if exact probabilities add up to more than 1, or a longer expression is likelier
    than its beginning.
    """
    spellings = list(dict.fromkeys(word for words in expressions.values() for word in words))
    if open_share(scores):
        return _with_open_draws(scores, expressions, spellings)
    shift = max(score.high for score in scores)
    masses = dict(zip(spellings, _own_masses(scores, spellings, shift), strict=True))
    total = IdentifiedInterval.total([*masses.values()])
    scale = math.exp(shift)
    if total.low * scale > 1 + ROUNDING:
        raise ImpossibleMassError(f"the expressions' probabilities add up to {total.low * scale:.6g}")
    value = None if total.value is None else min(1.0, total.value * scale)
    coverage = IdentifiedInterval(value, min(1.0, total.low * scale), min(1.0, total.high * scale))
    of_groups = {
        group: IdentifiedInterval.total([masses[word] for word in words]) for group, words in expressions.items()
    }
    return GroupProbabilities(of_groups, coverage, drawn_answers(scores, coverage))


def _with_open_draws(
    scores: Sequence[ContinuationScore], expressions: Expressions, spellings: Sequence[str]
) -> GroupProbabilities:
    """The groups' masses where some draws are open: each is one expression at most, however many there are."""
    known = [replace(score, logprob=score.low, exactness="sampled") for score in scores]
    masses = dict(zip(spellings, (mass.low for mass in _drawn_masses(known, spellings, 0.0)), strict=True))
    known_masses = {group: math.fsum(masses[word] for word in words) for group, words in expressions.items()}
    added = [({group: words.count(one) for group, words in expressions.items()}, 1) for one in spellings]
    return with_open_answers(known_masses, math.fsum(masses.values()), scores, added)


def _own_masses(
    scores: Sequence[ContinuationScore], texts: Sequence[str], shift: float
) -> Iterator[IdentifiedInterval]:
    """Each expression's probability without those that continue it, all divided by exp(shift)."""
    paths = [token_path(score) for score in scores]
    if all(score.exactness == "sampled" for score in scores):
        yield from _drawn_masses(scores, texts, shift)
        return
    for place, score in enumerate(scores):
        longer = [
            i for i in range(len(scores)) if i != place and _goes_on(paths[place], paths[i], texts[place], texts[i])
        ]
        # Among those that continue each other, the shortest include the others.
        nearest = [
            i for i in longer if not any(j != i and _goes_on(paths[j], paths[i], texts[j], texts[i]) for j in longer)
        ]
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


def _goes_on(path: tuple[object, ...], longer: tuple[object, ...], text: str, other: str) -> bool:
    """Whether the longer one's tokens begin with the other's; compared by letters if a server reports no tokens."""
    if path and longer:
        return len(path) < len(longer) and longer[: len(path)] == path
    return len(text) < len(other) and other.startswith(text)


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
