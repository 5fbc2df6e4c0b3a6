"""Plan what to compute so that many token sequences share their common prefixes.

All paths of a batch form one trie. Its nodes are numbered in preorder and computed in that order, in packs of
consecutive numbers. Everything rests on one property of preorder: the ancestors of a pack's nodes that lie before
the pack are all ancestors of the pack's first node. So only one chain of keys and values has to be kept between two
packs, whatever the trie's size:

    0 ─ 1 ─ 2 ─ 3          pack [0, 4)
            ├ ─ 4 ─ 5      pack [4, 7): its outside ancestors are 0, 1, 2: those of node 4
        └ ─ 6
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Path:
    """One token sequence, and which of its log-probabilities are wanted.

    Attributes
    ----------
    tokens : tuple of int
        The whole sequence, from the model's first token on.
    scored_from : int
        Wanted: log P(tokens[i] | tokens[:i]) for each i >= scored_from. At least 1: a token without
        context has no probability.
    next_token_set : hashable or None
        Name of a set of tokens. Wanted: the log-probability that the next token, after the last of
        ``tokens``, is one of them.
    """

    tokens: tuple[int, ...]
    scored_from: int
    next_token_set: Hashable = None

    def __post_init__(self) -> None:
        if not 1 <= self.scored_from <= len(self.tokens):
            raise ValueError(f"Path.scored_from = {self.scored_from} with {len(self.tokens)} tokens")

    @property
    def computed(self) -> tuple[int, ...]:
        """The tokens that the model has to read: without the last one if only its own probability is wanted."""
        return self.tokens if self.next_token_set is not None else self.tokens[:-1]


@dataclass(frozen=True, slots=True)
class Branch:
    """What follows the head that some paths begin with; as in `Path`, counted from the head's end."""

    tokens: tuple[int, ...]
    scored_from: int
    next_token_set: Hashable = None

    @property
    def computed(self) -> tuple[int, ...]:
        """As in `Path`."""
        return self.tokens if self.next_token_set is not None else self.tokens[:-1]


