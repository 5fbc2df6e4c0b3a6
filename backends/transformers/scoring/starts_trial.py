"""Tries whether a model may read the starts that rows share once, by comparison with rows read alone.

Rows part at several places, short of lengths at which a model's layers change and beyond them: windows, and the chunks
in which recurrent layers compute. What has not been tried is not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from backends.local.generation import NoRoomError
from backends.local.trie import Path, Trie, common_start
from backends.transformers.cached_state import cache_name, why_unknown
from backends.transformers.context import alike_places, changes_with_length, context_length
from backends.transformers.memory import is_out_of_memory
from backends.transformers.precision import computes_in_float32
from backends.transformers.scoring.batch import BatchRoute, rows_of_leaves
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.shared_starts import SharedStarts
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

_Lines = dict[tuple[int, ...], Floats]  # log-probabilities of a line's tokens but the first


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
    wrong = ""
    starts.together = batch.together
    for starts.by_steps, starts.pads in ((False, True), (False, False), (True, True)):
        if not (found := _what_is_wrong(starts, reader, rows)):
            starts.longest = rows.longest
            batch.starts = starts
            told = "; a start that texts share is read once, with the model's own cache"
            told += ", and what follows it token by token" if starts.by_steps else ""
            return told + (f" (of texts up to {rows.longest} tokens)" if rows.longest else "")
        wrong = wrong or found
    return f"; starts that texts share are read with each of them: {wrong}"


def _why_never(reader: LogitReader) -> str:
    """Why no trial could show that a model's cache is right; empty if one may."""
    model = reader.model
    if cache_name(model) is None:
        return "it takes no cache"
    if any(type(module).__module__.partition(".")[0] not in PACKAGES for module in model.modules()):
        return "it has code of its own"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
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
    longest : int or None
        How long texts may be, by boundaries that are too far for a trial.
    """

    def __init__(self, reader: LogitReader) -> None:
        self._random = np.random.default_rng(3)
        self._most = trial_vocabulary(reader)
        room = context_length(reader.model.config)[0] or 10 * MOST_TRIED
        boundaries = _boundaries(reader)
        far = [at for at in boundaries if at > MOST_TRIED and at < room]
        self.longest = min(far) - 1 if far else None
        near = sorted(at for at in boundaries if at <= min(MOST_TRIED, room - _REST - 2))
        self._line = self._drawn(max([*near, 20]) + 1 + _REST)
        self._near = near
        self.tries = [*self._parting_often(), *self._parting_once()]

    def _drawn(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.integers(3, self._most, count).tolist())

    def _parting_often(self) -> Iterator[list[tuple[int, ...]]]:
        """Starts within starts, and rests of several lengths behind each."""
        stem, longer = self._drawn(20), self._drawn(13)
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


def _what_is_wrong(starts: SharedStarts, reader: LogitReader, rows: _Rows) -> str:
    """What differs from rows read alone; empty if nothing does.

    In 16 bits a lost state may move numbers by little more than rounding: so the same is tried on a copy in float32,
    and in 16 bits the numbers have to be as near to the copy's as those of rows read alone.
    """
    if not computes_in_float32(reader.model):
        return _what_is_wrong_in_16_bits(starts, reader, rows)
    seen: _Lines = {}
    for lines in rows.tries:
        moved = _moved(_read(starts, lines), [_alone(reader, line, seen) for line in lines])
        if not moved < rounding(reader):  # NaN is not
            return _said(moved)
    return ""


def _what_is_wrong_in_16_bits(starts: SharedStarts, reader: LogitReader, rows: _Rows) -> str:
    copied = in_float32(reader.model)
    if copied is None:
        return "it computes in 16 bits or fewer, and there is no copy in float32 to compare with"
    precise = reader.of(copied)
    beside = SharedStarts(precise, starts.size)
    beside.by_steps, beside.pads, beside.together = starts.by_steps, starts.pads, starts.together
    lines = [line for part in rows.tries for line in part]
    seen: _Lines = {}
    try:
        if wrong := _what_is_wrong(beside, precise, rows):
            return wrong
        exact = [_alone(precise, line, seen) for line in lines]
    finally:
        reader.tokens_computed += precise.tokens_computed
    seen = {}
    alone = [_alone(reader, line, seen) for line in lines]
    found = [values for part in rows.tries for values in _read(starts, part)]
    moved = _moved(found, alone)
    usual, farther = (_moved(values, exact, np.mean) for values in (alone, found))
    return "" if moved < rounding(reader) and farther <= MORE_ROUNDING * usual else _said(moved)


def _said(moved: float) -> str:
    if np.isnan(moved):
        return "it cannot go on from its cache"
    return f"with its cache its log-probabilities change by {moved:.2g} nats"


def _read(starts: SharedStarts, lines: list[tuple[int, ...]]) -> list[Floats]:
    """All log-probabilities of these lines; NaN where one could not be read behind a start.

    Of short ones in passes of a few tokens, so that several passes go on from one start.
    """
    trie = Trie([Path(line, 1) for line in lines])
    answers = np.full(len(trie.ask_nodes), np.nan)
    costs, usual = (starts.pass_cost, starts.most_padding), starts.size.most_tokens
    starts.pass_cost, starts.most_padding = 0, np.inf  # each start is read once, however short
    if max(map(len, lines)) <= _SHORT:
        starts.size.most_tokens = min(usual, _FEW_TOKENS)
    try:
        left = starts.read(trie, rows_of_leaves(trie), answers)
    finally:
        starts.forget()
        (starts.pass_cost, starts.most_padding), starts.size.most_tokens = costs, usual
    answers[np.isin(trie.ask_nodes, [node for _, mine in left for node in mine])] = np.nan
    return [answers[asks] for asks in trie.asks_of]


def _alone(reader: LogitReader, line: tuple[int, ...], seen: _Lines) -> Floats | None:
    """The log-probabilities of a line that is read alone, or of one that it begins.

    None for a long one that would take a pass of its own: it is there so that the others part.
    """
    for other, values in seen.items():
        if other[: len(line)] == line:
            return values[: len(line) - 1]
    if any(common_start(line, other) > _SHORT for other in seen):
        return None
    seen[line] = logprobs_alone(reader, line)
    return seen[line]


def _moved(found: Sequence[Floats | None], expected: Sequence[Floats | None], average: Any = np.max) -> float:
    """How far the lines' log-probabilities are from those expected, as far as known; NaN if any cannot be had."""
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a is not None]
    if any(np.isnan(a).any() for a, _ in pairs):
        return np.nan
    return float(average([mean_abs_diff(a, b) for a, b in pairs if b is not None]))
