"""Route ``tree``: a pack of trie nodes is one forward pass over a row of tokens; each distinct token is read once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
from backends.transformers.scoring.tree_attention import ATTENTION, State, TreeRefusedError, make_tree_pass

#: Texts whose answers are computed together at a pass's end: a kill loses these, and the part before if not yet stored.
MOST_TOGETHER = 8
#: Told the answers to all asks, and of which of them they are known now: from the first until before the last.
OnKnown = Callable[[npt.NDArray[np.float64], int, int], None]
#: As configs name a layer that attends within chunks.
CHUNKED = "chunked_attention"


class TreeRoute:
    """Scores tries by tree attention, and keeps the last path's state for the next call.

    Attributes
    ----------
    longest : int or None
        Maximum tokens that a path may have to read; None: no limit.
    """

    def __init__(self, reader: LogitReader, size: PassSize) -> None:
        self._reader, self._size = reader, size
        self.kept: tuple[int, ...] = ()
        self._past: State = {}
        self.longest = alike_places(reader.config)

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        self.kept, self._past = (), {}

    def take_over(self, other: TreeRoute) -> None:
        """Go on from the state of another route over the same weights, which keeps it too."""
        self.kept, self._past = other.kept, other._past

    def logprobs(
        self, trie: Trie, on_known: OnKnown | None = None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """The answers to all asks (nats), and which of them did not fit in memory.

        ``on_known`` is called as soon as further ones are known, in the order of asks; again for a pass that is
        repeated.
        """
        answers = np.full(len(trie.ask_nodes), np.nan)
        failed = np.zeros(len(answers), dtype=bool)
        start = trie.reusable(self.kept)
        past = {layer: (k[:, :start], v[:, :start]) for layer, (k, v) in self._past.items()}
        chain = list(range(start))
        if start < len(trie):
            wanted = trie.ancestors(start)
            past, chain = _cut(past, chain, wanted), wanted
        self.forget()
        with self._reader.attention(ATTENTION):
            while start < len(trie):
                most = self._size.tokens if self.longest is None else min(self._size.tokens, self.longest)
                pack = trie.pack(start, nodes=most, rows=self._size.rows)
                try:
                    past, chain = self._size.run(
                        partial(self._forward_pack, trie, pack, chain, past, answers, on_known)
                    )
                    start = pack.stop
                except NoRoomError:
                    tokens = pack.stop - pack.start
                    if tokens > 1:
                        self._size.shrink(tokens=tokens)
                        continue
                    # What follows this token would not fit either. Go on after its subtree, on a prefix of the chain.
                    self._size.restore()
                    stop = trie.after(start)
                    failed[trie.asks(start, stop)] = True
                    line = trie.ancestors(stop) if stop < len(trie) else chain
                    past, chain, start = _cut(past, chain, line), line, stop
        if not np.isnan(answers[~failed]).any():  # a NaN has reached the keys of sound tokens beside it
            self.kept, self._past = tuple(trie.tokens[chain].tolist()), past
        return answers, failed

    def _forward_pack(
        self,
        trie: Trie,
        pack: Pack,
        chain: list[int],
        past: State,
        answers: npt.NDArray[np.float64],
        on_known: OnKnown | None,
    ) -> tuple[State, list[int]]:
        """Compute a pack and fill in its answers. Returns the chain that the next pack needs: its state, its nodes."""
        tokens = torch.from_numpy(trie.tokens[pack.start : pack.stop]).to(self._reader.device)
        depths = torch.from_numpy(trie.depths[pack.start : pack.stop]).to(self._reader.device)
        rows, row_of_ask = np.unique(trie.ask_nodes[pack.first_ask : pack.last_ask], return_inverse=True)
        places = torch.from_numpy(rows - pack.start).to(self._reader.device)
        stops = [pack.last_ask]
        if on_known is not None and self._reader.gives_parts:
            stops = trie.parts(pack.first_ask, pack.last_ask, MOST_TOGETHER)
        counts = np.array(stops) - pack.first_ask
        row_stops = [0, *(int(row_of_ask[count - 1]) + 1 if count else 0 for count in counts)]
        config = self._reader.config
        tree = make_tree_pass(trie, pack, len(chain), past, self._reader.device, _chunks(config))
        with tree.active():
            later = self._reader.logits_in_parts(tokens[None], depths[None], None, places, row_stops[1:])
            first_part = next(later)
        # Where a model has an encoder too, ``num_hidden_layers`` is that one's.
        layers = getattr(config, "decoder_layers", None) or config.num_hidden_layers
        if len(tree.present) != layers:
            seen = f"{len(tree.present)} of its {layers} layers"
            raise TreeRefusedError(f"{seen} attend through transformers' attention interface")
        window = _window(config)
        if window is not None and window not in tree.windows:
            raise TreeRefusedError("its sliding window does not reach the attention function")
        self._reader.tokens_computed += len(tokens)
        bounds = itertools.pairwise([pack.first_ask, *stops])
        for (first, last), row, logits in zip(
            bounds, row_stops[:-1], itertools.chain([first_part], later), strict=True
        ):
            mine = row_of_ask[first - pack.first_ask : last - pack.first_ask] - row
            answers[first:last] = self._reader.log_probabilities(logits, mine, trie.ask_targets[first:last], trie.sets)
            if on_known is not None:
                on_known(answers, first, last)
        held = chain + list(range(pack.start, pack.stop))
        wanted = trie.ancestors(pack.stop) if pack.stop < len(trie) else [*trie.ancestors(pack.stop - 1), pack.stop - 1]
        return _cut(tree.present, held, wanted), wanted


def _window(config: Any) -> int | None:
    """The sliding window that some layers use; many configs name one that no layer uses."""
    if not getattr(config, "use_sliding_window", True):
        return None
    kinds = getattr(config, "layer_types", None)
    if kinds and set(map(str, kinds)) == {"full_attention"}:
        return None
    window: int | None = getattr(config, "sliding_window", None)
    return window


def _chunks(config: Any) -> dict[int, int]:
    """The layers that attend within chunks alone, and how long a chunk is."""
    kinds = getattr(config, "layer_types", None) or ()
    return {at: config.attention_chunk_size for at, kind in enumerate(kinds) if str(kind) == CHUNKED}


def _cut(state: State, held: list[int], wanted: list[int]) -> State:
    """Keys and values of the wanted nodes, selected from those held."""
    place = {node: i for i, node in enumerate(held)}
    index = torch.tensor([place[node] for node in wanted], dtype=torch.long)
    cut = {}
    for layer, (k, v) in state.items():
        at = index.to(k.device)
        cut[layer] = (k.index_select(1, at), v.index_select(1, at))
    return cut
