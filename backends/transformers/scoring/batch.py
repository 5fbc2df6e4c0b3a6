"""Route ``batch``: right-padded rows through the model's own attention, for models that do not support the tree."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from backends.local.generation import NoRoomError
from backends.local.trie import Trie
from backends.transformers.memory import PassSize
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.shared_starts import SharedStarts


class BatchRoute:
    """Scores tries by rows, one per leaf.

    Attributes
    ----------
    pads : bool
        Whether rows of different lengths may share a batch.
    together : bool
        Whether rows may share a batch at all.
    starts : SharedStarts or None
        Reads the starts that rows share once, if the model's cache can be used so.
    """

    kept: tuple[int, ...] = ()  # no state

    def __init__(self, reader: LogitReader, size: PassSize) -> None:
        self._reader, self._size = reader, size
        self.pads = self.together = True
        self.starts: SharedStarts | None = None

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        if self.starts is not None:
            self.starts.forget()

    def logprobs(self, trie: Trie) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The answers to all asks (nats), and which of them did not fit in memory."""
        answers = np.full(len(trie.ask_nodes), np.nan)
        failed = np.zeros(len(answers), dtype=bool)
        rows = rows_of_leaves(trie)
        if self.starts is not None:
            rows = self.starts.read(trie, rows, answers)
        rows.sort(key=lambda row: -len(row[0]))
        at = 0
        while at < len(rows):
            line, mine = rows[at]
            if len(mine) > self._size.rows:  # computed twice, so that fewer logits are held at once
                rows[at : at + 1] = [(line, mine[: self._size.rows]), (line, mine[self._size.rows :])]
                continue
            stop = at + 1
            count = len(mine)
            while stop < len(rows):
                if not self.together or (not self.pads and len(rows[stop][0]) != len(line)):
                    break
                count += len(rows[stop][1])
                # The first row is the longest.
                if len(line) * (stop + 1 - at) > self._size.tokens or count > self._size.rows:
                    break
                stop += 1
            try:
                self._size.run(partial(self._forward_rows, trie, rows[at:stop], answers))
            except NoRoomError:
                self.forget()
                if stop - at > 1:
                    self._size.shrink(tokens=len(line) * (stop - at))
                    continue
                if len(mine) > 1:
                    self._size.shrink(rows=len(mine))
                    continue
                self._size.restore()
                failed[np.isin(trie.ask_nodes, mine)] = True
            at = stop
        return answers, failed

    def _forward_rows(
        self, trie: Trie, rows: list[tuple[list[int], list[int]]], answers: npt.NDArray[np.float64]
    ) -> None:
        length = max(len(line) for line, _ in rows)
        ids = torch.zeros((len(rows), length), dtype=torch.long)
        mask = torch.zeros((len(rows), length), dtype=torch.long)
        places, nodes = [], []
        for i, (line, mine) in enumerate(rows):
            ids[i, : len(line)] = torch.from_numpy(trie.tokens[line])
            mask[i, : len(line)] = 1
            places += [i * length + int(trie.depths[node]) for node in mine]
            nodes += mine
        logits = self._reader.logits(
            ids.to(self._reader.device),
            None,
            mask.to(self._reader.device) if self.pads else None,
            torch.tensor(places, device=self._reader.device),
        )
        self._reader.tokens_computed += int(mask.sum())
        self._reader.answer(trie, nodes, logits, answers)


def rows_of_leaves(trie: Trie) -> list[tuple[list[int], list[int]]]:
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
