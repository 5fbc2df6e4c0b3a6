"""One model's answers to one suite, parsed into rows as they arrive."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from audit.analysis.estimators import Floats
from audit.analysis.self_check import within_noise
from audit.results import NOT_ASKED, writable
from backends.base import Answer, Boundary, ScoreResponse
from backends.errors import BackendError
from suites.base import Factor, Item, Row, Suite

#: Rows are ordered in blocks of this many items, each followed by its follow-ups; this fixes the order of summation.
_BLOCK = 512

Place = tuple[int, ...]
"""An item's position: (5,) is the suite's sixth item, (5, 0) its first follow-up."""

Straddled = Literal["no", "in part", "all"]
"""How many of an item's continuations share a token with the prompt."""

_reading = threading.Lock()  # models are asked concurrently, and suites need not be thread-safe


@dataclass(frozen=True, slots=True)
class ItemResponse:
    """What is kept of the answer to one item.

    ``failure`` says why there is no answer; None if there is one. ``logprobs`` (k,) are those of the continuations, NaN
    if not exact; None unless requested.
    """

    item_id: str
    factors: Mapping[str, Factor]
    keys: tuple[str, ...]
    row: Row
    failure: str | None = None
    merged: bool = False
    straddled: Straddled = "no"
    logprobs: Floats | None = None


class Responses:
    """Collects one model's answers to one suite in any order; gives rows in the items' order.

    Parameters
    ----------
    suite : Suite
        Reads the answers.
    keep_logprobs : bool
        Whether to keep the continuations' log-probabilities, to compare engines.

    Attributes
    ----------
    noise : float
        Nats by which the model's scores are known to vary: answers are read as intervals at least that wide.
    hidden : float
        The probability by which unlisted continuations may exceed their bounds.
    """

    def __init__(self, suite: Suite, *, keep_logprobs: bool = False) -> None:
        self.suite = suite
        self._keep_logprobs = keep_logprobs
        self.noise, self.hidden = 0.0, 0.0
        self._found: dict[Place, ItemResponse] = {}

    def record(self, place: Place, item: Item, keys: tuple[str, ...], answer: Answer | None) -> Iterable[Item]:
        """Parse the answer to one item, replacing an earlier one; None if it was never asked.

        Returns the questions that follow from the answer.
        """
        if answer is None or isinstance(answer, BackendError):
            reason = NOT_ASKED if answer is None else answer.kind
            self._found[place] = _unanswered(item.id, item.factors, keys, reason)
            return ()
        with _reading:
            row = _writable(self.suite.read(item, within_noise(answer, self.noise, self.hidden)))
            follow_ups = tuple(self.suite.follow_ups(item, answer))
        boundaries = [score.boundary for score in answer.scores] if isinstance(answer, ScoreResponse) else []
        self._found[place] = ItemResponse(
            item.id,
            item.factors,
            keys,
            row,
            merged="merged" in boundaries,
            straddled=_straddled(boundaries),
            logprobs=exact_logprobs(answer) if self._keep_logprobs and isinstance(answer, ScoreResponse) else None,
        )
        return follow_ups

    def is_answered(self, place: Place) -> bool:
        """Whether the item at this position has an answer."""
        return self._found[place].failure is None

    @property
    def unanswered(self) -> int:
        """How many items have no answer."""
        return sum(found.failure is not None for found in self._found.values())

    def held(self, keys: Collection[str]) -> dict[str, int]:
        """Those of ``keys`` that belong to items here, with how many answers such an item has."""
        return {key: len(found.keys) for found in list(self._found.values()) for key in found.keys if key in keys}

    def retract(self, keys: Collection[str]) -> list[Place]:
        """Discard the answers under ``keys``: their items count as not asked, and follow-ups are dropped.

        Returns the positions of these items.
        """
        keys = set(keys)
        places = [place for place, found in list(self._found.items()) if not keys.isdisjoint(found.keys)]
        for place in places:
            found = self._found[place]
            self._found[place] = _unanswered(found.item_id, found.factors, found.keys, NOT_ASKED)
        retracted = set(places)
        for place in list(self._found):
            if any(place[:depth] in retracted for depth in range(1, len(place))):
                del self._found[place]
        return places

    def parsed(self) -> ParsedResponses:
        """All responses in the items' order, with the rows that the suite derives."""
        return ParsedResponses(self.suite, {place: self._found[place] for place in sorted(self._found, key=_in_blocks)})


class ParsedResponses:
    """One model's answers to one suite, complete.

    Attributes
    ----------
    rows : list of Row
        One per item, and those that the suite derives from them.
    by_item : mapping of str to ItemResponse
        In the items' order.
    places : mapping of str to Place
        The position of each item.
    failures : Counter
        Items without an answer, by reason.
    """

    def __init__(self, suite: Suite, found: Mapping[Place, ItemResponse]) -> None:
        self.suite = suite
        self.by_item = {response.item_id: response for response in found.values()}
        self.places = {response.item_id: place for place, response in found.items()}
        self.failures = Counter(response.failure for response in found.values() if response.failure is not None)
        self.rows = list(suite.derive([response.row for response in found.values()]))

    def logprobs(self) -> dict[str, Floats]:
        """Log-probabilities (k,) of each scored item's continuations, if they were kept."""
        return {item: found.logprobs for item, found in self.by_item.items() if found.logprobs is not None}


def exact_logprobs(response: ScoreResponse) -> Floats:
    """Natural log-probabilities (k,) of the continuations; NaN if only bounded."""
    return np.array([math.nan if s.exactness != "exact" or s.logprob is None else s.logprob for s in response.scores])


def _unanswered(item_id: str, factors: Mapping[str, Factor], keys: tuple[str, ...], reason: str) -> ItemResponse:
    return ItemResponse(item_id, factors, keys, Row(item_id, factors, {}, missing=reason), failure=reason)


def _straddled(boundaries: Collection[Boundary]) -> Straddled:
    if "straddled" not in boundaries:
        return "no"
    return "all" if set(boundaries) == {"straddled"} else "in part"


def _writable(row: Row) -> Row:
    """The row; why it is missing may quote the model, which may write half a character that no file can hold."""
    if row.missing is None or row.missing.isascii():
        return row
    return replace(row, missing=writable(row.missing))


def _in_blocks(place: Place) -> tuple[int, int, Place]:
    return place[0] // _BLOCK, len(place), place
