"""Route ``tree``: a pack of trie nodes is one forward pass over a row of tokens; each distinct token is read once.

A model that does not use transformers' attention interface takes a mask of queries by keys. It keeps no state: each
pass reads the ancestors of its first node again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from functools import partial

import numpy as np
import torch

from backends.local.generation import NoRoomError
from backends.local.scoring import Known
from backends.local.trie import Floats, Pack, Trie
from backends.transformers.memory import PassSize, too_large
from backends.transformers.scoring.attention import ATTENTION, State, make_tree_pass
from backends.transformers.scoring.reader import LogitReader

#: Of a pass with a mask: scores are written out, and grow with its square. Of 128 to 1024, 512 took the least time.
MASKED_TOKENS = 512
#: As configs name a layer that attends within chunks.
CHUNKED = "chunked_attention"


class TreeRoute:
    """Scores tries by tree attention; the keys and values of one chain of ancestors are kept from pass to pass.

    ``masked``: by a mask instead, through the model's own attention.
    """

    def __init__(self, reader: LogitReader, size: PassSize, *, masked: bool = False) -> None:
        self._reader, self._size, self._masked = reader, size, masked
        kinds = getattr(reader.config, "layer_types", None) or ()
        self._chunks = {at: reader.config.attention_chunk_size for at, kind in enumerate(kinds) if str(kind) == CHUNKED}

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """As in `backends.local.scoring.Scorer`. On CUDA a pass is queued before the numbers of the last are read."""
        past: State = {}
        chain: list[int] = []
        start = 0
        queued: Callable[[], Known] | None = None
        waits = self._reader.device.type == "cuda"
        with contextlib.nullcontext() if self._masked else self._reader.attention(ATTENTION):
            while start < len(trie):
                pack = trie.pack(start, nodes=self._size.tokens, rows=self._size.rows)
                try:
                    past, chain, known = self._size.run(partial(self._forward, trie, pack, chain, past))
                    start = pack.stop
                except NoRoomError:
                    if pack.stop - pack.start > 1:
                        self._size.shrink(tokens=pack.stop - pack.start)
                        continue
                    # What follows this token would not fit either. Go on after its subtree, on a prefix of the chain.
                    self._size.restore()
                    start, asks = int(trie.ends[start]), trie.asks(start, int(trie.ends[start]))
                    known = partial(Known, np.arange(asks.start, asks.stop), too_large())
                    line = trie.ancestors(start) if start < len(trie) else chain
                    past, chain = self._cut(past, chain, line), line
                if queued is not None:
                    yield queued()
                queued = known if waits else None
                if not waits:
                    yield known()
            if queued is not None:
                yield queued()

    def _forward(
        self, trie: Trie, pack: Pack, chain: list[int], past: State
    ) -> tuple[State, list[int], Callable[[], Known]]:
        """Compute a pack. Returns the state and the nodes of the chain that the next one needs, and what answers it."""
        to_device = self._reader.to_device
        rows, row_of_ask = np.unique(trie.ask_nodes[pack.first_ask : pack.last_ask], return_inverse=True)
        above = chain if self._masked else []
        nodes = np.array([*above, *range(pack.start, pack.stop)])
        mask, present = None, State()
        with contextlib.ExitStack() as active:
            if self._masked:
                hidden = to_device((nodes > nodes[:, None]) | (nodes[:, None] >= trie.ends[nodes]))[None, None]
                dtype = self._reader.model.dtype
                mask = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, torch.finfo(dtype).min)
            else:
                on_cpu = self._reader.device.type == "cpu"
                tree = make_tree_pass(trie, pack, chain, past, to_device, self._chunks, on_cpu=on_cpu)
                present = tree.present
                active.enter_context(tree.active())
            logits = self._reader.logits(
                to_device(trie.tokens[nodes])[None],
                to_device(trie.depths[nodes])[None],
                mask,
                to_device(rows - pack.start + len(above)),
            )
        self._reader.tokens_computed += len(nodes)
        asks = np.arange(pack.first_ask, pack.last_ask)
        read: Callable[[], Floats] = self._reader.answers(trie, asks, row_of_ask, logits)
        wanted: list[int] = []
        if pack.stop < len(trie):
            wanted = trie.ancestors(pack.stop)
        kept = self._cut(present, chain + list(range(pack.start, pack.stop)), wanted)
        return kept, wanted, lambda: Known(asks, read())

    def _cut(self, state: State, held: list[int], wanted: list[int]) -> State:
        """Keys and values of the wanted nodes, selected from those held."""
        place = {node: i for i, node in enumerate(held)}
        index = self._reader.to_device(np.array([place[node] for node in wanted], dtype=np.int64))
        cut = {}
        for layer, (k, v) in state.items():
            at = index.to(k.device)  # layers may be on several devices
            cut[layer] = (k.index_select(1, at), v.index_select(1, at))
        return cut
