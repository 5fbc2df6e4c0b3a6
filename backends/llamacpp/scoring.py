"""Score token paths with llama.cpp's low-level batch, reading each distinct token once.

Each leaf of a pack is a sequence. A cell of the cache belongs to all sequences that pass through it, so a token
attends to its ancestors and to nothing else. Sequence 0 holds the chain of ancestors between packs:

    cells     0 ─ 1 ─ 2 ─ 3          sequences of node 2: {1, 2}; of 3: {1}; of 4 and 5: {2}
                      └ ─ 4 ─ 5
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from backends.errors import BackendError
from backends.llamacpp.engine import LlamaEngine
from backends.local.scoring import Known
from backends.local.trie import Floats, Pack, Trie

PACK_TOKENS = 512
# Matrix kernels take tokens, and rows of logits, in groups; a remainder goes through other kernels,
# which round differently. With whole groups a result does not depend on how many others are in the batch.
GROUP = 16
LOGIT_BYTES = 256 << 20  # maximum memory of one pack's logits
_F16, _BF16 = 1, 30  # GGML_TYPE_F16, GGML_TYPE_BF16
_FLASH_ATTENTION_ON = 1


class SequenceScorer:
    """Scores tries of paths on one loaded model.

    Parameters
    ----------
    engine : LlamaEngine
    beginning_with : callable
        Returns the token ids of a set, given its name.
    batch_invariant : bool
        Make a result independent of what else is in the batch; for the CPU only. Tiled attention
        sums in an order that depends on the position of a cell, and quantised weights round
        activations to 8 bits, which amplifies the last digit to tenths of a nat. With keys in float16
        and values in bfloat16, attention goes cell by cell and skips masked ones.

    Attributes
    ----------
    vocabulary : int
        Number of tokens that the model has a logit for.
    tokens_computed : int
        Tokens the model has read so far, padding included.
    """

    route = "tree"

    def __init__(
        self,
        engine: LlamaEngine,
        beginning_with: Callable[[Any], npt.NDArray[np.int64]],
        *,
        batch_invariant: bool = True,
        pack_tokens: int = PACK_TOKENS,
    ) -> None:
        self._engine, self._beginning_with = engine, beginning_with
        self._batch_invariant, self.pack_tokens = batch_invariant, pack_tokens
        self.tokens_computed = 0
        self.vocabulary: int = llama_cpp.llama_vocab_n_tokens(engine.vocab)
        self._rows = max(1, LOGIT_BYTES // (4 * self.vocabulary))
        self._sequences = llama_cpp.llama_max_parallel_sequences()
        self._context: Any = None
        self._cells = 0
        self._batch: Any = None
        self._places: list[npt.NDArray[np.int32]] = []

    @property
    def context(self) -> int:
        """Maximum tokens that the model may read for one path."""
        most = self._engine.most_cells
        # A path's last token is not read, but `logprobs` reserves a cell for it.
        return self._engine.n_ctx if most is None else min(self._engine.n_ctx, most - self.pack_tokens - GROUP - 1)

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        """As in `backends.local.scoring.Scorer`."""
        if not self._engine.shares_cells:
            # Sequences would read each other's state: the numbers would look plausible but be wrong.
            raise BackendError(
                "unsupported",
                "this model has recurrent layers, whose state llama.cpp cannot share between sequences",
                hint="score it with HFBackend",
            )
        if not len(trie):
            return
        self._make_room(int(trie.depths.max()) + 2 + self.pack_tokens + GROUP)
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_clear(memory, False)
        start = 0
        while start < len(trie):
            pack = self._next_pack(trie, start)
            leaf_of = self._decode(trie, pack, memory)
            self.tokens_computed += self._batch.n_tokens
            yield Known(np.arange(pack.first_ask, pack.last_ask), self._read(trie, pack))
            start = pack.stop
            if start < len(trie):
                # The chain of the next pack is a prefix of the path through this pack's last leaf.
                self._replace_chain(memory, int(leaf_of[-1]), int(trie.depths[start]))

    def close(self) -> None:
        """Free the context. May be called more than once."""
        if self._context is not None:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._context)
            self._context, self._cells = None, 0

    def _make_room(self, cells: int) -> None:
        """Ensure a context of at least this many cells, replacing a smaller one."""
        if cells <= self._cells:
            return
        self.close()
        cells = -(-cells // 1024) * 1024
        if self._engine.most_cells is not None:
            cells = min(cells, self._engine.most_cells)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = cells
        # llama.cpp aborts the process when a batch cannot hold an output of each sequence.
        params.n_batch = params.n_ubatch = max(self.pack_tokens + GROUP, self._sequences)
        params.n_seq_max = self._sequences
        params.n_threads = params.n_threads_batch = self._engine.threads
        params.kv_unified = True  # sequences share cells
        params.n_outputs_max_per_seq = 0  # any token may ask for its logits
        params.swa_full = True  # keeps a whole chain for models with a sliding window, too
        params.flash_attn_type = _FLASH_ATTENTION_ON  # skips masked cells, so a tree costs no more than its paths
        if self._batch_invariant:
            params.type_k, params.type_v = _F16, _BF16
        self._context = llama_cpp.llama_init_from_model(self._engine.model, params)
        if not self._context:
            self._context = None
            raise BackendError("out_of_memory", f"no context for {cells} cells", hint="lower the context")
        size = self.pack_tokens + GROUP
        self._batch = llama_cpp.llama_batch_init(size, 0, self._sequences)
        self._places = [np.ctypeslib.as_array(self._batch.seq_id[i], (self._sequences,)) for i in range(size)]
        self._cells = cells

    def _replace_chain(self, memory: Any, leaf: int, length: int) -> None:
        """Make the first ``length`` cells of a leaf's path the chain, and move them to the front of the cache.

        Attention sums over cells in order. If the chain stayed where it is, new tokens would fill the gaps between
        its cells, and the sum would run along the path in another order.
        """
        if not length:
            llama_cpp.llama_memory_clear(memory, False)
            return
        llama_cpp.llama_memory_seq_keep(memory, leaf)
        llama_cpp.llama_memory_seq_rm(memory, leaf, length, -1)
        size = llama_cpp.llama_state_seq_get_size(self._context, leaf)
        state = (ctypes.c_uint8 * size)()
        llama_cpp.llama_state_seq_get_data(self._context, state, size, leaf)
        llama_cpp.llama_memory_clear(memory, False)
        if llama_cpp.llama_state_seq_set_data(self._context, state, size, 0) == 0:
            raise BackendError("internal", "llama.cpp could not move the kept cells")

    def _next_pack(self, trie: Trie, start: int) -> Pack:
        """A pack of whole groups, unless it is the last one."""
        # Sequence 0 is the chain, the last one is for padding.
        rows, leaves = self._rows, self._sequences - 2
        pack = trie.pack(start, nodes=self.pack_tokens, rows=rows, leaves=leaves)
        too_many = (pack.stop - pack.start) % GROUP
        if pack.stop == len(trie) or too_many == pack.stop - pack.start:
            return pack
        return trie.pack(start, nodes=pack.stop - pack.start - too_many, rows=rows, leaves=leaves)

    def _decode(self, trie: Trie, pack: Pack, memory: Any) -> npt.NDArray[np.int64]:
        """Compute a pack; returns each node's last leaf, as a sequence number."""
        count = pack.stop - pack.start
        depths = trie.depths[pack.start : pack.stop]
        is_leaf = np.append(depths[1:] <= depths[:-1], True)
        # The leaves of a subtree are consecutive: from the first leaf at or after its root to the last one below.
        first_leaf: npt.NDArray[np.int64] = 1 + np.cumsum(is_leaf) - is_leaf
        last_leaf: npt.NDArray[np.int64] = first_leaf.copy()
        for i in range(count - 1, 0, -1):
            parent = int(trie.parents[pack.start + i]) - pack.start
            if parent >= 0:
                last_leaf[parent] = max(last_leaf[parent], last_leaf[i])
        # Each leaf's path leaves the chain at the depth of its topmost node in the pack.
        for i in range(count):
            if trie.parents[pack.start + i] < pack.start and depths[i] > 0:
                for sequence in range(int(first_leaf[i]), int(last_leaf[i]) + 1):
                    llama_cpp.llama_memory_seq_cp(memory, 0, sequence, 0, int(depths[i]))
        padding = -count % GROUP
        outputs = np.zeros(count + padding, dtype=np.int8)
        outputs[trie.ask_nodes[pack.first_ask : pack.last_ask] - pack.start] = 1
        outputs[np.flatnonzero(outputs[::-1] == 0)[: -int(outputs.sum()) % GROUP] * -1 - 1] = 1
        batch = self._batch
        batch.n_tokens = count + padding
        np.ctypeslib.as_array(batch.token, (count + padding,))[:] = np.pad(
            trie.tokens[pack.start : pack.stop], (0, padding), mode="edge"
        )
        np.ctypeslib.as_array(batch.pos, (count + padding,))[:] = np.append(depths, np.arange(padding))
        np.ctypeslib.as_array(batch.n_seq_id, (count + padding,))[:] = np.pad(
            last_leaf - first_leaf + 1, (0, padding), constant_values=1
        )
        np.ctypeslib.as_array(batch.logits, (count + padding,))[:] = outputs
        for i in range(count):
            low, high = int(first_leaf[i]), int(last_leaf[i]) + 1
            self._places[i][: high - low] = np.arange(low, high)
        for i in range(count, count + padding):
            self._places[i][0] = self._sequences - 1
        if (code := llama_cpp.llama_decode(self._context, batch)) != 0:
            raise BackendError("internal", f"llama_decode returned {code}", hint="lower the context")
        return last_leaf

    def _read(self, trie: Trie, pack: Pack) -> Floats:
        """The pack's answers: log-softmax in float64 sums over float32 logits."""
        answers = np.full(pack.last_ask - pack.first_ask, np.nan)
        ask = pack.first_ask
        while ask < pack.last_ask:
            node = trie.ask_nodes[ask]
            pointer = llama_cpp.llama_get_logits_ith(self._context, int(node) - pack.start)
            logits = np.ctypeslib.as_array(pointer, (self.vocabulary,))
            peak = logits.max()
            total = np.log(np.exp(logits - peak).sum(dtype=np.float64))
            while ask < pack.last_ask and trie.ask_nodes[ask] == node:
                target = int(trie.ask_targets[ask])
                if target >= 0:
                    value = float(logits[target] - peak)
                else:
                    members = logits[self._beginning_with(trie.sets[-1 - target])] - peak
                    # The set may be empty: its probability is then 0.
                    value = float(np.logaddexp.reduce(members, dtype=np.float64)) if len(members) else -np.inf
                answers[ask - pack.first_ask] = value - total
                ask += 1
        return answers
