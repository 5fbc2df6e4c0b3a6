"""Rows of the batch route behind starts that they share: a start is read once, with the model's own cache.

The cache is repeated over the rows, and only what differs is read. Whether a model's cache can be used so is tried when
it is loaded. What cannot be read this way (no memory, an error, a NaN) is left to whole rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from backends.local.generation import NoRoomError
from backends.local.trie import Trie, common_start
from backends.transformers.cached_state import byte_count, repeated
from backends.transformers.memory import PassSize
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.starts import Costs, Line, Start, find_starts

#: What a pass costs beside its tokens, in tokens: 18 to 30 on one thread of a CPU, of recurrent models of 80M weights
#: in float32 (`tests.benchmarks.bench_starts`). Others are guessed.
PASS_COST = {"cpu": 20.0, "mps": 128.0, "cuda": 256.0}
LONG_START = 48  # tokens: a start of so many that the last call had too is read by itself, for the next call

Row = tuple[Line, list[int]]  # the nodes of a leaf's path, and those whose logits are read off it
Floats = npt.NDArray[np.float64]


class UnusableError(Exception):
    """Rows that are to be read whole."""


@dataclass
class _State:
    """What is known after some first tokens of a path."""

    tokens: tuple[int, ...]
    cache: Any


class SharedStarts:
    """Reads rows behind the starts that they share.

    Attributes
    ----------
    costs : Costs
        What reading costs, and how the model goes on from a cache.
    pads : bool
        Whether rows of different lengths may share a pass.
    together : bool
        Whether rows may share a pass at all.
    longest : int or None
        How long a text may be: what changes beyond has not been tried.
    """

    def __init__(self, reader: LogitReader, size: PassSize) -> None:
        self._reader, self.size = reader, size
        kind = str(reader.device).partition(":")[0]
        self.costs = Costs(PASS_COST.get(kind, PASS_COST["cuda"]))
        self.pads = self.together = True
        self.longest: int | None = None
        self._kept: list[_State] = []  # of the last path's starts, the shortest first

    def forget(self) -> None:
        """Drop the state kept from the last call."""
        self._kept = []

    def read(self, trie: Trie, rows: list[Row], answers: Floats) -> list[Row]:
        """Fill in the answers at these rows' nodes, in the trie's order. Returns the rows that are to be read whole."""
        return _Call(self, trie, rows, answers).left()

    # What follows is for one call.

    def find(self, lines: Sequence[Line], read: int) -> Start:
        return find_starts(lines, self.costs, read)

    def take_kept(self) -> list[_State]:
        kept, self._kept = self._kept, []
        return kept

    def keep(self, states: list[_State]) -> None:
        """Keep these, or the first of them as far as memory allows."""
        room = self.size.cache_bytes
        for state in states:
            room -= byte_count(state.cache)
            if room < 0:
                break
            self._kept.append(state)

    def next_pass(self, rests: list[tuple[int, int]], width: int) -> int:
        """How many of these rows go into one pass, given for each its length, longest first, and number of logits.

        ``width``: the bytes of the cache that each goes on from.
        """
        longest = rests[0][0]
        is_stepped = self.costs.is_stepped(longest)
        most_padding = self.costs.of_pass or np.inf  # cheaper than one more pass
        count = logits = padding = 0
        for length, asked in rests:
            logits += asked
            padding += longest - length
            is_full = (count + 1) * longest > self.size.tokens or logits > self.size.rows
            is_full |= (count + 1) * width > self.size.cache_bytes or not self.together
            is_full |= self.costs.is_stepped(length) != is_stepped
            is_full |= not is_stepped and (padding > most_padding or (padding > 0 and not self.pads))
            if count and is_full:
                break
            count += 1
        return count

    def forward(
        self, ids: torch.Tensor, cache: Any, places: list[tuple[int, int]], *, by_steps: bool
    ) -> tuple[torch.Tensor, Any]:
        """The logits at these rows and columns, and the cache then; ``cache`` may be changed."""
        ids = ids.to(self._reader.device)
        width = ids.shape[1]
        if cache is None or not by_steps:
            at = torch.tensor([row * width + column for row, column in places or [(0, 0)]], device=ids.device)
            return self._reader.logits_and_cache(ids, cache, at)
        order, parts = [], []
        for column in range(width):
            mine = [i for i, place in enumerate(places) if place[1] == column]
            at = torch.tensor([places[i][0] for i in mine] or [0], device=ids.device)
            logits, cache = self._reader.logits_and_cache(ids[:, column : column + 1], cache, at)
            if mine:
                order += mine
                parts.append(logits)
        return (torch.cat(parts)[np.argsort(order)] if parts else logits), cache

    def run(
        self,
        trie: Trie,
        segments: list[Line],
        asked: list[list[int]],
        state: _State | None,
        answers: Floats,
        *,
        is_start: bool = False,
    ) -> Any:
        """One pass over what follows the state in some rows: fill in the answers at their nodes, return the cache.

        Raises
        ------
        NoRoomError
            When memory runs out.
        UnusableError
            If an answer is not a number.
        """
        width = max(map(len, segments))
        if state is not None and not (is_start or self.costs.steps):
            width = max(width, 2)  # a block of one token is a step
        by_steps = self.costs.is_stepped(width, 1) if is_start else self.costs.is_stepped(width)
        ids = torch.from_numpy(np.array([trie.tokens[[*s, *s[-1:] * (width - len(s))]] for s in segments]))
        column = [{node: i for i, node in enumerate(segment)} for segment in segments]
        places = [(row, column[row][node]) for row, mine in enumerate(asked) for node in mine]

        def work() -> Any:
            with torch.inference_mode():
                cache = None if state is None else repeated(state.cache, len(segments))
                logits, cache = self.forward(ids, cache, places, by_steps=by_steps)
            if places and not self._reader.answer(trie, [n for mine in asked for n in mine], logits, answers):
                raise UnusableError
            return cache

        cache = self.size.run(work)
        self._reader.tokens_computed += sum(map(len, segments))
        return cache


class _Call:
    """One call of `SharedStarts.read`."""

    def __init__(self, starts: SharedStarts, trie: Trie, rows: list[Row], answers: Floats) -> None:
        self._starts, self._size, self._trie, self._answers = starts, starts.size, trie, answers
        self._rows = [(line[: line.index(mine[-1]) + 1], mine) for line, mine in rows]
        self._whole = rows
        self._asked = {node for _, mine in rows for node in mine}  # those without an answer so far

    def left(self) -> list[Row]:
        longest = self._starts.longest
        short = [i for i, (line, _) in enumerate(self._rows) if longest is None or len(line) <= longest]
        kept = self._starts.take_kept()
        chain: list[_State] = []
        for group in self._with_first_token(short):
            chain = self._read_group(group, kept) or chain
            kept = chain or kept
        self._starts.keep(chain or kept)
        left = []
        for line, _ in self._whole:
            mine = [node for node in line if node in self._asked]
            self._asked.difference_update(mine)
            if mine:
                left.append((line, mine))
        return left

    def _with_first_token(self, rows: list[int]) -> Iterator[list[int]]:
        first: list[int] = []
        for row in rows:
            if first and self._rows[row][0][0] != self._rows[first[0]][0][0]:
                yield first
                first = []
            first.append(row)
        if first:
            yield first

    def _read_group(self, rows: list[int], kept: list[_State]) -> list[_State]:
        """Read rows that share their first token. Returns the states of the last path, as far as they were computed."""
        lines = [self._rows[row][0] for row in rows]
        depth = min(common_start(lines[0], lines[-1]), min(map(len, lines)))
        tokens = tuple(self._trie.tokens[lines[0][:depth]].tolist())
        chain = [state for state in kept if self._is_known(state, tokens, lines[0])]
        read = len(chain[-1].tokens) if chain else 0
        again = common_start(tokens, kept[-1].tokens) if kept else 0
        if again - read >= LONG_START:  # the next call may begin so too
            state = self._read_start(lines[0], again, chain[-1] if chain else None)
            if state is None:
                return chain
            chain, read = [*chain, state], again
        found = self._starts.find(lines, read)
        if chain:
            self._read_rows(found.rows, rows, chain[-1])
        last = chain
        for start in found.starts:
            last = self._read_all(start, rows, chain)
        return last

    def _is_known(self, state: _State, tokens: tuple[int, ...], line: Line) -> bool:
        """Whether these tokens begin with the state's, and nothing is asked there."""
        length = len(state.tokens)
        return state.tokens == tokens[:length] and self._asked.isdisjoint(line[:length])

    def _read_all(self, start: Start, rows: list[int], chain: list[_State]) -> list[_State]:
        line = self._rows[rows[start.row]][0]
        state = self._read_start(line, start.depth, chain[-1] if chain else None)
        if state is None:
            return chain
        here = [*chain, state]
        self._read_rows(start.rows, rows, state)
        last = here
        for longer in start.starts:
            last = self._read_all(longer, rows, here)
        return last

    def _read_start(self, line: Line, depth: int, before: _State | None) -> _State | None:
        """The state after a line's first tokens; None if it cannot be had."""
        segment = line[len(before.tokens) if before else 0 : depth]
        mine = [node for node in segment if node in self._asked]
        tokens = tuple(self._trie.tokens[line[:depth]].tolist())
        if len(mine) > self._size.rows:
            return None
        try:
            cache = self._starts.run(self._trie, [segment], [mine], before, self._answers, is_start=True)
        except Exception:  # foreign code; whole rows will say why
            return None
        self._asked.difference_update(mine)
        return _State(tokens, cache)

    def _read_rows(self, places: list[int], rows: list[int], state: _State) -> None:
        """Read what follows a state in these rows, as far as anything is asked there."""
        depth, seen = len(state.tokens), set[int]()
        rests: list[tuple[Line, list[int]]] = []
        for place in places:
            rest = self._rows[rows[place]][0][depth:]
            mine = [node for node in rest if node in self._asked and node not in seen]
            seen.update(mine)
            if mine and len(mine) <= self._size.rows:
                rests.append((rest, mine))
        rests.sort(key=lambda rest: -len(rest[0]))
        width = byte_count(state.cache)
        while rests:
            count = self._starts.next_pass([(len(rest), len(mine)) for rest, mine in rests], width)
            segments, asked = [rest for rest, _ in rests[:count]], [mine for _, mine in rests[:count]]
            try:
                self._starts.run(self._trie, segments, asked, state, self._answers)
            except NoRoomError:
                if count > 1:
                    self._size.halvings += 1
                    continue
                self._size.restore()
            except Exception:  # foreign code; whole rows will say why
                pass
            else:
                self._asked.difference_update(*asked)
            del rests[:count]
