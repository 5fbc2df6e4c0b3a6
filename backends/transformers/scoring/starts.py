"""Which starts of a batch's rows are worth reading once.

The rows are leaves of a trie. Where some of them part, what they have in common may be read first, and kept: then only
the rest of each is read. That takes a pass more, which on a CPU brings the weights from memory once more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.local.trie import common_start

Line = list[int]  # the nodes from a first token to a leaf

MOST_LEVELS = 4  # starts within starts: each one's state is held while those within are read
MOST_STEPS = 12  # tokens that are stepped through where blocks are right too
OF_STEP = 2.5  # a row of a step, in tokens of a large pass
_ROWS_OF_A_STEP = 4  # that share a step, in the mean
_MOST_PARTINGS = 200  # one below the other; Python's own limit is 1,000 calls


@dataclass
class Start:
    """A start, and what is read behind it.

    Attributes
    ----------
    depth : int
        Its number of tokens.
    row : int
        A row that begins with it.
    rows : list of int
        Rows whose rests are read next.
    starts : list of Start
        Longer starts.
    """

    depth: int
    row: int
    rows: list[int] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)


@dataclass(frozen=True)
class Costs:
    """What reading takes, in units of one token within a large pass.

    Behind a start, rests are read in blocks or by steps: a token of each row a pass. Recurrent layers compute in
    chunks: of two tokens in a block they compute a whole chunk, but of one in a step that one alone.

    Attributes
    ----------
    of_pass : float
        A pass, beside its tokens.
    of_row : float
        A row of a block, beside its tokens.
    blocks, steps : bool
        Whether the model goes on from a cache so.
    """

    of_pass: float
    of_row: float = 0
    blocks: bool = True
    steps: bool = False

    def is_stepped(self, tokens: int, rows: int = _ROWS_OF_A_STEP) -> bool:
        """Whether a rest of so many tokens is read by steps, if so many rows share each."""
        if not (self.blocks and self.steps):
            return self.steps
        return tokens <= MOST_STEPS and tokens * (OF_STEP + self.of_pass / rows) <= tokens + self.of_row

    def of_rest(self, tokens: int, depth: int) -> float:
        """Of a row's rest behind a start of this depth, without its passes."""
        return OF_STEP * tokens if depth and self.is_stepped(tokens) else tokens + self.of_row

    def of_passes(self, rests: list[int]) -> float:
        """Of the passes that read rests of these lengths behind one start."""
        stepped = [rest for rest in rests if self.is_stepped(rest)]
        return self.of_pass * ((len(stepped) < len(rests)) + max(stepped, default=0))

    def of_start(self, tokens: int, depth: int) -> float:
        """Of so many tokens of a start, behind one of this depth."""
        if depth and tokens == 1 and not self.steps:  # a block of one token is a step
            return math.inf
        if depth and self.is_stepped(tokens, 1):
            return tokens * (OF_STEP + self.of_pass)
        return self.of_pass + tokens + self.of_row


def find_starts(lines: Sequence[Line], costs: Costs, read: int = 0) -> Start:
    """The starts of these rows, in the trie's order, that cost least; behind the first ``read`` tokens of all.

    ``rows`` of what is returned share no start.
    """
    if not lines:
        return Start(read, -1)
    lengths = [len(line) for line in lines]
    shared = [common_start(a, b) for a, b in itertools.pairwise(lines)]
    search = _Search(lengths, shared, costs)
    _, rows, starts = search.cheapest(range(len(lines)), read, MOST_LEVELS, _MOST_PARTINGS)
    return Start(read, 0, rows, starts)


_Found = tuple[float, list[int], list[Start]]  # the cost, the rows, the starts


class _Search:
    def __init__(self, lengths: list[int], shared: list[int], costs: Costs) -> None:
        self._lengths, self._shared, self._costs = lengths, shared, costs
        self._found: dict[tuple[range, int, int], _Found] = {}

    def cheapest(self, rows: range, read: int, levels: int, partings: int) -> _Found:
        """How these rows cost least where ``read`` of their tokens have been read.

        The cost of a pass over the rows is not in it: those of several groups may share one.
        """
        seen = self._found.get((rows, read, levels))
        if seen is None:
            seen = self._found[rows, read, levels] = self._search(rows, read, levels, partings)
        return seen

    def _search(self, rows: range, read: int, levels: int, partings: int) -> _Found:
        found: _Found = (sum(self._costs.of_rest(self._lengths[row] - read, read) for row in rows), list(rows), [])
        depth = self._lengths[rows.start] if len(rows) == 1 else min(self._shared[rows.start : rows.stop - 1])
        if len(rows) == 1 or partings == 0:
            return found
        groups = self._groups(rows, depth)
        if depth > read and levels > 0:
            cost, below, starts = self._all(groups, depth, levels - 1, partings - 1)
            cost += self._costs.of_start(depth - read, read)
            cost += self._costs.of_passes([self._lengths[row] - depth for row in below])
            found = min(found, (cost, [], [Start(depth, rows.start, below, starts)]), key=lambda one: one[0])
        return min(found, self._all(groups, read, levels, partings - 1), key=lambda one: one[0])

    def _all(self, groups: list[range], read: int, levels: int, partings: int) -> _Found:
        total, every_row, every_start = 0.0, [], []
        for group in groups:
            cost, rows, starts = self.cheapest(group, read, levels, partings)
            total += cost
            every_row += rows
            every_start += starts
        return total, every_row, every_start

    def _groups(self, rows: range, depth: int) -> list[range]:
        """Neighbours that share more than ``depth`` tokens."""
        ends = [row + 1 for row in rows[:-1] if self._shared[row] <= depth]
        return [range(a, b) for a, b in itertools.pairwise([rows.start, *ends, rows.stop])]
