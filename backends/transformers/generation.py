"""Generate many texts at once with transformers: continuous batching over one block of cache.

The running texts are the rows of a batch, all ending in the same column of the cache, so that a step
writes one column and reads the columns before it in place:

    row 0   . . p p p p t t t        p prompt, t drawn token, . masked
    row 1   p p p p p p p p t
    row 2   . . . . . p p p p   ← joined just now: its prompt was computed apart, then laid here

A finished text's row goes to the next prompt in the queue at once; when the queue is empty the last row
moves into it and the batch shrinks. Prompts are computed in batches of similar length, and equal prompts
(repeats) once.

Models that leave out the cache, the mask or the positions would write other texts in such a batch than alone. So
each model is tried once, before its first text.

Reproducible: the same requests in one call give the same texts. A request asked alone gives the
same text up to float rounding, which differs between batch sizes and tips a near tie now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from backends.base import GenerateRequest, GenerateResponse, OnResponse, Prompt, Sampling
from backends.errors import BackendError
from backends.local.backend import discard_response
from backends.local.sampling import Logits, Sampler
from backends.transformers.context import context_length
from backends.transformers.memory import is_out_of_memory
from backends.transformers.precision import ROUNDING_OF_16_BITS, computes_in_float32

ROWS = 32  # measured on two cores: 64 rows are no faster and take twice the memory
PREFILL_TOKENS = 4096  # of one prompt batch, padding included
JOIN_TOGETHER = 4  # rows that must be free before prompts are computed, as long as others run
TRIAL_PROMPTS, TRIAL_STEPS = (9, 4), 3  # tokens of the lines that try a model, and how many are read one by one
CONTEXT_TOKENS = 4  # prompt tokens decoded along with a text, so that its first space is kept


@dataclass
class _Text:
    """One request on its way."""

    index: int
    request: GenerateRequest
    prompt: list[int]
    sampler: Sampler = field(init=False)
    drawn: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.request.sampling, self.request.seed, self.request.repeat, self.prompt)

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far."""
        return len(self.prompt) + len(self.drawn)


class TextGenerator:
    """Writes texts with one loaded model.

    Parameters
    ----------
    model, tokenizer
        A causal language model in eval mode, and its tokenizer.
    device : str
        Where ``model`` is.
    render : callable
        The tokens of a prompt.

    Attributes
    ----------
    halvings : int
        How often the number of rows is halved now, because memory ran out.
    """

    def __init__(self, model: Any, tokenizer: Any, *, device: str, render: Callable[[Prompt], list[int]]) -> None:
        self._model, self._tokenizer, self._device, self._render = model, tokenizer, device, render
        self.halvings = 0
        self._tried = False
        self._refusal: BackendError | None = None

    def generate(
        self, requests: Sequence[GenerateRequest], tell: OnResponse = discard_response
    ) -> list[GenerateResponse | BackendError]:
        """One answer for each request, in order; ``tell`` hears of each text as it is finished."""
        answers: list[GenerateResponse | BackendError | None] = [None] * len(requests)
        limit, _ = context_length(self._model.config)
        prompts: list[list[int]] = [[] for _ in requests]
        for index, request in enumerate(requests):
            try:
                prompts[index] = list(self._render(request.prompt))
                answers[index] = _refuse(prompts[index], request, limit)
            except BackendError as error:  # a chat prompt for a model without chat template
                answers[index] = error
        if any(answer is None for answer in answers) and (refusal := self._refuses()) is not None:
            answers = [refusal if answer is None else answer for answer in answers]
        self.halvings = max(0, self.halvings - 1)  # what did not fit may fit now: a miss costs a restart
        while waiting := [index for index, answer in enumerate(answers) if answer is None]:
            rows = min(max(1, ROWS >> self.halvings), len(waiting))
            texts = [_Text(index, requests[index], prompts[index]) for index in waiting]
            # One at a time, each has a block of its own size.
            if self._fits(texts if rows > 1 else texts[:1], answers, tell):
                continue
            if rows == 1:
                answers[waiting[0]] = _too_large()
            while rows > 1 and rows <= ROWS >> self.halvings:
                self.halvings += 1
        return [answer for answer in answers if answer is not None]

    def _refuses(self) -> BackendError | None:
        """Why this model writes no texts here, if so: found once."""
        if not self._tried:
            try:
                reason = _strange_cache(self._model) or self._try_together()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                return _too_large()
            self._tried = True
            if reason:
                hint = "use LlamaCppBackend or a server for this model"
                self._refusal = BackendError("unsupported", reason, hint=hint)
        return self._refusal

    def _try_together(self) -> str:
        """Compare two lines of unequal length, continued together, with a plain pass over each; what is wrong, if any.

        The logits of every step, not the tokens alone: a wrong position may leave the likeliest token where it is.
        """
        model = self._model
        random = np.random.default_rng(2)
        vocabulary = min(model.config.get_text_config().vocab_size, 1000)
        lines = [random.integers(3, vocabulary, n + TRIAL_STEPS).tolist() for n in TRIAL_PROMPTS]
        trial = _Trial(model, self._tokenizer, self._device, lines)
        apart = 0.0
        with torch.inference_mode():
            try:
                trial.run([None] * len(lines))
            except (TypeError, AttributeError, ValueError, LookupError, RuntimeError) as error:
                if is_out_of_memory(error):
                    raise
                return f"it cannot go on with several texts together: {error}"[:300]
            for line, steps in zip(lines, trial.seen, strict=True):
                ids = torch.tensor([line], device=self._device)
                plain = model(input_ids=ids, use_cache=False).logits[0, -len(steps) :].float().log_softmax(-1)
                distances = (torch.stack(steps).float().log_softmax(-1) - plain).abs()
                distances = distances.where(distances.isfinite(), 0)  # tokens ruled out; what overflows is told later
                # Not the worst step: in 16 bits rounding may send a single token to another expert.
                apart = max(apart, float(distances.mean(-1).median()))
        if apart > (1e-3 if computes_in_float32(model) else ROUNDING_OF_16_BITS):
            return f"its log-probabilities move by {apart:.2g} nats when texts of other lengths are written beside it"
        return ""

    def _fits(
        self,
        texts: list[_Text],
        answers: list[GenerateResponse | BackendError | None],
        tell: OnResponse,
    ) -> bool:
        """Fill in the answers of these texts, of some of them only when memory runs out."""
        try:
            with torch.inference_mode():
                _Batch(self._model, self._tokenizer, self._device, texts, self.halvings, tell).run(answers)
            return True
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # The error is gone by now, and with it the tensors that its frames held.
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()
        return False


