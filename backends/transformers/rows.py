"""Text generation on transformers: continuous batching over one block of cache.

The running texts are the rows of a batch, all ending in the same column of the cache, so that a step
writes one column and reads the columns before it in place:

    row 0   . . p p p p t t t        p prompt, t sampled token, . masked
    row 1   p p p p p p p p t
    row 2   . . . . . p p p p   ← has just joined: its prompt was computed separately, then copied here

A finished text's row goes to the next prompt in the queue at once; when the queue is empty, the last row
moves into it and the batch shrinks. Prompts are computed in batches of similar length, and equal prompts
(repeats) only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DummyLayer, DynamicCache

from backends.errors import BackendError
from backends.local.generation import Text, slot_count
from backends.local.sampling import Logits
from backends.transformers.outputs import next_tokens

PREFILL_TOKENS = 4096  # of one prompt batch, padding included
JOIN_TOGETHER = 4  # while texts run, this many rows must be free before prompts are computed


class _Columns:
    """Which rows and columns of the block are in use; shared by all layers."""

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

    def write_prompt(self, row: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copy one prompt (heads, tokens, head size) into a row, so that it ends where all rows end."""
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


@dataclass
class _Prefilled:
    """Texts whose prompts have just been computed, before they are copied into rows.

    Attributes
    ----------
    place : prompt → its row in the prefill's cache
    layers : layer → (keys, values), each (prompts, heads, tokens, head size)
    """

    texts: list[Text]
    place: dict[tuple[int, ...], int]
    layers: dict[int, tuple[torch.Tensor, torch.Tensor]]


def columns_of(texts: list[Text]) -> int:
    """How many columns a block has for these texts: room for two full answers, so that they are rarely moved back."""
    return max(len(t.prompt) for t in texts) + 2 * max(t.request.sampling.max_tokens for t in texts) + 1


class RowBlock:
    """`Slots` as rows of one block of cache.

    Parameters
    ----------
    model
        A causal language model in eval mode, on ``device``.
    texts : list of Text
    halvings : int
        How many times the usual numbers of rows and prompt tokens are halved.

    Raises
    ------
    ValueError
        From `forward`, for a model that does not use the cache that it is given.
    """

    def __init__(self, model: Any, device: str, texts: list[Text], halvings: int) -> None:
        self._model, self._device = model, device
        # Sorted by length to waste little padding, and so that equal prompts are adjacent.
        self._queue = sorted(texts, key=lambda t: (len(t.prompt), t.prompt))
        self._rows: list[Text] = []
        self._prefilled: _Prefilled | None = None
        self._has_joined = False  # since the last step of the rows
        self._longest = max(len(t.prompt) for t in texts)
        self._prefill_tokens = max(1, PREFILL_TOKENS >> halvings)
        self._columns = _Columns(slot_count(len(texts), halvings), columns_of(texts), self._longest)
        self._layers: dict[int, _Layer] = {}

    def step(self) -> list[tuple[Text, Logits | int]]:
        return next_tokens(*self.forward())

    def forward(self) -> tuple[list[Text], torch.Tensor]:
        """One forward pass, over the next prompts or each row's newest token. Logits: (texts, vocabulary)."""
        free = self._columns.rows - len(self._rows)
        may_join = not self._has_joined and free >= min(JOIN_TOGETHER, len(self._queue))
        if self._queue and (may_join or not self._rows):
            return self._forward_prompts(free)
        return self._rows, self._forward_rows()

    def settle(self) -> None:
        self._has_joined = self._prefilled is not None
        if self._prefilled is not None:
            self._write_prompts(self._prefilled)
            self._prefilled = None
        else:
            self._shrink()

    def _forward_prompts(self, free: int) -> tuple[list[Text], torch.Tensor]:
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
        cache = DynamicCache()  # without the config, it also keeps all tokens of sliding-window layers
        out = self._model(
            input_ids=ids.to(self._device),
            attention_mask=mask.to(self._device),
            position_ids=(mask.cumsum(1) - 1).clamp(min=0).to(self._device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        # A layer that shares another one's keys and values has none of its own.
        layers = {at: (layer.keys, layer.values) for at, layer in enumerate(cache.layers) if layer.keys is not None}
        if not layers:
            raise ValueError("it does not use the cache that it is given")
        self._prefilled = _Prefilled(new, place, layers)
        return new, out.logits[:, -1][[place[tuple(t.prompt)] for t in new]]

    def _write_prompts(self, prefilled: _Prefilled) -> None:
        """Copy the prompts of texts without an answer into free rows."""
        if not self._layers:
            self._layers = {at: _Layer(self._columns, *state) for at, state in prefilled.layers.items()}
        for text in prefilled.texts:
            if text.answer is not None:
                continue
            at, length = prefilled.place[tuple(text.prompt)], len(text.prompt)
            for layer, (keys, values) in prefilled.layers.items():
                self._layers[layer].write_prompt(len(self._rows), keys[at, :, -length:], values[at, :, -length:])
            self._rows.append(text)

    def _forward_rows(self) -> torch.Tensor:
        columns = self._columns
        # The newest token has been sampled but is not in the cache yet.
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

    def _shrink(self) -> None:
        """Drop finished rows; the last row takes the place of each."""
        before = len(self._rows)
        failed = any(isinstance(text.answer, BackendError) for text in self._rows)
        row = 0
        while row < len(self._rows):
            if self._rows[row].answer is None:
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
