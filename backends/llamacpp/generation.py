"""Generate many texts at once with llama.cpp: continuous batching through its low-level batch.

Each text has a slot, a sequence of its own in the engine. Every step decodes one token of each running
text, together with the prompts that have just joined. A finished text makes room at once. A new
prompt takes over the cells of the slot that shares the longest start with it, so that a
common start (an instruction, a chat template's head) is computed once.

Reproducible: the same batch of requests gives the same texts. A single request asked alone
gives the same text up to the engine's arithmetic: llama.cpp rounds differently in batches of another
size, which tips a near tie between two tokens now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import llama_cpp
import numpy as np

from backends.base import GenerateRequest, GenerateResponse, OnResponse, Prompt
from backends.errors import BackendError
from backends.local.backend import discard_response
from backends.local.sampling import Logits, Sampler, StopStringDecoder

SLOTS = 32  # measured on two cores: 64 slots are 4 % faster and take twice the memory
BATCH_TOKENS = 2048
WORTH_WAITING = 8  # tokens of a prompt saved by letting a batch-mate compute them first
MOST_CACHE_BYTES = 2 << 30


class Engine(Protocol):
    """What generation needs of a loaded llama.cpp model."""

    @property
    def model(self) -> Any: ...
    @property
    def vocab(self) -> Any: ...
    @property
    def shares_cells(self) -> bool: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def render(self) -> Callable[[Prompt], list[int]]: ...
    @property
    def token_bytes(self) -> Callable[[int], bytes]: ...


@dataclass
class _Text:
    """One request on its way."""

    index: int
    request: GenerateRequest
    prompt: list[int]
    sampler: Sampler = field(init=False)
    so_far: StopStringDecoder = field(init=False)
    drawn: int = 0

    def __post_init__(self) -> None:
        sampling = self.request.sampling
        self.sampler = Sampler(sampling, self.request.seed, self.request.repeat, self.prompt)
        self.so_far = StopStringDecoder(sampling.stop)


@dataclass
class _Slot:
    """A sequence of the engine: which tokens its cells hold, and those that wait to be decoded."""

    sequence: int
    cells: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    text: _Text | None = None


def generate(
    engine: Engine, requests: Sequence[GenerateRequest], tell: OnResponse = discard_response
) -> list[GenerateResponse | BackendError]:
    """One answer for each request, in order; ``tell`` hears of each text as it is finished.

    Memory: slots x the longest (prompt + max_tokens) cells of the model's cache; fewer slots are
    used where that would pass 2 GiB.
    """
    answers: list[GenerateResponse | BackendError | None] = [None] * len(requests)
    texts: list[_Text] = []
    for index, request in enumerate(requests):
        try:
            prompt = engine.render(request.prompt)
        except BackendError as error:  # a chat prompt for a model without chat template
            answers[index] = error
            continue
        if (refusal := _refuse(prompt, request, engine.n_ctx)) is not None:
            answers[index] = refusal
        else:
            texts.append(_Text(index, request, prompt))
    if texts:
        try:
            with _Batch(engine, texts) as batch:
                batch.run(answers, tell)
        except BackendError as failure:
            answers = [failure if answer is None else answer for answer in answers]
    return [answer for answer in answers if answer is not None]


def _refuse(prompt: list[int], request: GenerateRequest, n_ctx: int) -> BackendError | None:
    if not prompt:
        return BackendError("bad_request", "the prompt has no token", hint="give a prompt that is not empty")
    needed = len(prompt) + request.sampling.max_tokens
    if needed > n_ctx:
        return BackendError(
            "context_length",
            f"{len(prompt)} prompt tokens and {request.sampling.max_tokens} to generate pass the context of {n_ctx}",
            hint="raise n_ctx or lower max_tokens",
        )
    return None


class _Batch:
    """The engine's context for one call, its slots, and the loop over them."""

    def __init__(self, engine: Engine, texts: list[_Text]) -> None:
        self._engine = engine
        # Sorted, so that prompts with a common start follow each other.
        self._queue = sorted(texts, key=lambda t: t.prompt, reverse=True)
        cells = max(len(t.prompt) + t.request.sampling.max_tokens for t in texts)
        cells = -(-cells // 256) * 256  # llama.cpp rounds a sequence's cells up itself
        slots = min(SLOTS, len(texts), max(1, MOST_CACHE_BYTES // (cells * _bytes_a_cell(engine.model))))
        self._slots = [_Slot(sequence) for sequence in range(slots)]
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(engine.vocab)
        self._shares = engine.shares_cells
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = cells * slots
        params.n_seq_max = slots
        params.n_batch = BATCH_TOKENS
        params.n_threads = params.n_threads_batch = engine.threads
        params.kv_unified = False  # one stream a sequence: attention reads only its own cells
        self._context = llama_cpp.llama_init_from_model(engine.model, params)
        if not self._context:
            raise BackendError(
                "out_of_memory", f"no context for {slots} x {cells} cells", hint="lower n_ctx or max_tokens"
            )
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)

    def __enter__(self) -> _Batch:
        return self

    def __exit__(self, *_: object) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)

    def run(self, answers: list[GenerateResponse | BackendError | None], tell: OnResponse) -> None:
        """Fill in the answers of all texts, and tell of each."""
        while self._queue or any(slot.text for slot in self._slots):
            self._admit()
            self._compact_slots()
            for slot, logits in self._decode():
                answer: GenerateResponse | BackendError | None
                try:
                    answer = self._advance(slot, logits)
                except BackendError as error:  # of this text alone: the others go on
                    answer = error
                if answer is not None:
                    assert slot.text is not None
                    answers[slot.text.index] = answer
                    tell(slot.text.index, answer)
                    slot.text = None

    def _admit(self) -> None:
        """Give free slots to the next texts, each with the longest start that some slot has computed."""
        for slot in self._slots:
            if slot.text is not None or not self._queue:
                continue
            text = self._queue[-1]
            source, shared = slot, 0
            if self._shares:
                for other in self._slots:
                    length = _common_start(other.cells, text.prompt)
                    if length > shared or (length == shared and other is slot):
                        source, shared = other, length
                coming = max(
                    (_common_start(s.cells + s.waiting, text.prompt) for s in self._slots if s.text), default=0
                )
                if coming >= shared + WORTH_WAITING:
                    return  # the step under way computes more of it
            self._queue.pop()
            # The last prompt token is always decoded: its logits are needed.
            shared = min(shared, len(text.prompt) - 1)
            self._take_over(slot, source, shared)
            slot.cells = text.prompt[:shared]
            slot.waiting = text.prompt[shared:]
            slot.text = text

    def _compact_slots(self) -> None:
        """Move texts from the last slots into free ones before them.

        llama.cpp decodes together only sequences whose numbers follow each other: with holes between
        them, 24 sequences take longer than 32 without.
        """
        for hole, slot in enumerate(self._slots):
            if slot.text is not None:
                continue
            last = next((s for s in reversed(self._slots[hole + 1 :]) if s.text is not None), None)
            if last is None:
                return
            self._take_over(slot, last, len(last.cells))
            slot.cells, slot.waiting, slot.text = list(last.cells), last.waiting, last.text
            last.waiting, last.text = [], None

    def _take_over(self, slot: _Slot, source: _Slot, shared: int) -> None:
        if shared == 0 or source is not slot:
            llama_cpp.llama_memory_seq_rm(self._memory, slot.sequence, -1, -1)
        if shared == 0:
            return
        if source is not slot:
            # Between streams only whole sequences can be copied; what is too much is cut off below.
            llama_cpp.llama_memory_seq_cp(self._memory, source.sequence, slot.sequence, -1, -1)
        if not llama_cpp.llama_memory_seq_rm(self._memory, slot.sequence, shared, -1):
            raise BackendError("internal", "llama.cpp could not shorten a sequence", hint="report the model's name")

    def _decode(self) -> list[tuple[_Slot, Logits]]:
        """Decode what waits, as far as the batch has room; logits of the slots whose waiting tokens are done."""
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
        return [(slot, self._logits(at)) for slot, at in outputs]

    def _logits(self, place: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self._context, place)
        return np.ctypeslib.as_array(pointer, shape=(self._n_vocab,))

    def _advance(self, slot: _Slot, logits: Logits) -> GenerateResponse | None:
        """Draw the slot's next token; the answer if the text ends with it."""
        text = slot.text
        assert text is not None
        token = text.sampler.draw(logits)
        if llama_cpp.llama_vocab_is_eog(self._engine.vocab, token):
            return self._answer(text, stopped=True)
        text.drawn += 1
        stopped = text.so_far.add(self._engine.token_bytes(token))
        if stopped or text.drawn == text.request.sampling.max_tokens:
            return self._answer(text, stopped)
        slot.waiting.append(token)
        return None

    def _answer(self, text: _Text, stopped: bool) -> GenerateResponse:
        return GenerateResponse(text.so_far.text, "stop" if stopped else "length", len(text.prompt), text.drawn)


def _common_start(a: list[int], b: list[int]) -> int:
    """Number of leading tokens that are equal."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _bytes_a_cell(model: Any) -> int:
    """Bytes of keys and values (two bytes a number) of one token."""
    heads = max(llama_cpp.llama_model_n_head(model), 1)
    width = llama_cpp.llama_model_n_embd(model) * llama_cpp.llama_model_n_head_kv(model) // heads
    return max(1, 2 * 2 * int(llama_cpp.llama_model_n_layer(model)) * int(width))
