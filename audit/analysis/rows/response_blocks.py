"""What is kept of one model's answers to one suite, in blocks that are compressed once they are full.

The keys of a prompt's answers are hashes, which no compression makes smaller: with 26 continuations they take ten
times as much as the row. They lie in the spool like the rest, and are read where a row is stored or shown.
"""

from __future__ import annotations

import itertools
import pickle
import re
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from audit.analysis.rows.packed import BLOCK, RowBlock
from audit.analysis.table import Floats
from audit.spool import Slot, Spool
from suites.base import Factor, Row

#: Answers that are held as objects until their block is packed.
_MOST_OPEN = 4 * BLOCK
_HASH = re.compile(r"a1-[0-9a-f]{40}")
_HASH_BYTES = 20

Place = tuple[int, ...]
"""An item's position: (5,) is the suite's sixth item, (5, 0) its first follow-up."""

Straddled = Literal["no", "in part", "all"]
"""How many of an item's continuations share a token with the prompt."""


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


@dataclass(slots=True)
class BesideRows:
    """What a block holds beside its rows, in order or by the place in the block, where it is not as usual."""

    places: list[Place]
    item_ids: list[str] | None  # None: those of the rows
    n_keys: list[int]
    are_hashes: bool
    factors: dict[int, Mapping[str, Factor]]
    failures: dict[int, str]
    merged: set[int]
    straddled: dict[int, Straddled]
    logprobs: dict[int, Floats]

    @classmethod
    def of(cls, found: Sequence[tuple[Place, ItemResponse]]) -> BesideRows:
        """What is beside the rows of these responses."""
        responses = [response for _, response in found]
        item_ids = [one.item_id for one in responses]
        return cls(
            places=[place for place, _ in found],
            item_ids=None if item_ids == [one.row.item_id for one in responses] else item_ids,
            n_keys=[len(one.keys) for one in responses],
            are_hashes=all(_HASH.fullmatch(key) for one in responses for key in one.keys),
            factors={at: dict(one.factors) for at, one in enumerate(responses) if not _has_own_factors(one)},
            failures={at: one.failure for at, one in enumerate(responses) if one.failure is not None},
            merged={at for at, one in enumerate(responses) if one.merged},
            straddled={at: one.straddled for at, one in enumerate(responses) if one.straddled != "no"},
            logprobs={at: one.logprobs for at, one in enumerate(responses) if one.logprobs is not None},
        )


def _has_own_factors(response: ItemResponse) -> bool:
    """Whether the row's factors are those of its item, types included."""
    own, read = response.factors, response.row.factors
    if own is read:
        return True
    return own == read and list(map(type, own.values())) == [type(read[name]) for name in own]


class PackedBlock(NamedTuple):
    """Where the parts of a block lie in the spool, and its number of responses."""

    rows: Slot
    beside: Slot
    keys: Slot
    size: int


class BlockReader:
    """Reads packed blocks; what was read last of each part is kept."""

    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self._rows: tuple[Slot | None, list[Row]] = None, []
        self._beside: tuple[Slot | None, BesideRows | None] = None, None
        self._keys: tuple[Slot | None, list[tuple[str, ...]] | bytes] = None, []

    def row_ids(self, block: PackedBlock) -> list[str]:
        """The ids of a block's rows."""
        return RowBlock.unpacked(self.spool.get(block.rows)).ids

    def beside(self, block: PackedBlock) -> BesideRows:
        """What a block holds beside its rows."""
        slot, found = self._beside
        if found is None or slot != block.beside:
            found = pickle.loads(zlib.decompress(self.spool.get(block.beside)))  # safe: pickled by this process
            self._beside = block.beside, found
        assert isinstance(found, BesideRows)
        return found

    def keys(self, block: PackedBlock, at: int) -> tuple[str, ...]:
        """The keys of a block's response."""
        beside = self.beside(block)
        slot, found = self._keys
        if slot != block.keys:
            data = self.spool.get(block.keys)
            found = data if beside.are_hashes else pickle.loads(zlib.decompress(data))
            self._keys = block.keys, found
        if not isinstance(found, bytes):
            return found[at]
        start = sum(beside.n_keys[:at])
        hashes = (found[i * _HASH_BYTES : (i + 1) * _HASH_BYTES] for i in range(start, start + beside.n_keys[at]))
        return tuple([f"a1-{one.hex()}" for one in hashes])

    def response(self, block: PackedBlock, at: int) -> ItemResponse:
        """A block's response."""
        slot, rows = self._rows
        if slot != block.rows:
            rows = RowBlock.unpacked(self.spool.get(block.rows)).rows()
            self._rows = block.rows, rows
        beside, row = self.beside(block), rows[at]
        return ItemResponse(
            row.item_id if beside.item_ids is None else beside.item_ids[at],
            beside.factors.get(at, row.factors),
            self.keys(block, at),
            row,
            beside.failures.get(at),
            at in beside.merged,
            beside.straddled.get(at, "no"),
            beside.logprobs.get(at),
        )

    def responses(self, block: PackedBlock) -> Iterator[tuple[Place, ItemResponse]]:
        """All responses of a block, with their places."""
        return ((place, self.response(block, at)) for at, place in enumerate(self.beside(block).places))


