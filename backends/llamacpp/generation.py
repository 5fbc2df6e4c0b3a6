"""Text generation on llama.cpp: continuous batching through its low-level batch.

Each running text has a slot, a sequence of its own in the engine. Every step decodes one token of each running
text, together with the prompts that have just joined. A finished text frees its slot at once. A new prompt copies
the cells of the slot that shares the longest prefix with it, so that a common prefix (an instruction, the head of a
chat template) is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import llama_cpp
import numpy as np

from backends.base import Prompt
from backends.errors import BackendError
from backends.llamacpp.engine import LlamaEngine
from backends.local.generation import NoRoomError, Text, slot_count
from backends.local.sampling import Logits, StopStringDecoder
from backends.local.trie import common_start

BATCH_TOKENS = 2048
MIN_SAVED_TOKENS = 8  # a prompt waits a step if another text of the batch then computes this many more of its tokens
MOST_CACHE_BYTES = 2 << 30


class LlamaGeneration:
    """`GenerationEngine` over a model loaded by llama.cpp.

    Memory: slots × the longest (prompt + max_tokens) cells of the model's cache; fewer slots are used if that would
    exceed 2 GiB.
    """

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self.context = engine.n_ctx
        self.vocabulary: int = llama_cpp.llama_vocab_n_tokens(engine.vocab)

    def render(self, prompt: Prompt) -> list[int]:
        return self._engine.render(prompt)

    def decoder(self, prompt: Sequence[int], stop: tuple[str, ...]) -> StopStringDecoder:
        return StopStringDecoder(stop, self._engine.token_bytes)

    def ends_text(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self._engine.vocab, token))

    @property
    def route(self) -> str:
        return ""

    def prepare(self) -> None:
        return None

    def open_slots(self, texts: list[Text], halvings: int) -> _Sequences:
        return _Sequences(self._engine, texts, halvings)

    def within_memory(self, work: Callable[[], None]) -> None:
        work()


@dataclass
class _Slot:
    """A sequence of the engine: the tokens in its cells, and those waiting to be decoded."""

    sequence: int
    cells: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    text: Text | None = None


class _Sequences:
    """`Slots` as sequences of one llama.cpp context."""

    def __init__(self, engine: LlamaEngine, texts: list[Text], halvings: int) -> None:
        # Sorted, so that prompts with a common prefix are adjacent.
        self._queue = sorted(texts, key=lambda t: t.prompt, reverse=True)
        cells = max(len(t.prompt) + t.request.sampling.max_tokens for t in texts)
        cells = -(-cells // 256) * 256  # llama.cpp rounds a sequence's cells up to this
        most = max(1, MOST_CACHE_BYTES // (cells * _bytes_per_cell(engine.model)))
        slots = min(slot_count(len(texts), halvings), most)
        self._slots = [_Slot(sequence) for sequence in range(slots)]
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(engine.vocab)
        self._shares = engine.shares_cells
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = cells * slots
        params.n_seq_max = slots
        params.n_batch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = engine.threads
        params.kv_unified = False  # one stream per sequence: attention reads only its own cells
        self._context = llama_cpp.llama_init_from_model(engine.model, params)
        if not self._context:
            raise NoRoomError
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def __enter__(self) -> _Sequences:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def step(self) -> list[tuple[Text, Logits | int]]:
        self._admit()
        self._compact()
        return self._decode()

    def settle(self) -> None:
        for slot in self._slots:
            if slot.text is None:
                continue
            if slot.text.answer is not None:
                slot.text = None
            elif not slot.waiting:
                slot.waiting.append(slot.text.drawn[-1])

    def _admit(self) -> None:
        """Give free slots to the next texts, each with the longest prefix that some slot has computed."""
        for slot in self._slots:
            if slot.text is not None or not self._queue:
                continue
            text = self._queue[-1]
            source, shared = slot, 0
            if self._shares:
                for other in self._slots:
                    length = common_start(other.cells, text.prompt)
                    if length > shared or (length == shared and other is slot):
                        source, shared = other, length
                coming = max((common_start(s.cells + s.waiting, text.prompt) for s in self._slots if s.text), default=0)
                if coming >= shared + MIN_SAVED_TOKENS:
                    return  # this step computes more of its prefix
            self._queue.pop()
            # The last prompt token is always decoded: its logits are needed.
            shared = min(shared, len(text.prompt) - 1)
            self._copy_cells(slot, source, shared)
            slot.cells = text.prompt[:shared]
            slot.waiting = text.prompt[shared:]
            slot.text = text

    def _compact(self) -> None:
        """Move texts from the last slots into free ones before them.

        llama.cpp batches only sequences with consecutive numbers: 24 sequences with gaps between
        them take longer than 32 without.
        """
        for hole, slot in enumerate(self._slots):
            if slot.text is not None:
                continue
            last = next((s for s in reversed(self._slots[hole + 1 :]) if s.text is not None), None)
            if last is None:
                return
            self._copy_cells(slot, last, len(last.cells))
            slot.cells, slot.waiting, slot.text = list(last.cells), last.waiting, last.text
            last.waiting, last.text = [], None

    def _copy_cells(self, slot: _Slot, source: _Slot, shared: int) -> None:
        """Make a slot hold just the first ``shared`` cells of ``source``, which may be the slot itself."""
        if shared == 0 or source is not slot:
            llama_cpp.llama_memory_seq_rm(self._memory, slot.sequence, -1, -1)
        if shared == 0:
            return
        if source is not slot:
            # Between streams only whole sequences can be copied; the surplus is removed below.
            llama_cpp.llama_memory_seq_cp(self._memory, source.sequence, slot.sequence, -1, -1)
        if not llama_cpp.llama_memory_seq_rm(self._memory, slot.sequence, shared, -1):
            raise BackendError("internal", "llama.cpp could not shorten a sequence", hint="report the model's name")

    def _decode(self) -> list[tuple[Text, Logits | int]]:
        """Decode waiting tokens, as many as fit in a batch; logits of the texts that have none left."""
        batch, place = self._batch, 0
        outputs: list[tuple[Text, int]] = []
        for slot in self._slots:
            if slot.text is None:
                continue
            taken = slot.waiting[: BATCH_TOKENS - place]
            del slot.waiting[: len(taken)]
            for token in taken:
                batch.token[place] = token
                batch.pos[place] = len(slot.cells)
                batch.n_seq_id[place] = 1
                batch.seq_id[place][0] = slot.sequence
                batch.logits[place] = 0
                slot.cells.append(token)
                place += 1
            if taken and not slot.waiting:
                batch.logits[place - 1] = 1
                outputs.append((slot.text, place - 1))
        batch.n_tokens = place
        if (code := llama_cpp.llama_decode(self._context, batch)) != 0:
            raise BackendError("internal", f"llama_decode returned {code}", retryable=code == 1)
        return [(text, self._logits(at)) for text, at in outputs]

    def _logits(self, place: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self._context, place)
        return np.ctypeslib.as_array(pointer, shape=(self._n_vocab,))


def _bytes_per_cell(model: Any) -> int:
    """Bytes of one token's keys and values (two bytes per number)."""
    heads = max(llama_cpp.llama_model_n_head(model), 1)
    width = llama_cpp.llama_model_n_embd(model) * llama_cpp.llama_model_n_head_kv(model) // heads
    return max(1, 2 * 2 * int(llama_cpp.llama_model_n_layer(model)) * int(width))