class Branches(Sequence[Branch]):
    """Branches of one head, and their part of a trie: made once, for all heads that they follow. Never changed."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self._branches = tuple(branches)
        self.subtree = _Subtree(self._branches)

    def __len__(self) -> int:
        return len(self._branches)

    @overload
    def __getitem__(self, at: int) -> Branch: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Branch, ...]: ...
    def __getitem__(self, at: int | slice) -> Branch | tuple[Branch, ...]:
        return self._branches[at]


class Paths(Sequence[Path]):
    """Paths in groups: a head, and the branches that follow it. A path itself is made when it is asked for."""

    def __init__(self, groups: Sequence[tuple[tuple[int, ...], Branches]]) -> None:
        self.groups = groups
        self._ends = list(itertools.accumulate(len(branches) for _, branches in groups))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Path]:
        for head, branches in self.groups:
            for branch in branches:
                yield Path(head + branch.tokens, len(head) + branch.scored_from, branch.next_token_set)

    @overload
    def __getitem__(self, at: int) -> Path: ...
    @overload
    def __getitem__(self, at: slice) -> list[Path]: ...
    def __getitem__(self, at: int | slice) -> Path | list[Path]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        group = bisect.bisect_right(self._ends, at)
        head, branches = self.groups[group]
        branch = branches[at - self._ends[group]]  # counted from the group's end
        return Path(head + branch.tokens, len(head) + branch.scored_from, branch.next_token_set)


@dataclass(frozen=True, slots=True)
class Pack:
    """Nodes [start, stop), and the asks [first_ask, last_ask) answered there."""

    start: int
    stop: int
    first_ask: int
    last_ask: int


class Trie:
    """The distinct nodes of a batch of paths, in preorder, and the distinct asks (log-probabilities wanted).

    Parameters
    ----------
    paths : sequence of Path
    kept : sequence of int
        Tokens of a path whose state an engine still holds. The nodes on it come first, so that
        `reusable` finds them.

    Attributes
    ----------
    tokens, parents, depths : int64 arrays, one entry per node
        The parent of a first token is -1, its depth 0.
    ask_nodes, ask_targets : int64 arrays, one entry per ask, ``ask_nodes`` ascending
        What is wanted after this node: the token with this id or, if negative, the set number -1 - target.
    sets : list
        The names of the wanted sets.
    asks_of : list of int64 arrays
        The asks of each path: the scored tokens in order, then the set if there is one.
    """

    def __init__(self, paths: Sequence[Path], kept: Sequence[int] = ()) -> None:
        kept = tuple(kept)
        groups = paths.groups if isinstance(paths, Paths) else [((), paths)]
        parts = _Parts()
        asks_of: list[Ints] = [_NONE] * len(paths)
        line: list[int] = []  # the nodes of the last head
        last: tuple[int, ...] = ()
        for head, subtree, places in _subtrees(groups, kept):
            shared = common_start(head, last)
            del line[shared:]
            parts.add_line(line, head, shared)
            last = head
            found = parts.add_subtree(subtree, line[-1] if line else -1, len(head))
            for place, start, stop in zip(places, subtree.ends, subtree.ends[1:], strict=False):
                asks_of[place] = found[start:stop]
        self.sets = list(parts.sets)
        self.tokens = np.concatenate(parts.tokens)
        self.parents = np.concatenate(parts.parents)
        self._parents: list[int] = self.parents.tolist()  # a list is read ten times as fast, one entry at a time
        self.depths = np.concatenate(parts.depths)
        self.ask_nodes: Ints = np.concatenate(parts.ask_nodes)
        self.ask_targets: Ints = np.concatenate(parts.ask_targets)
        self.asks_of = asks_of

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestors(self, node: int) -> list[int]:
        """The ancestors of ``node``, from the first token down."""
        line = []
        parents = self._parents
        while (node := parents[node]) >= 0:
            line.append(node)
        return line[::-1]

    @cached_property
    def ends(self) -> Ints:
        """For each node the first one after its subtree; the number of nodes if there is none."""
        ends = [len(self)] * len(self)
        line: list[int] = []  # the nodes whose subtree has not ended
        for node, depth in enumerate(self.depths.tolist()):
            for ended in line[depth:]:
                ends[ended] = node
            line[depth:] = (node,)
        return np.array(ends, dtype=np.int64)

    def after(self, node: int) -> int:
        """The first node after the subtree of ``node``; the number of nodes if there is none."""
        return int(self.ends[node])

    def reusable(self, kept: Sequence[int]) -> int:
        """How many of the first nodes lie on the kept path and need not be computed again.

        A node with asks is computed again: its state is kept, its output is not.
        """
        with_asks = set(self.ask_nodes[: len(kept)].tolist())
        for node in range(min(len(kept), len(self))):
            if self.depths[node] != node or self.tokens[node] != kept[node] or node in with_asks:
                return node
        return min(len(kept), len(self))

    def asks(self, start: int, stop: int) -> slice:
        """The asks at the nodes from ``start`` until before ``stop``."""
        first, last = np.searchsorted(self.ask_nodes, [start, stop]).tolist()
        return slice(first, last)

    def pack(self, start: int, *, nodes: int, rows: int, leaves: int | None = None) -> Pack:
        """The longest pack from node ``start`` on within these limits; at least one node.

        Parameters
        ----------
        nodes : int
            Maximum nodes of the pack.
        rows : int
            Maximum nodes with asks: each costs one row of logits.
        leaves : int, optional
            Maximum nodes without a child in the pack: each is a sequence of its own in llama.cpp.
        """
        stop = min(len(self), start + nodes)
        with_asks = np.unique(self.ask_nodes[self.asks(start, stop)])
        if len(with_asks) > rows:
            stop = int(with_asks[rows])
        if leaves is not None:
            # A node is a leaf when the next one is not its child; the pack's last node always is.
            ends = start + np.flatnonzero(self.depths[start + 1 : stop] <= self.depths[start : stop - 1])
            if len(ends) >= leaves:
                stop = int(ends[leaves - 1]) + 1
        asks = self.asks(start, stop)
        return Pack(start, stop, asks.start, asks.stop)


def common_start(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of leading tokens that are equal."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n  # equal up to low, different somewhere before high: slices are compared without a loop here
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


class _Subtree:
    """The nodes below a head, in preorder, and their asks. Node -1 stands for the head's last node.

    Attributes
    ----------
    tokens, parents, depths, ask_nodes, ask_targets, sets
        As in `Trie`, counted from the head's end.
    asks, ends
        The asks of branch i are ``asks[ends[i]:ends[i + 1]]``.
    """

    def __init__(self, branches: Sequence[Path | Branch], kept: tuple[int, ...] = ()) -> None:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        self.sets: list[Hashable] = []
        set_targets: dict[Hashable, int] = {}
        asks: dict[tuple[int, int], int] = {}
        asks_of: list[list[int]] = [[] for _ in branches]

        bodies = [branch.computed for branch in branches]
        # Paths that share most with the kept one come first. This is still a preorder, since all paths
        # through one node of the kept path stay together.
        order = sorted(range(len(bodies)), key=lambda i: (-common_start(bodies[i], kept), bodies[i]))
        last: tuple[int, ...] = ()
        line: list[int] = [-1]  # the head's last node, then those of `last`
        for i in order:
            branch, body = branches[i], bodies[i]
            if body != last:
                shared = common_start(body, last)
                del line[shared + 1 :]
                for depth in range(shared, len(body)):
                    parents.append(line[-1])
                    line.append(len(tokens))
                    tokens.append(body[depth])
                    depths.append(depth)
                last = body
            mine = asks_of[i]
            for position in range(branch.scored_from, len(branch.tokens)):
                mine.append(asks.setdefault((line[position], branch.tokens[position]), len(asks)))
            if branch.next_token_set is not None:
                if branch.next_token_set not in set_targets:
                    set_targets[branch.next_token_set] = -1 - len(self.sets)
                    self.sets.append(branch.next_token_set)
                mine.append(asks.setdefault((line[-1], set_targets[branch.next_token_set]), len(asks)))

        self.tokens = np.array(tokens, dtype=np.int64)
        self.parents = np.array(parents, dtype=np.int64)
        self.depths = np.array(depths, dtype=np.int64)
        pairs = np.array(list(asks), dtype=np.int64).reshape(len(asks), 2)
        by_node = np.argsort(pairs[:, 0], kind="stable")
        rank = np.empty(len(asks), dtype=np.int64)
        rank[by_node] = np.arange(len(asks))
        self.ask_nodes: Ints = pairs[by_node, 0]
        self.ask_targets: Ints = pairs[by_node, 1]
        self.asks: Ints = rank[np.array([ask for mine in asks_of for ask in mine], dtype=np.int64)]
        self.ends = [0, *itertools.accumulate(map(len, asks_of))]


def _subtrees(
    groups: Sequence[tuple[tuple[int, ...], Sequence[Path] | Branches]], kept: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], _Subtree, Sequence[int]]]:
    """Heads of which none begins with another one, in the trie's order; the nodes below each, and its paths' places."""
    ends = list(itertools.accumulate(len(branches) for _, branches in groups))
    together: list[tuple[tuple[int, ...], list[int]]] = []
    for group in sorted(range(len(groups)), key=lambda group: groups[group][0]):
        head = groups[group][0]
        if together and head[: len(together[-1][0])] == together[-1][0]:
            together[-1][1].append(group)
        else:
            together.append((head, [group]))
    together.sort(key=lambda one: -common_start(one[0], kept))
    for head, members in together:
        rest = kept[len(head) :] if kept[: len(head)] == head else ()
        members.sort()
        places = [place for group in members for place in range(ends[group] - len(groups[group][1]), ends[group])]
        branches = groups[members[0]][1]
        if len(members) == 1 and isinstance(branches, Branches) and not rest:
            yield head, branches.subtree, places
        elif len(members) == 1:
            yield head, _Subtree(branches, rest), places
        else:  # their paths may share nodes below the head
            yield head, _Subtree([b for group in members for b in _below(len(head), *groups[group])], rest), places


def _below(length: int, head: tuple[int, ...], branches: Sequence[Path | Branch]) -> list[Branch]:
    """The branches of a head as those of its first tokens."""
    more = head[length:]
    return [Branch(more + b.tokens, len(more) + b.scored_from, b.next_token_set) for b in branches]


class _Parts:
    """The arrays of a trie while it grows."""

    def __init__(self) -> None:
        self.tokens, self.parents, self.depths = [_NONE], [_NONE], [_NONE]
        self.ask_nodes, self.ask_targets = [_NONE], [_NONE]
        self.sets: dict[Hashable, int] = {}
        self._nodes = self._asks = 0

    def add_line(self, line: list[int], head: tuple[int, ...], shared: int) -> None:
        """Add the nodes of a head from depth ``shared`` on, to ``line`` too."""
        first, stop = self._nodes, self._nodes + len(head) - shared
        if first == stop:
            return
        parents = np.arange(first - 1, stop - 1)
        parents[0] = line[-1] if line else -1
        self.tokens.append(np.array(head[shared:], dtype=np.int64))
        self.parents.append(parents)
        self.depths.append(np.arange(shared, len(head)))
        line.extend(range(first, stop))
        self._nodes = stop

    def add_subtree(self, subtree: _Subtree, above: int, depth: int) -> Ints:
        """Add the nodes below node ``above``, whose children have this depth. Returns the numbers of its asks."""
        first, asks = self._nodes, self._asks
        self.tokens.append(subtree.tokens)
        self.parents.append(np.where(subtree.parents < 0, above, subtree.parents + first))
        self.depths.append(subtree.depths + depth)
        self.ask_nodes.append(np.where(subtree.ask_nodes < 0, above, subtree.ask_nodes + first))
        targets = subtree.ask_targets
        if subtree.sets:
            named = [self.sets.setdefault(name, len(self.sets)) for name in subtree.sets]
            targets = np.where(targets < 0, -1 - np.array(named)[np.maximum(-1 - targets, 0)], targets)
        self.ask_targets.append(targets)
        self._nodes += len(subtree.tokens)
        self._asks += len(targets)
        return subtree.asks + asks
