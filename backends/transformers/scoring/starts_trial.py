"""Tries whether a model may read the starts that rows share once, by comparison with rows read alone.

Rows part at several places, short of lengths at which a model's layers change and beyond them: windows, and the chunks
in which recurrent layers compute. What has not been tried is not used.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from backends.local.generation import NoRoomError
from backends.local.trie import Path, Trie, common_start
from backends.transformers.cached_state import cache_name, why_unknown
from backends.transformers.context import alike_places, changes_with_length, context_length
from backends.transformers.memory import is_divided, is_out_of_memory
from backends.transformers.precision import computes_in_float32
from backends.transformers.scoring.batch import BatchRoute, rows_of_leaves
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.shared_starts import SharedStarts
from backends.transformers.scoring.starts import Costs
from backends.transformers.scoring.trials import (
    MORE_ROUNDING,
    Floats,
    logprobs_alone,
    mean_abs_diff,
    rounding,
    trial_vocabulary,
)
from backends.transformers.scoring.twin import PACKAGES
from backends.transformers.weight_layout import in_float32

#: Chunks of recurrent layers whose code alone says how long they are.
USUAL_CHUNKS = (64, 256)
MOST_TRIED = 300  # tokens: a boundary beyond bounds the texts, since a trial of so many would take too long
_LEAST_ROOM = 64  # tokens that a model must read at least
_PARTS = ("window", "chunk", "block", "segment")  # of the names under which models keep such lengths
_REST = 9  # tokens behind a start, at most
_SHORT, _FEW_TOKENS = 60, 12

#: Of the trial: each start is read once, however short.
_BLOCKS, _STEPS = Costs(0), Costs(0, of_row=1000, blocks=False, steps=True)
_SHORT_STEPS = Costs(0, of_row=1000, steps=True)

_Tries = list[list[tuple[int, ...]]]


def try_starts(batch: BatchRoute, starts: SharedStarts, reader: LogitReader) -> str:
    """Choose how the batch route reads shared starts, if at all. Returns what reports say of it.

    Raises
    ------
    NoRoomError
        If memory runs out.
    """
    if reason := _why_never(reader):
        return f"; starts that texts share are read with each of them: {reason}"
    rows = _Rows(reader)
    starts.together = batch.together
    usual, wrong = starts.costs, ""
    ways = ((_BLOCKS, True), (_BLOCKS, False), (_STEPS, True))
    for starts.costs, starts.pads in ways:
        if not (found := _what_is_wrong(starts, rows, rows.tries)):
            break
        wrong = wrong or found
    else:
        starts.costs = usual
        return f"; starts that texts share are read with each of them: {wrong}"
    blocks = starts.costs.blocks
    if blocks:  # a step may be cheaper for a short rest
        starts.costs = _SHORT_STEPS
        steps = not _what_is_wrong(starts, rows, rows.short_tries)
    else:
        steps = True
    starts.costs = Costs(usual.of_pass, _cost_of_row(reader, blocks), blocks, steps)
    starts.longest = rows.longest
    batch.starts = starts
    told = "; a start that texts share is read once, with the model's own cache"
    told += "" if blocks else ", and what follows it token by token"
    return told + (f" (of texts up to {rows.longest} tokens)" if rows.longest else "")


def _cost_of_row(reader: LogitReader, blocks: bool) -> float:
    """What a row of a block costs beside its tokens: recurrent layers compute whole chunks of each.

    Measured on a CPU: 75 tokens for chunks of 256 (Falcon H1), 12 for those of 64 (Qwen3.5).
    """
    chunks = [getattr(module, "chunk_size", None) for module in reader.model.modules()]
    numbers = [chunk for chunk in chunks if type(chunk) is int]
    return max(numbers) / 4 if numbers else USUAL_CHUNKS[0] / 4 if blocks else 2


def _why_never(reader: LogitReader) -> str:
    """Why no trial could show that a model's cache is right; empty if one may."""
    model = reader.model
    if cache_name(model) is None:
        return "it takes no cache"
    if any(type(module).__module__.partition(".")[0] not in PACKAGES for module in model.modules()):
        return "it has code of its own"
    if is_divided():
        return "it is divided over processes"
    if alike_places(model.config) is not None or changes_with_length(model.config):
        return "its places depend on how much is read"
    room = context_length(model.config)[0]
    if room is not None and room < _LEAST_ROOM:
        return f"it reads {room} tokens"
    try:
        ids = torch.arange(3, 12, device=reader.device)[None] % reader.vocabulary
        _, cache = reader.logits_and_cache(ids, None, torch.tensor([0], device=reader.device))
        reader.tokens_computed += ids.numel()
    except Exception as error:  # foreign code
        if is_out_of_memory(error):
            raise NoRoomError from None
        return f"it cannot return its cache ({type(error).__name__})"
    return why_unknown(cache)


