"""Route ``tree`` for models with an attention of their own: a pack's tree is written out as their attention mask.

Such a model takes a mask of queries by keys, and positions. Each pass reads a pack of trie nodes and the ancestors of
its first node again, since no state is kept between passes.

A window of its own is counted along the row, not along a path. So a pass has no more tokens than the window is long:
then it hides nothing. Longer paths are not for this route.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backends.local.generation import NoRoomError
from backends.local.trie import Pack, Trie
from backends.transformers.context import alike_places
from backends.transformers.memory import PassSize
from backends.transformers.scoring.reader import LogitReader

MOST_TOKENS = 1024  # of one pass: the mask, and the scores that such models write out, grow with their square


class MaskedTreeRoute:
    """Scores tries by a mask of queries by keys; keeps no state.

    Attributes
    ----------
    longest : int or None
        Maximum tokens that a path may have to read; None: no limit.
    """

    kept: tuple[int, ...] = ()

    def __init__(self, reader: LogitReader, size: PassSize) -> None:
        self._reader, self._size = reader, size
        self.longest = _own_window(reader.config)

    def forget(self) -> None:
        """Nothing is kept."""

    def logprobs(self, trie: Trie) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The answers to all asks (nats), and which of them did not fit in memory."""
        answers = np.full(len(trie.ask_nodes), np.nan)
        failed = np.zeros(len(answers), dtype=bool)
        start = 0
        while start < len(trie):
            most = min(self._size.tokens, MOST_TOKENS)
            if self.longest is not None:
                most = min(most, self.longest - int(trie.depths[start]))
            pack = trie.pack(start, nodes=most, rows=self._size.rows)
            try:
                self._size.run(partial(self._forward_pack, trie, pack, answers))
                start = pack.stop
            except NoRoomError:
                tokens = pack.stop - pack.start
                if tokens > 1:
                    self._size.shrink(tokens=tokens)
                    continue
                self._size.restore()
                stop = trie.after(start)
                failed[trie.asks(start, stop)] = True
                start = stop
        return answers, failed

    def _forward_pack(self, trie: Trie, pack: Pack, answers: npt.NDArray[np.float64]) -> None:
        nodes = np.array([*trie.ancestors(pack.start), *range(pack.start, pack.stop)], dtype=np.int64)
        above = len(nodes) - (pack.stop - pack.start)
        device, dtype = self._reader.device, self._reader.model.dtype
        mask = torch.full((len(nodes), len(nodes)), torch.finfo(dtype).min, dtype=dtype)
        mask[torch.from_numpy(_sees(nodes, trie.ends[nodes]))] = 0
        rows, row_of_ask = np.unique(trie.ask_nodes[pack.first_ask : pack.last_ask], return_inverse=True)
        logits = self._reader.logits(
            torch.from_numpy(trie.tokens[nodes])[None].to(device),
            torch.from_numpy(trie.depths[nodes])[None].to(device),
            mask[None, None].to(device),
            torch.from_numpy(rows - pack.start + above).to(device),
        )
        self._reader.tokens_computed += len(nodes)
        targets = trie.ask_targets[pack.first_ask : pack.last_ask]
        answers[pack.first_ask : pack.last_ask] = self._reader.log_probabilities(logits, row_of_ask, targets, trie.sets)


def _own_window(config: Any) -> int | None:
    """How many tokens some layer sees at least, by the fields of a config that limit it; None: all."""
    names = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "local_attention")
    found = [alike_places(config), *(getattr(config, name, None) for name in names)]
    return min((window for window in found if isinstance(window, int)), default=None)


def _sees(nodes: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which keys each query sees, (nodes, nodes): those in whose subtree it is, which ends before ``ends``."""
    seen: npt.NDArray[np.bool_] = (nodes <= nodes[:, None]) & (nodes[:, None] < ends)
    return seen
