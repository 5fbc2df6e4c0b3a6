"""One model's answers to one suite, parsed into rows as they arrive.

Rows are ordered in blocks of items, each followed by its follow-ups; this fixes the order of summation.
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from audit.analysis.rows.item_index import positions_of
from audit.analysis.rows.packed import PackedRows
from audit.analysis.rows.response_blocks import BlockReader, ItemResponse, PackedBlock, Place, ResponseBlocks, Straddled
from audit.analysis.self_check import within_noise
from audit.analysis.table import Floats
from audit.results import NOT_ASKED, writable
from audit.spool import Spool
from backends.base import Answer, Boundary, ScoreResponse
from backends.errors import BackendError
from suites.base import Factor, Item, Row, Suite

_reading = threading.Lock()  # models are asked concurrently, and suites need not be thread-safe


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
    """

    def __init__(self, suite: Suite, *, keep_logprobs: bool = False) -> None:
        self.suite = suite
        self._keep_logprobs = keep_logprobs
        self.noise = 0.0
        self._found = ResponseBlocks()

    def record(self, place: Place, item: Item, keys: tuple[str, ...], answer: Answer | None) -> Iterable[Item]:
        """Parse the answer to one item, replacing an earlier one; None if it was never asked.

        Returns the questions that follow from the answer.
        """
        if answer is None or isinstance(answer, BackendError):
            reason = NOT_ASKED if answer is None else answer.kind
            self._found.put(place, _unanswered(item.id, item.factors, keys, reason))
            return ()
        with _reading:
            row = _writable(self.suite.read(item, within_noise(answer, self.noise)))
            follow_ups = tuple(self.suite.follow_ups(item, answer))
        boundaries = [score.boundary for score in answer.scores] if isinstance(answer, ScoreResponse) else []
        logprobs = exact_logprobs(answer) if self._keep_logprobs and isinstance(answer, ScoreResponse) else None
        straddled = _straddled(boundaries)
        self._found.put(
            place, ItemResponse(item.id, item.factors, keys, row, None, "merged" in boundaries, straddled, logprobs)
        )
        return follow_ups

    def is_answered(self, place: Place) -> bool:
        """Whether the item at this position has an answer."""
        return self._found[place].failure is None

    @property
    def unanswered(self) -> int:
        """How many items have no answer."""
        return sum(found.failure is not None for _, found in self._found)

    def held(self, keys: Collection[str]) -> dict[str, int]:
        """Those of ``keys`` that belong to items here, with how many answers such an item has."""
        if not keys:
            return {}
        return {key: len(found.keys) for _, found in self._found for key in found.keys if key in keys}

    def retract(self, keys: Collection[str]) -> list[Place]:
        """Discard the answers under ``keys``: their items count as not asked, and follow-ups are dropped.

        Returns the positions of these items.
        """
        keys = set(keys)
        if not keys:
            return []
        asked = {place: found for place, found in self._found if not keys.isdisjoint(found.keys)}
        dropped = [place for place, _ in self._found if any(place[:depth] in asked for depth in range(1, len(place)))]
        for place, found in asked.items():
            self._found.put(place, _unanswered(found.item_id, found.factors, found.keys, NOT_ASKED))
        self._found.remove(dropped)
        return list(asked)

    def parsed(self, like: ParsedResponses | None = None) -> ParsedResponses:
        """All responses in the items' order, with the rows that the suite derives.

        ``like``: another model's answers to the same items, whose index is shared where it is equal.
        """
        return ParsedResponses(self.suite, self._found.spool, self._found.packed(), like)


class ParsedResponses:
    """One model's answers to one suite, complete.

    Attributes
    ----------
    rows : sequence of Row
        One per item, and those that the suite derives from them.
    by_item : mapping of str to ItemResponse
        In the items' order.
    failures : Counter
        Items without an answer, by reason.
    merged, straddled, straddled_in_part : int
        Items with such a boundary.
    """

    def __init__(
        self, suite: Suite, spool: Spool, blocks: Sequence[PackedBlock], like: ParsedResponses | None = None
    ) -> None:
        self.suite = suite
        self._reader, self._blocks = BlockReader(spool), blocks
        self.failures = Counter[str]()
        self.merged = self.straddled = self.straddled_in_part = 0
        have_own_ids = False
        for block in blocks:
            beside = self._reader.beside(block)
            self.failures.update(beside.failures.values())
            self.merged += len(beside.merged)
            self.straddled += len(beside.straddled)
            self.straddled_in_part += sum(one == "in part" for one in beside.straddled.values())
            have_own_ids = have_own_ids or beside.item_ids is not None
        index = None if like is None else like.by_item.index
        self.by_item: _ItemResponses = _ItemResponses(self._reader, blocks, index)
        index = self.by_item.index
        size = sum(block.size for block in blocks)
        is_of_rows = len(index) == size and not have_own_ids
        slots = [(block.rows, block.size) for block in blocks]
        read = PackedRows(spool, slots, index if is_of_rows else None)
        # What a suite of its own derives is made from a list, as it always was.
        self.rows: Sequence[Row] = read if _inherits_derive(suite) else PackedRows.of(suite.derive(list(read)))

    def place(self, item_id: str) -> Place:
        """The position of an item."""
        block, at = self.by_item.find(item_id)
        return self._reader.beside(block).places[at]

    def keys(self, item_id: str) -> tuple[str, ...]:
        """The keys of an item's answers."""
        return self._reader.keys(*self.by_item.find(item_id))

    def logprobs(self) -> dict[str, Floats]:
        """Log-probabilities (k,) of each scored item's continuations, if they were kept."""
        kept: dict[str, Floats] = {}
        for block in self._blocks:
            if beside := self._reader.beside(block).logprobs:
                ids = _item_ids(self._reader, block)
                kept |= {ids[at]: logprobs for at, logprobs in beside.items()}
        return kept

    def _ids(self) -> Iterator[str]:
        return itertools.chain.from_iterable(_item_ids(self._reader, block) for block in self._blocks)


class _ItemResponses(Mapping[str, ItemResponse]):
    """The responses by item, of which a block at a time is unpacked.

    ``index`` has each item's position; it is ``like`` if that is equal.
    """

    def __init__(self, reader: BlockReader, blocks: Sequence[PackedBlock], like: Mapping[str, int] | None) -> None:
        self._reader, self._blocks = reader, blocks
        self._ends = list(itertools.accumulate(block.size for block in blocks))

        def ids() -> Iterator[str]:
            return itertools.chain.from_iterable(_item_ids(reader, block) for block in blocks)

        # The last one counts if an id occurs twice.
        self.index = positions_of(ids, like) or {item: position for position, item in enumerate(ids())}

    def find(self, item_id: str) -> tuple[PackedBlock, int]:
        """The block of an item, and its place there."""
        position = self.index[item_id]
        number = bisect.bisect_right(self._ends, position)
        block = self._blocks[number]
        return block, position - self._ends[number] + block.size

    def __getitem__(self, item_id: str) -> ItemResponse:
        return self._reader.response(*self.find(item_id))

    def __contains__(self, item_id: object) -> bool:
        return item_id in self.index

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)


def _item_ids(reader: BlockReader, block: PackedBlock) -> list[str]:
    return reader.beside(block).item_ids or reader.row_ids(block)


def _inherits_derive(suite: Suite) -> bool:
    return getattr(suite.derive, "__func__", None) is Suite.derive


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