class _Rows:
    """The rows of the trial.

    Attributes
    ----------
    reader : LogitReader
    longest : int or None
        How long texts may be, by boundaries that are too far for a trial.
    tries, short_tries : list of lists of lines
        Lines that are read together; those whose rests are short.
    """

    def __init__(self, reader: LogitReader) -> None:
        self.reader, self._seen = reader, dict[tuple[int, ...], Floats]()
        self._random = np.random.default_rng(3)
        self._most = trial_vocabulary(reader)
        room = context_length(reader.model.config)[0] or 10 * MOST_TRIED
        boundaries = _boundaries(reader)
        far = [at for at in boundaries if at > MOST_TRIED and at < room]
        self.longest = min(far) - 1 if far else None
        near = sorted(at for at in boundaries if at <= min(MOST_TRIED, room - _REST - 2))
        # Some models count places by the tokens that are no padding.
        special = [0, 1, 2, getattr(reader.config, "pad_token_id", None) or 0]
        self._special = tuple(token for token in special if 0 <= token < self._most)
        self._line = self._drawn(max([*near, 20]) + 1 + _REST)
        self._near = near
        often, along, *once = [*self._parting_often(), *self._parting_once()]
        self.tries = [often, along, *once]
        self.short_tries = [often, *once[1:]]

    @cached_property
    def in_float32(self) -> _Rows | None:
        """The same for a copy of the model in float32, if there can be one."""
        copied = in_float32(self.reader.model)
        if copied is None:
            return None
        precise = copy.copy(self)
        precise.reader, precise._seen = self.reader.of(copied), {}
        return precise

    def alone(self, lines: list[tuple[int, ...]]) -> list[Floats | None]:
        """The log-probabilities of what the lines do not share, read alone or in a line that begins so.

        None for a long one that would take a pass of its own: it is there so that the others part.
        """
        shared = _shared(lines)
        found = [self._alone(line) for line in lines]
        return [None if values is None else values[shared:] for values in found]

    def _alone(self, line: tuple[int, ...]) -> Floats | None:
        for other, values in self._seen.items():
            if other[: len(line)] == line:
                return values[: len(line) - 1]
        if any(common_start(line, other) > _SHORT for other in self._seen):
            return None
        try:
            self._seen[line] = logprobs_alone(self.reader, line)
        except Exception as error:  # foreign code: a model's limit of length may stand in no config
            if is_out_of_memory(error):
                raise
            self._seen[line] = np.full(len(line) - 1, np.nan)
        return self._seen[line]

    def _drawn(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.integers(3, self._most, count).tolist())

    def _parting_often(self) -> Iterator[list[tuple[int, ...]]]:
        """Starts within starts, and rests of several lengths behind each."""
        stem, longer = self._drawn(9) + self._special + self._drawn(7), self._drawn(13)
        yield [stem + self._drawn(n) for n in (7, 2, 5)] + [stem + longer + self._drawn(n) for n in (1, 8, 3, 4)]
        line = self._line
        yield [line] + [line[:at] + self._drawn(3) for at in sorted({5, *(n + d for n in self._near for d in (-1, 1))})]

    def _parting_once(self) -> Iterator[list[tuple[int, ...]]]:
        """A start that ends at a boundary, and one short of all of them: its rest crosses them."""
        line = self._line
        for at in sorted({10, *(n + d for n in self._near for d in (0, 1))}):
            if 1 < at < len(line) - 1:
                yield [line[: at + _REST] if at > 10 else line, line[:at] + self._drawn(2)]


