"""Texts on llama.cpp, many at once through its low-level batch, drawn by llama.cpp's own seeded samplers.

Each running text has a slot, a sequence of its own in the engine. Every step decodes one token of each running
text, together with the prompts that have just joined. A finished text frees its slot at once. A new prompt copies
the cells of the slot that shares the longest prefix with it, so that a common prefix (an instruction, the head of a
chat template) is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import llama_cpp
import numpy as np

from backends.base import Prompt
from backends.errors import BackendError
from backends.llamacpp.engine import LlamaEngine
from backends.local.generation import NoRoomError, Tell, Text, no_distribution
from backends.local.trie import common_start

SLOTS = 32  # measured on two cores: 64 are at most 4 % faster and take twice the memory
BATCH_TOKENS = 2048
MIN_SAVED_TOKENS = 8  # a prompt waits a step if another text of the batch then computes this many more of its tokens
MOST_CACHE_BYTES = 2 << 30
_RANDOM_SEED = 0xFFFFFFFF  # llama.cpp would replace it by one of its own


class LlamaGeneration:
    """`backends.local.generation.TextEngine` over a model loaded by llama.cpp.

    Memory: slots × the longest (prompt + max_tokens) cells of the model's cache; fewer slots are used if that would
    exceed 2 GiB.
    """

    route = ""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        self.context: int | None = engine.n_ctx
        self.vocabulary: int = llama_cpp.llama_vocab_n_tokens(engine.vocab)

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt."""
        return self._engine.render(prompt)

    def groups(self, texts: list[Text], most: int) -> Iterator[list[Text]]:
        """All texts together: as one ends, the next takes its slot."""
        if texts:
            yield texts

    def write(self, texts: list[Text], most: int, tell: Tell, is_stopped: Callable[[], bool]) -> None:
        """As in `backends.local.generation.TextEngine`."""
        slots = _Slots(self._engine, texts, min(most, SLOTS))
        try:
            while slots.are_needed() and not is_stopped():
                for text in slots.step():
                    tell(text)
        finally:
            slots.close()


@dataclass
class _Slot:
    """A sequence of the engine: the tokens in its cells, and those waiting to be decoded."""

    sequence: int
    cells: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    text: Text | None = None
    sampler: Any = None


class _Slots:
    """The texts of one call, those waiting and those running, in one llama.cpp context."""

    def __init__(self, engine: LlamaEngine, texts: list[Text], most: int) -> None:
        self._engine = engine
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(engine.vocab)
        # Sorted, so that prompts with a common prefix are adjacent.
        self._queue = sorted(texts, key=lambda t: t.prompt, reverse=True)
        cells = -(-max(text.most_tokens for text in texts) // 256) * 256  # llama.cpp rounds them up to this
        room = MOST_CACHE_BYTES // (cells * _bytes_per_cell(engine.model))
        count = max(1, min(len(texts), most, room))
        self._slots = [_Slot(sequence) for sequence in range(count)]
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = cells * count
        params.n_seq_max = count
        params.n_batch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = engine.threads
        params.kv_unified = False  # one stream per sequence: attention reads only its own cells
        self._context = llama_cpp.llama_init_from_model(engine.model, params)
        if not self._context:
            raise NoRoomError
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def close(self) -> None:
        """Free the context."""
        for slot in self._slots:
            if slot.sampler is not None:
                llama_cpp.llama_sampler_free(slot.sampler)
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def are_needed(self) -> bool:
        """Whether any text waits or runs."""
        return bool(self._queue) or any(slot.text for slot in self._slots)

    def step(self) -> Iterator[Text]:
        """Decode once; gives the texts that this ends."""
        self._admit()
        for slot, place in self._decode():
            text = slot.text
            assert text is not None
            self._advance(slot, text, place)
            if text.answer is not None:
                llama_cpp.llama_sampler_free(slot.sampler)
                slot.text = slot.sampler = None
                yield text

    def _admit(self) -> None:
        """Give free slots to the next texts, each with the longest prefix that some slot has computed."""
        for slot in self._slots:
            if slot.text is not None or not self._queue:
                continue
            text = self._queue[-1]
            source, shared = slot, 0
            if self._engine.shares_cells:
                source = max(self._slots, key=lambda other: (common_start(other.cells, text.prompt), other is slot))
                shared = common_start(source.cells, text.prompt)
                coming = max((common_start(s.cells + s.waiting, text.prompt) for s in self._slots if s.text), default=0)
                if coming >= shared + MIN_SAVED_TOKENS:
                    return  # this step computes more of its prefix
            self._queue.pop()
            # The last prompt token is always decoded: its logits are needed.
            shared = min(shared, len(text.prompt) - 1)
            self._copy_cells(slot, source, shared)
            slot.cells, slot.waiting = text.prompt[:shared], text.prompt[shared:]
            slot.text, slot.sampler = text, _sampler(text, self._vocabulary)

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

    def _decode(self) -> list[tuple[_Slot, int]]:
        """Decode waiting tokens, as many as fit in a batch; the slots that have none left, with their logits' place."""
        batch, place = self._batch, 0
        outputs: list[tuple[_Slot, int]] = []
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
                outputs.append((slot, place - 1))
        batch.n_tokens = place
        if (code := llama_cpp.llama_decode(self._context, batch)) != 0:
            raise BackendError("internal", f"llama_decode returned {code}", retryable=code == 1)
        return outputs

    def _advance(self, slot: _Slot, text: Text, place: int) -> None:
        """Draw a text's next token, and finish the text if this ends it."""
        logits = np.ctypeslib.as_array(
            llama_cpp.llama_get_logits_ith(self._context, place),
            shape=(self._vocabulary,),
        )
        if not np.isfinite(peak := logits.max()):
            text.answer = no_distribution(float(peak))
            return
        token = llama_cpp.llama_sampler_sample(slot.sampler, self._context, place)
        ends = bool(llama_cpp.llama_vocab_is_eog(self._engine.vocab, token))
        text.take(token, self._engine.visible(token), ends=ends)
        slot.waiting.append(token)


def _sampler(text: Text, vocabulary: int) -> Any:
    """llama.cpp's samplers for one text, in the order of `backends.base.Sampling`."""
    sampling = text.request.sampling
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    steps = []
    if sampling.repetition_penalty != 1:
        steps.append(
            llama_cpp.llama_sampler_init_penalties(vocabulary, text.most_tokens, sampling.repetition_penalty, 0.0, 0.0)
        )
    if sampling.temperature == 0:
        steps.append(llama_cpp.llama_sampler_init_greedy())
    else:
        steps.append(llama_cpp.llama_sampler_init_temp(sampling.temperature))
        if sampling.top_k:
            steps.append(llama_cpp.llama_sampler_init_top_k(sampling.top_k))
        if sampling.top_p < 1:
            steps.append(llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1))
        steps.append(llama_cpp.llama_sampler_init_dist(text.key % _RANDOM_SEED))
    for step in steps:
        llama_cpp.llama_sampler_chain_add(chain, step)
    if sampling.repetition_penalty != 1:  # it applies to the prompt too
        for token in text.prompt:
            llama_cpp.llama_sampler_accept(chain, token)
    return chain


def _bytes_per_cell(model: Any) -> int:
    """Bytes of one token's keys and values (two bytes per number)."""
    heads = max(llama_cpp.llama_model_n_head(model), 1)
    width = llama_cpp.llama_model_n_embd(model) * llama_cpp.llama_model_n_head_kv(model) // heads
    return max(1, 2 * 2 * int(llama_cpp.llama_model_n_layer(model)) * int(width))