class ResponseBlocks:
    """Responses by place. The blocks that hold most of what is not packed yet are packed once that is much.

    Late answers, retries for instance, open a block again.
    """

    def __init__(self) -> None:
        self.spool = Spool()
        self._reader = BlockReader(self.spool)
        self._open: dict[int, dict[Place, ItemResponse]] = {}
        self._packed: dict[int, PackedBlock] = {}
        self._n_open = 0
        self._lock = threading.RLock()  # answers are recorded by several threads

    def put(self, place: Place, response: ItemResponse) -> None:
        """Keep a response, in place of an earlier one."""
        with self._lock:
            block = self._open.setdefault(place[0] // BLOCK, {})
            self._n_open += place not in block
            block[place] = response
            while self._n_open > _MOST_OPEN:
                self._pack(max(self._open, key=lambda number: len(self._open[number])))

    def __getitem__(self, place: Place) -> ItemResponse:
        with self._lock:
            number = place[0] // BLOCK
            if (found := self._open.get(number, {}).get(place)) is not None:
                return found
            packed = self._packed[number]
            return self._reader.response(packed, self._reader.beside(packed).places.index(place))

    def __iter__(self) -> Iterator[tuple[Place, ItemResponse]]:
        """The responses and their places, block by block, in order."""
        for number in sorted({*self._open, *self._packed}):
            with self._lock:
                found = self._in_order(number)
            yield from found

    def remove(self, places: Collection[Place]) -> None:
        """Forget the responses at these places."""
        with self._lock:
            for number in {place[0] // BLOCK for place in places}:
                found = self._of_block(number)
                for place in found.keys() & set(places):
                    del found[place]
                self._n_open += len(found) - len(self._open.get(number, {}))
                self._open[number] = found
                self._packed.pop(number, None)

    def packed(self) -> list[PackedBlock]:
        """All responses so far: those of a block in order, items before their follow-ups."""
        with self._lock:
            for number in list(self._open):
                self._pack(number)
            return [self._packed[number] for number in sorted(self._packed)]

    def _of_block(self, number: int) -> dict[Place, ItemResponse]:
        packed = self._packed.get(number)
        earlier = {} if packed is None else dict(self._reader.responses(packed))
        return earlier | self._open.get(number, {})

    def _in_order(self, number: int) -> list[tuple[Place, ItemResponse]]:
        return sorted(self._of_block(number).items(), key=lambda pair: (len(pair[0]), pair[0]))

    def _pack(self, number: int) -> None:
        found = self._in_order(number)
        self._n_open -= len(self._open.pop(number))
        if not found:
            self._packed.pop(number, None)
            return
        beside = BesideRows.of(found)
        keys: list[tuple[str, ...]] = [response.keys for _, response in found]
        if beside.are_hashes:
            written = bytes.fromhex("".join([key[3:] for key in itertools.chain.from_iterable(keys)]))
        else:
            written = zlib.compress(pickle.dumps(keys, pickle.HIGHEST_PROTOCOL), 1)
        self._packed[number] = PackedBlock(
            self.spool.add(RowBlock.of([response.row for _, response in found]).packed()),
            self.spool.add(zlib.compress(pickle.dumps(beside, pickle.HIGHEST_PROTOCOL), 1)),
            self.spool.add(written),
            len(found),
        )