def _boundaries(reader: LogitReader) -> set[int]:
    """Lengths at which a model may begin to compute otherwise, by its config and its modules' own numbers."""
    places = [reader.config.to_dict(), *(vars(module) for module in reader.model.modules())]
    named = {
        value
        for place in places
        for name, value in place.items()
        if type(value) is int and any(part in name for part in _PARTS)
    }
    return {*USUAL_CHUNKS, *(value for value in named if value > 2)}


def _what_is_wrong(starts: SharedStarts, rows: _Rows, tries: _Tries) -> str:
    """What differs from rows read alone; empty if nothing does.

    In 16 bits a lost state may move numbers by little more than rounding: so the same is tried on a copy in float32,
    and in 16 bits the numbers have to be as near to the copy's as those of rows read alone.
    """
    if not computes_in_float32(rows.reader.model):
        return _what_is_wrong_in_16_bits(starts, rows, tries)
    for lines in tries:
        moved = _moved(_read(starts, lines), rows.alone(lines))
        if not moved < rounding(rows.reader):  # NaN is not
            return _said(moved)
    return ""


def _what_is_wrong_in_16_bits(starts: SharedStarts, rows: _Rows, tries: _Tries) -> str:
    precise = rows.in_float32
    if precise is None:
        return "it computes in 16 bits or fewer, and there is no copy in float32 to compare with"
    beside = SharedStarts(precise.reader, starts.size)
    beside.costs, beside.pads, beside.together = starts.costs, starts.pads, starts.together
    if wrong := _what_is_wrong(beside, precise, tries):
        return wrong
    alone, exact = ([values for lines in tries for values in one.alone(lines)] for one in (rows, precise))
    found = [values for lines in tries for values in _read(starts, lines)]
    moved = _moved(found, alone)
    usual, farther = (_moved(values, exact, np.mean) for values in (alone, found))
    return "" if moved < rounding(rows.reader) and farther <= MORE_ROUNDING * usual else _said(moved)


def _said(moved: float) -> str:
    if np.isnan(moved):
        return "it cannot go on from its cache"
    return f"with its cache its log-probabilities change by {moved:.2g} nats"


def _read(starts: SharedStarts, lines: list[tuple[int, ...]]) -> list[Floats]:
    """The log-probabilities of what these lines do not share; NaN where one could not be read behind a start.

    Of short ones in passes of a few tokens, so that several passes go on from one start.
    """
    trie = Trie([Path(line, 1) for line in lines])
    answers = np.full(len(trie.ask_nodes), np.nan)
    usual = starts.size.most_tokens
    if max(map(len, lines)) <= _SHORT:
        starts.size.most_tokens = min(usual, _FEW_TOKENS)
    try:
        left = starts.read(trie, rows_of_leaves(trie), answers)
    finally:
        starts.forget()
        starts.size.most_tokens = usual
    answers[np.isin(trie.ask_nodes, [node for _, mine in left for node in mine])] = np.nan
    shared = _shared(lines)  # the first tokens are the same on both ways, and would hide a difference
    return [answers[asks][shared:] for asks in trie.asks_of]


def _shared(lines: list[tuple[int, ...]]) -> int:
    """How many log-probabilities of each line are those of tokens that all share."""
    return min(common_start(lines[0], line) for line in lines[1:]) - 1


def _moved(found: Sequence[Floats | None], expected: Sequence[Floats | None], average: Any = np.max) -> float:
    """How far the lines' log-probabilities are from those expected, as far as known; NaN if any cannot be had."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a is not None]
    if any(np.isnan(a).any() for a, _ in pairs):
        return np.nan
    return float(average([mean_abs_diff(a, b) for a, b in pairs if b is not None]))
