"""How much an item's value varies between sets of drawn answers, and how often a set has no value, by their number.

A pilot stores, for each question, the share of drawn answers that begin with each continuation. New sets of answers are
drawn from these shares and read by the suite, so that whatever it computes from them is known with its error. The
variance within the drawn shares is (M - 1) / M of that within the model's own probabilities (M: draws of the pilot),
and is divided by that. How many questions fewer draws would leave without a value is estimated from parts of the
pilot's own draws, which is unbiased; more draws leave at most as many as M do.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from audit.analysis.estimators import Codes, Floats
from audit.collect import items_behind
from audit.store import Store, Stored, keyed
from backends.base import ContinuationScore, ScoreRequest, ScoreResponse
from backends.reading.words import begins_with_words
from suites.base import Item, MeasureSpec, Suite

#: Items that are redrawn, and sets of answers for each.
_ITEMS, _SETS = 100, 8


class DrawError(NamedTuple):
    """What this many draws of a question leave open.

    ``within`` is the variance of an item's value between such sets of draws, the mean over items; ``missing`` the
    share of items without a value, as no answer named a group.
    """

    draws: int
    within: float
    missing: float


class DrawnItem(NamedTuple):
    """An item with the shares of its drawn answers. ``draws``: how many were drawn."""

    item: Item
    answer: ScoreResponse
    draws: int


def drawn_items(items: Iterable[Item], store: Store, fingerprint: str) -> Iterator[DrawnItem]:
    """Those items that a model answered by drawn answers, all of which came."""
    scored = [item for item in items if isinstance(item.request, ScoreRequest)]
    found = store.answers.read([keyed(item.request, fingerprint) for item in scored])
    for item, stored in zip(scored, found, strict=True):
        answer = stored.answer if isinstance(stored, Stored) else None
        if isinstance(answer, ScoreResponse) and all(score.exactness == "sampled" for score in answer.scores):
            yield DrawnItem(item, answer, answer.scores[0].samples or 0)


def draw_errors(suite: Suite, spec: MeasureSpec, drawn: Sequence[DrawnItem], draws: Sequence[int]) -> list[DrawError]:
    """The errors of these numbers of draws, for a mean of the suite's items; empty if it is of derived rows.

    ``drawn``: items of a pilot with two draws or more each.
    """
    behind = {item.id for item in items_behind([one.item for one in drawn], spec)}
    used = [one for one in drawn if one.item.id in behind and one.draws > 1]
    random = np.random.default_rng(0)
    used = used[:: max(1, len(used) // _ITEMS)]
    if not used or spec.quantity not in suite.read(used[0].item, used[0].answer).values:
        return []
    variances: dict[int, list[float]] = {number: [] for number in draws}
    missing: dict[int, list[float]] = {number: [] for number in draws}
    for one in used:
        probabilities, counts_for = _probabilities(one)
        without_value: dict[int, float] = {}

        def values(sets: Codes, number: int, one: DrawnItem = one, counts_for: Floats = counts_for) -> list[float]:
            answers = (_answer(one.answer, of_set, number) for of_set in sets[:, :-1] @ counts_for.T)
            read = (suite.read(one.item, answer).values[spec.quantity].value for answer in answers)
            return [value for value in read if value is not None]

        for number in draws:
            known = values(random.multinomial(number, probabilities, _SETS), number)
            if len(known) > 1:
                variances[number].append(float(np.var(known, ddof=1)) * one.draws / (one.draws - 1))
            part = min(number, one.draws)
            if part not in without_value:
                drawn_once = np.rint(probabilities * one.draws).astype(np.int64)
                sets = random.multivariate_hypergeometric(drawn_once, min(part, int(drawn_once.sum())), _SETS)
                without_value[part] = 1 - len(values(sets, part)) / _SETS
            missing[number].append(without_value[part])
    return [
        DrawError(number, float(np.mean(of)) if of else math.inf, float(np.mean(missing[number])))
        for number, of in variances.items()
    ]


def _probabilities(one: DrawnItem) -> tuple[Floats, Floats]:
    """The probabilities (k + 1,) of the answers to an item that begin with each of its k continuations and with no
    longer one, the last of all other answers; and which of them count for each continuation (k, k).

    An answer that begins with "Gender neutral" begins with "Gender" too.
    """
    counts_for = _counts_for(one.item.request.continuations)  # type: ignore[union-attr]
    shares = np.array([0.0 if score.logprob is None else math.exp(score.logprob) for score in one.answer.scores])
    apart = np.clip(np.linalg.lstsq(counts_for, shares, rcond=None)[0], 0.0, 1.0)
    rest = max(1.0 - float(apart.sum()), 0.0)
    return np.append(apart, rest) / (float(apart.sum()) + rest), counts_for


@functools.lru_cache(maxsize=64)
def _counts_for(words: tuple[str, ...]) -> Floats:
    return np.array([[begins_with_words(longer, word) for longer in words] for word in words], dtype=float)


def _answer(answer: ScoreResponse, counts: Floats, draws: int) -> ScoreResponse:
    return ScoreResponse(
        tuple(_of_count(score, count, draws) for score, count in zip(answer.scores, counts.tolist(), strict=True))
    )


def _of_count(score: ContinuationScore, count: float, draws: int) -> ContinuationScore:
    share = math.log(min(count / draws, 1.0)) if count > 0.5 else None
    return dataclasses.replace(score, logprob=share, low=share, high=share or 0.0, samples=draws)