def _too_large() -> BackendError:
    return BackendError(
        "out_of_memory",
        "one text at a time does not fit",
        hint="lower max_tokens, or use a smaller dtype or model",
    )


def _refuse(prompt: list[int], request: GenerateRequest, limit: int | None) -> BackendError | None:
    if not prompt:
        return BackendError("bad_request", "the prompt has no token", hint="give a prompt that is not empty")
    if limit is not None and len(prompt) + request.sampling.max_tokens > limit:
        return BackendError(
            "context_length",
            f"{len(prompt)} prompt tokens and {request.sampling.max_tokens} to generate pass the context of {limit}",
            hint="lower max_tokens",
        )
    return None


class _Columns:
    """Which rows and columns of the block are in use: shared by all layers."""

    def __init__(self, rows: int, capacity: int, end: int) -> None:
        self.capacity, self.rows, self.start, self.end = capacity, rows, end, end


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's block of keys and values: (rows, heads, capacity, head size), written in place."""

    is_sliding = False

    def __init__(self, columns: _Columns, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self._columns = columns
        shape = (columns.rows, keys.shape[1], columns.capacity)
        # Zeros, not empty: a masked cell is multiplied by zero, and empty memory may hold a NaN.
        self.keys = keys.new_zeros(*shape, keys.shape[-1])
        self.values = values.new_zeros(*shape, values.shape[-1])
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        return

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        at = self._columns
        rows = key_states.shape[0]
        self.keys[:rows, :, at.end : at.end + 1] = key_states
        self.values[:rows, :, at.end : at.end + 1] = value_states
        return self.keys[:rows, :, at.start : at.end + 1], self.values[:rows, :, at.start : at.end + 1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._columns.end - self._columns.start

    def get_max_length(self) -> int:
        return -1

    def lay(self, row: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put one prompt (heads, tokens, head size) into a row, so that it ends where all rows end."""
        end, length = self._columns.end, keys.shape[1]
        self.keys[row, :, end - length : end] = keys
        self.values[row, :, end - length : end] = values

    def clear_rows(self, start: int, end: int) -> None:
        self.keys[start:end].zero_()
        self.values[start:end].zero_()

    def move_row(self, source: int, target: int) -> None:
        self.keys[target] = self.keys[source]
        self.values[target] = self.values[source]

    def move_columns(self, start: int, end: int, to: int) -> None:
        for block in (self.keys, self.values):
            block[:, :, to : to + end - start] = block[:, :, start:end].clone()


class _Batch:
    """The running rows, the queue, and the loop over them."""

    def __init__(
        self, model: Any, tokenizer: Any, device: str, texts: list[_Text], halvings: int, tell: OnResponse
    ) -> None:
        self._model, self._tokenizer, self._device, self._tell = model, tokenizer, device, tell
        # Similar lengths together waste little padding; equal prompts follow each other.
        self._queue = sorted(texts, key=lambda t: (len(t.prompt), t.prompt))
        self._rows: list[_Text] = []
        self._longest = max(len(t.prompt) for t in texts)
        most = max(t.request.sampling.max_tokens for t in texts)
        self._prefill_tokens = max(1, PREFILL_TOKENS >> halvings)
        rows = min(max(1, ROWS >> halvings), len(texts))
        # Room for two full answers, so that columns are moved back rarely.
        self._columns = _Columns(rows, self._longest + 2 * most + 1, self._longest)
        self._layers: dict[int, _Layer] = {}
        self._ends = _end_tokens(model, tokenizer)

    def run(self, answers: list[GenerateResponse | BackendError | None]) -> None:
        """Fill in the answers of all texts."""
        while self._queue or self._rows:
            free = self._columns.rows - len(self._rows)
            if self._queue and (free >= min(JOIN_TOGETHER, len(self._queue)) or not self._rows):
                self._join(free, answers)
            if self._rows:
                self._draw(self._rows, self._step(), answers)
                self._shrink(answers)

    def _join(self, free: int, answers: list[GenerateResponse | BackendError | None]) -> None:
        """Compute the next prompts, draw their first tokens, and lay them into free rows."""
        size = max(1, min(free, self._prefill_tokens // len(self._queue[min(free, len(self._queue)) - 1].prompt)))
        new, self._queue = self._queue[:size], self._queue[size:]
        distinct = {tuple(t.prompt): i for i, t in reversed(list(enumerate(new)))}
        place = {prompt: at for at, prompt in enumerate(distinct)}
        width = max(map(len, distinct))
        ids = torch.zeros((len(distinct), width), dtype=torch.long)
        mask = torch.zeros((len(distinct), width), dtype=torch.long)
        for at, prompt in enumerate(distinct):
            ids[at, width - len(prompt) :] = torch.tensor(prompt)
            mask[at, width - len(prompt) :] = 1
        cache = DynamicCache()  # without the config it keeps all tokens of sliding-window layers too
        out = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(self._device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        # A layer that uses another one's keys and values has none of its own.
        kept = {at: layer for at, layer in enumerate(cache.layers) if layer.keys is not None}
        if not kept:
            raise ValueError("it keeps nothing in the cache that it is given")
        if not self._layers:
            self._layers = {at: _Layer(self._columns, layer.keys, layer.values) for at, layer in kept.items()}
        logits = out.logits[:, -1]
        self._draw(new, logits[[place[tuple(t.prompt)] for t in new]], answers)
        for text in new:
            if answers[text.index] is None:
                at, length = place[tuple(text.prompt)], len(text.prompt)
                for place_of_layer, layer in kept.items():
                    keys, values = layer.keys[at, :, -length:], layer.values[at, :, -length:]
                    self._layers[place_of_layer].lay(len(self._rows), keys, values)
                self._rows.append(text)

    def _step(self) -> torch.Tensor:
        """Feed each row its newest token; logits of shape (rows, vocabulary)."""
        columns = self._columns
        # The newest token has been drawn and is not in the cache yet.
        kept = [text.length - 1 for text in self._rows]
        if columns.end == columns.capacity:
            width = max(kept)
            target = max(self._longest, width)
            for layer in self._layers.values():
                layer.move_columns(columns.end - width, columns.end, target - width)
            columns.end = target
        columns.start = columns.end - max(kept)
        width = columns.end - columns.start + 1
        lengths = torch.tensor(kept).unsqueeze(1)
        mask = torch.arange(width).unsqueeze(0) >= width - 1 - lengths
        out = self._model(
            input_ids=torch.tensor([[text.drawn[-1]] for text in self._rows], device=self._device),
            attention_mask=mask.long().to(self._device),
            position_ids=lengths.to(self._device),
            past_key_values=Cache(layers=[self._layers.get(at, DummyLayer()) for at in range(max(self._layers) + 1)]),
            use_cache=True,
            logits_to_keep=1,
        )
        columns.end += 1
        logits: torch.Tensor = out.logits[:, -1]
        return logits

    def _draw(
        self, texts: list[_Text], logits: torch.Tensor, answers: list[GenerateResponse | BackendError | None]
    ) -> None:
        """Draw each text's next token; fill in the answers of those that end with it."""
        # A NaN is the highest of its row, as +inf is; -inf alone is a token that is ruled out. Read together: one wait.
        sound = logits.amax(-1).isfinite()
        likeliest, are_sound = torch.stack([logits.argmax(-1), sound.long()]).tolist()
        host: Logits | None = None
        for row, text in enumerate(texts):
            if not are_sound[row]:
                answers[text.index] = BackendError(
                    "internal",
                    f"the model's output is no distribution over the token after {text.length}",
                    hint="try float32",
                )
                continue
            if text.sampler.is_greedy:
                token = int(likeliest[row])
            else:
                if host is None:
                    host = logits.float().cpu().numpy()
                token = text.sampler.draw(np.asarray(host[row]))
            if token in self._ends:
                answers[text.index] = self._answer(text, "stop")
                continue
            text.drawn.append(token)
            sampling = text.request.sampling
            if sampling.stop and (found := self._stopped(text)) is not None:
                answers[text.index] = GenerateResponse(found, "stop", len(text.prompt), len(text.drawn))
            elif len(text.drawn) == sampling.max_tokens:
                answers[text.index] = self._answer(text, "length")
        for text in texts:
            answer = answers[text.index]
            if isinstance(answer, GenerateResponse):
                self._tell(text.index, answer)

    def _shrink(self, answers: list[GenerateResponse | BackendError | None]) -> None:
        """Drop finished rows; the last row moves into the place of each."""
        before = len(self._rows)
        failed = any(isinstance(answers[text.index], BackendError) for text in self._rows)
        row = 0
        while row < len(self._rows):
            if answers[self._rows[row].index] is None:
                row += 1
                continue
            last = self._rows.pop()
            if row < len(self._rows):
                self._rows[row] = last
                for layer in self._layers.values():
                    layer.move_row(len(self._rows), row)
        if failed:  # a NaN left in a free row would reach the next text there, even from a masked cell
            for layer in self._layers.values():
                layer.clear_rows(len(self._rows), before)

    def _answer(self, text: _Text, reason: Any) -> GenerateResponse:
        return GenerateResponse(self._decoded(text), reason, len(text.prompt), len(text.drawn))

    def _decoded(self, text: _Text) -> str:
        """The drawn tokens as text.

        Some tokenizers drop a space at the start of what they decode: a few prompt tokens go first
        and are cut off again.
        """
        decode = self._tokenizer.decode
        before = text.prompt[-CONTEXT_TOKENS:]
        head = decode(before, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        whole = decode(before + text.drawn, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        if head and whole.startswith(head):
            return str(whole[len(head) :])
        return str(decode(text.drawn, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _stopped(self, text: _Text) -> str | None:
        """The text up to its first stop string, or None without one."""
        decoded = self._decoded(text)
        found = [at for stop in text.request.sampling.stop if (at := decoded.find(stop)) >= 0]
        return decoded[: min(found)] if found else None


class _Trial(_Batch):
    """Reads given lines on from their prompts, drawing nothing, and keeps the logits of each step.

    Attributes
    ----------
    seen : list of list
        For each line its logits, after the prompt and after each later token.
    """

    def __init__(self, model: Any, tokenizer: Any, device: str, lines: list[list[int]]) -> None:
        request = GenerateRequest("", Sampling(max_tokens=TRIAL_STEPS))
        texts = [_Text(at, request, line[:-TRIAL_STEPS]) for at, line in enumerate(lines)]
        super().__init__(model, tokenizer, device, texts, 0, discard_response)
        self._lines = lines
        self.seen: list[list[torch.Tensor]] = [[] for _ in lines]

    def _draw(
        self, texts: list[_Text], logits: torch.Tensor, answers: list[GenerateResponse | BackendError | None]
    ) -> None:
        for row, text in enumerate(texts):
            self.seen[text.index].append(logits[row])
            if len(text.drawn) == TRIAL_STEPS:
                answers[text.index] = GenerateResponse("", "length")
            else:
                text.drawn.append(self._lines[text.index][text.length])


def _strange_cache(model: Any) -> str:
    """What a model's cache is beside keys and values, if it is more: a recurrent state cannot be laid into a row.

    A dummy is no cache at all: its layer uses another one's.
    """
    for layer in DynamicCache(config=model.config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer, DummyLayer):
            return f"a layer of this model keeps a {type(layer).__name__}, not keys and values"
    return ""


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end a text, from the generation config and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or ())
    return frozenset(found)
