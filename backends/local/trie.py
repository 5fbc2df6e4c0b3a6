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
from typing import TypeVar, overload

import numpy as np
import numpy.typing as npt

N = TypeVar("N", bound=np.generic)
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
    """

    def __init__(self, paths: Sequence[Path], kept: Sequence[int] = ()) -> None:
        kept = tuple(kept)
        groups = paths.groups if isinstance(paths, Paths) else [((), paths)]
        parts = _Parts()
        self._count = len(paths)
        self._shares: list[tuple[range | list[int], list[slice], slice]] = []
        self._groups: list[_Group] = []
        line: list[int] = []  # the nodes of the last head
        last: tuple[int, ...] = ()
        for head, subtree, runs in _subtrees(groups, kept):
            shared = common_start(head, last)
            del line[shared:]
            parts.add_line(line, head, shared)
            last = head
            asks = parts.add_subtree(subtree, line[-1] if line else -1, len(head))
            places = runs[0] if len(runs) == 1 else [place for run in runs for place in run]
            self._shares.append((places, subtree.shares, asks))
            self._groups += _groups(runs, subtree, asks, parts.asks_so_far)
        self.sets = list(parts.sets)
        self.tokens = np.concatenate(parts.tokens)
        self.parents = np.concatenate(parts.parents)
        self._parents: list[int] = self.parents.tolist()  # a list is read ten times as fast, one entry at a time
        self.depths = np.concatenate(parts.depths)
        self.ask_nodes: Ints = np.concatenate(parts.ask_nodes)
        self.ask_targets: Ints = np.concatenate(parts.ask_targets)
        self._asks: Ints = np.concatenate(parts.asks)
        self._groups.sort(key=_Group.by_stop)
        self._stops = [group.stop for group in self._groups]

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def asks_of(self) -> list[Ints]:
        """The asks of each path: the scored tokens in order, then the set if there is one."""
        return self._share_out(self._asks)

    def share_out(self, answers: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
        """For each path the answers to its asks, given those to all asks."""
        return self._share_out(answers[self._asks])

    def _share_out(self, values: npt.NDArray[N]) -> list[npt.NDArray[N]]:
        found = [values[:0]] * self._count
        for places, shares, asks in self._shares:
            mine = values[asks]
            for place, share in zip(places, shares, strict=True):
                found[place] = mine[share]
        return found

    def ended(
        self, answers: npt.NDArray[np.float64], first_ask: int, last_ask: int
    ) -> Iterator[tuple[range, list[npt.NDArray[np.float64]]]]:
        """The groups of paths whose last ask is one of [first_ask, last_ask): their places, and as `share_out`."""
        for group in self._groups[slice(*self._bounds(first_ask, last_ask))]:
            mine = answers[self._asks[group.asks]]
            yield group.places, [mine[share] for share in group.shares]

    def parts(self, first_ask: int, last_ask: int, most: int) -> list[int]:
        """Where to cut the asks [first_ask, last_ask) so that at most so many groups of paths end in each part.

        Returns the first ask after each part. A node's asks are all of one part, so where groups end at the same node
        a part may have more.
        """
        first, last = self._bounds(first_ask, last_ask)
        count = -(-(last - first) // most)
        cuts = [self._stops[first + (last - first) * part // count - 1] for part in range(1, count)]
        ends = np.searchsorted(self.ask_nodes, self.ask_nodes[np.array(cuts, dtype=np.int64) - 1], "right")
        return sorted({*np.minimum(ends, last_ask).tolist(), last_ask})

    def _bounds(self, first_ask: int, last_ask: int) -> tuple[int, int]:
        return bisect.bisect_right(self._stops, first_ask), bisect.bisect_right(self._stops, last_ask)

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


@dataclass(frozen=True, slots=True)
class _Group:
    """Paths that were given together: their places, where their asks stand in `Trie`, and the first ask after them."""

    places: range
    asks: slice
    shares: list[slice]
    stop: int

    def by_stop(self) -> int:
        return self.stop


def _groups(runs: list[range], subtree: _Subtree, asks: slice, stop: int) -> Iterator[_Group]:
    """The groups of one head, whose asks are all before ``stop``."""
    if len(runs) == 1:
        yield _Group(runs[0], asks, subtree.shares, stop)
        return
    first, at = stop - len(subtree.ask_nodes), 0
    for run in runs:
        shares = subtree.shares[at : at + len(run)]
        at += len(run)
        last = max((int(subtree.asks[share].max()) for share in shares if share.start < share.stop), default=-1)
        yield _Group(run, asks, shares, first + last + 1)


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
    asks, shares
        The asks of branch i are ``asks[shares[i]]``.
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
        stops = itertools.accumulate(map(len, asks_of))
        self.shares = [slice(stop - len(mine), stop) for mine, stop in zip(asks_of, stops, strict=True)]


def _subtrees(
    groups: Sequence[tuple[tuple[int, ...], Sequence[Path] | Branches]], kept: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], _Subtree, list[range]]]:
    """Heads of which none begins with another one, in the trie's order; the nodes below each, and its paths' places.

    The places are those of each group that begins with the head.
    """
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
        runs = [range(ends[group] - len(groups[group][1]), ends[group]) for group in members]
        branches = groups[members[0]][1]
        if len(members) > 1:  # their paths may share nodes below the head
            together_below = [b for group in members for b in _below(len(head), *groups[group])]
            yield head, _Subtree(together_below, rest), runs
        elif isinstance(branches, Branches) and not rest:
            yield head, branches.subtree, runs
        else:
            yield head, _Subtree(branches, rest), runs


def _below(length: int, head: tuple[int, ...], branches: Sequence[Path | Branch]) -> list[Branch]:
    """The branches of a head as those of its first tokens."""
    more = head[length:]
    return [Branch(more + b.tokens, len(more) + b.scored_from, b.next_token_set) for b in branches]


class _Parts:
    """The arrays of a trie while it grows."""

    def __init__(self) -> None:
        self.tokens, self.parents, self.depths = [_NONE], [_NONE], [_NONE]
        self.ask_nodes, self.ask_targets, self.asks = [_NONE], [_NONE], [_NONE]
        self.sets: dict[Hashable, int] = {}
        self._nodes = self.asks_so_far = self._shared = 0

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

    def add_subtree(self, subtree: _Subtree, above: int, depth: int) -> slice:
        """Add the nodes below node ``above``, whose children have this depth. Returns where its ``asks`` stand."""
        first, start = self._nodes, self._shared
        self.tokens.append(subtree.tokens)
        self.parents.append(np.where(subtree.parents < 0, above, subtree.parents + first))
        self.depths.append(subtree.depths + depth)
        self.ask_nodes.append(np.where(subtree.ask_nodes < 0, above, subtree.ask_nodes + first))
        targets = subtree.ask_targets
        if subtree.sets:
            named = [self.sets.setdefault(name, len(self.sets)) for name in subtree.sets]
            targets = np.where(targets < 0, -1 - np.array(named)[np.maximum(-1 - targets, 0)], targets)
        self.ask_targets.append(targets)
        self.asks.append(subtree.asks + self.asks_so_far)
        self._nodes += len(subtree.tokens)
        self.asks_so_far += len(targets)
        self._shared += len(subtree.asks)
        return slice(start, self._shared)
