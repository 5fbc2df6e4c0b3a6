"""Route ``rows``: right-padded rows through the model's own attention, for models that do not take the tree."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

import numpy as np

from backends.local.generation import NoRoomError
from backends.local.scoring import Known
from backends.local.trie import Floats, Ints, Trie, within
from backends.transformers.memory import PassSize, too_large
from backends.transformers.scoring.reader import LogitReader

#: How many times the tokens of a tree's pass, padding included: many short rows take less memory each.
TIMES = {"cpu": 4, "mps": 2, "cuda": 2}


#: A leaf's path of nodes, and those with asks that no longer row has covered.
Row = tuple[list[int], list[int]]


class RowRoute:
    """Scores tries by rows, one for each leaf.

    Attributes
    ----------
    pads : bool
        Whether rows may share a pass, the shorter ones padded.
    """

    def __init__(self, reader: LogitReader, size: PassSize, *, pads: bool = True) -> None:
        self._reader, self._size, self.pads = reader, size, pads

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """As in `backends.local.scoring.Scorer`."""
        rows = sorted(rows_of_leaves(trie), key=lambda row: -len(row[0]))
        at = 0
        while at < len(rows):
            line, mine = rows[at]
            if len(mine) > self._size.rows:  # computed twice, so that fewer logits are held at once
                rows[at : at + 1] = [(line, mine[: self._size.rows]), (line, mine[self._size.rows :])]
                continue
            stop = self._stop(rows, at)
            try:
                asks, read = self._size.run(partial(self._forward, trie, rows[at:stop]))
                yield Known(asks, read())
            except NoRoomError:
                if stop - at > 1:
                    self._size.shrink(tokens=len(line) * (stop - at))
                    continue
                if len(mine) > 1:
                    self._size.shrink(rows=len(mine))
                    continue
                self._size.restore()
                yield Known(_asks_at(trie, mine)[0], too_large())
            at = stop

    def _stop(self, rows: list[Row], at: int) -> int:
        """The end of the pass that begins with this row, which is its longest."""
        length, count = len(rows[at][0]), len(rows[at][1])
        stop = at + 1
        while stop < len(rows) and self.pads:
            count += len(rows[stop][1])
            if length * (stop + 1 - at) > self._size.tokens or count > self._size.rows:
                break
            stop += 1
        return stop

    def _forward(self, trie: Trie, rows: list[Row]) -> tuple[Ints, Callable[[], Floats]]:
        length = max(len(line) for line, _ in rows)
        ids = np.zeros((len(rows), length), dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for i, (line, _) in enumerate(rows):
            ids[i, : len(line)] = trie.tokens[line]
            mask[i, : len(line)] = 1
        nodes = [node for _, mine in rows for node in mine]
        places = [i * length + depth for i, (_, mine) in enumerate(rows) for depth in trie.depths[mine].tolist()]
        to_device = self._reader.to_device
        padding = to_device(mask) if self.pads else None
        logits = self._reader.logits(to_device(ids), None, padding, to_device(np.array(places)))
        self._reader.tokens_computed += int(mask.sum())
        asks, row_of_ask = _asks_at(trie, nodes)
        return asks, self._reader.answers(trie, asks, row_of_ask, logits)


def _asks_at(trie: Trie, nodes: list[int]) -> tuple[Ints, Ints]:
    """The asks at these nodes, and the place of each one's node among them."""
    low, high = (np.searchsorted(trie.ask_nodes, nodes, side) for side in ("left", "right"))
    counts = high - low
    return np.repeat(low, counts) + within(counts), np.repeat(np.arange(len(nodes)), counts)


def rows_of_leaves(trie: Trie) -> list[Row]:
    """For each leaf its path of nodes, and those with asks that no earlier leaf has covered; in the trie's order."""
    with_asks = set(trie.ask_nodes.tolist())
    rows = []
    depths = trie.depths.tolist()
    for node in range(len(trie)):
        if node + 1 == len(trie) or depths[node + 1] <= depths[node]:
            line = [*trie.ancestors(node), node]
            mine = [n for n in line if n in with_asks]
            with_asks.difference_update(mine)
            if mine:
                rows.append((line, mine))
    return rows
