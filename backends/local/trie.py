"""Plan what to compute so that many token sequences share their common prefixes.

All paths of a batch form one trie. Its nodes are numbered in preorder and computed in that order, in packs of
consecutive numbers. Everything rests on one property of preorder: the ancestors of a pack's nodes that lie before
the pack are all ancestors of the pack's first node. So only one chain of keys and values has to be kept between two
packs, whatever the trie's size:

    0 ─ 1 ─ 2 ─ 3          pack [0, 4)
            ├ ─ 4 ─ 5      pack [4, 7): its outside ancestors are 0, 1, 2: those of node 4
        └ ─ 6

The paths of a request are a head and the branches that follow it. Branches are made once for all heads that they
follow; a batch is put together from them without a loop over tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Path:
    """One token sequence, and which of its log-probabilities are wanted.

    Attributes
    ----------
    tokens : tuple of int
        The whole sequence.
    scored_from : int
        Wanted: log P(tokens[i] | all before) for each i >= scored_from.
    next_token_set : hashable or None
        Name of a set of tokens. Wanted: the log-probability that the next token, after the last of
        ``tokens``, is one of them.
    """

    tokens: tuple[int, ...]
    scored_from: int
    next_token_set: Hashable = None

    @property
    def computed(self) -> tuple[int, ...]:
        """The tokens that the model has to read: without the last one if only its own probability is wanted."""
        return self.tokens if self.next_token_set is not None else self.tokens[:-1]


class Branches:
    """Paths behind a head, as the nodes below it in preorder, and the distinct log-probabilities wanted. Never changed.

    Parameters
    ----------
    paths : sequence of Path
    above : int
        How many of their first tokens belong to the head.

    Attributes
    ----------
    tokens, parents, depths : int64 arrays, one entry per node
        Depths count from the head's end; the parent of the first ones is -1, the head's last token.
    ask_nodes, ask_targets : int64 arrays, one entry per ask
        The node after which something is wanted (-1, -2, …: the head's last token, the one before, …), and what: the
        token with this id or, if negative, set number -1 - target of ``sets``.
    asks_of : list of lists
        The asks of each path: its scored tokens in order, then its set.
    """

    def __init__(self, paths: Sequence[Path], above: int = 0) -> None:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        asks: dict[tuple[int, int], int] = {}
        sets: dict[Hashable, int] = {}
        self.asks_of: list[list[int]] = [[] for _ in paths]
        bodies = [path.computed[above:] for path in paths]
        last: tuple[int, ...] = ()
        line: list[int] = []  # the nodes of `last`
        for i in sorted(range(len(paths)), key=bodies.__getitem__):
            path, body = paths[i], bodies[i]
            shared = common_start(body, last)
            del line[shared:]
            for depth in range(shared, len(body)):
                parents.append(line[-1] if line else -1)
                line.append(len(tokens))
                tokens.append(body[depth])
                depths.append(depth)
            last = body
            wanted = [(at - 1, path.tokens[at]) for at in range(path.scored_from, len(path.tokens))]
            if path.next_token_set is not None:
                wanted.append((len(path.tokens) - 1, -1 - sets.setdefault(path.next_token_set, len(sets))))
            for at, target in wanted:
                node = at - above if at < above else line[at - above]
                self.asks_of[i].append(asks.setdefault((node, target), len(asks)))
        self.tokens, self.parents, self.depths = (np.array(x, dtype=np.int64) for x in (tokens, parents, depths))
        self.ask_nodes, self.ask_targets = np.array([*asks], dtype=np.int64).reshape(-1, 2).T
        self.sets = list(sets)

    def __len__(self) -> int:
        return len(self.asks_of)


@dataclass(frozen=True, slots=True)
class Pack:
    """Nodes [start, stop), and the asks [first_ask, last_ask) answered there."""

    start: int
    stop: int
    first_ask: int
    last_ask: int


class Trie:
    """The nodes of a batch of paths, in preorder, and the asks (log-probabilities wanted).

    Heads share their common starts; the branches of one head share theirs.

    Parameters
    ----------
    groups : sequence of (tuple of int, Branches)
        The head of each group of paths, and what follows it.

    Attributes
    ----------
    tokens, parents, depths : int64 arrays, one entry per node
        The parent of a first token is -1, its depth 0.
    ask_nodes, ask_targets : int64 arrays, one entry per ask, ``ask_nodes`` ascending
        What is wanted after this node: the token with this id or, if negative, the set number -1 - target.
    group_of_ask : int64 array
        The group that an ask belongs to.
    sets : list
        The names of the wanted sets.

    Raises
    ------
    ValueError
        For a first token whose own probability is wanted: nothing stands before it.
    """

    def __init__(self, groups: Sequence[tuple[Sequence[int], Branches]]) -> None:
        heads = [np.array(head, dtype=">u4") for head, _ in groups]
        order = sorted(range(len(groups)), key=[head.tobytes() for head in heads].__getitem__)
        branches = [groups[i][1] for i in order]
        lengths = np.array([len(heads[i]) for i in order], dtype=np.int64)
        width = int(lengths.max(initial=0))
        rows = np.full((len(order), width), -1, dtype=np.int64)
        for row, i in zip(rows, order, strict=True):
            row[: len(heads[i])] = heads[i]
        is_new = _differs_from_the_row_before(rows) & (np.arange(width) < lengths[:, None])
        new = is_new.sum(1)
        below = np.array([len(b.tokens) for b in branches], dtype=np.int64)
        starts = np.cumsum(new + below) - new - below  # the first node of each head, or of its branches
        first_new = lengths - new
        # The node of each token of each head: the last one that was made at this depth.
        nodes = np.where(is_new, starts[:, None] + np.arange(width) - first_new[:, None], -1)
        nodes = np.maximum.accumulate(nodes, 0) if len(order) else nodes
        count = int(new.sum() + below.sum())
        self.tokens, self.depths = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        self.parents = np.full(count, -1, dtype=np.int64)
        group, depth = np.nonzero(is_new)
        at = nodes[group, depth]
        self.tokens[at], self.depths[at] = rows[group, depth], depth
        self.parents[at] = np.where(depth > 0, nodes[group, depth - 1], -1) if width else -1
        last = nodes[np.arange(len(order)), lengths - 1] if width else np.full(len(order), -1)
        last = np.where(lengths > 0, last, -1)
        self._add_branches(branches, starts + new, below, lengths, last)
        self._add_asks(branches, np.array(order, dtype=np.int64), starts + new, lengths, nodes)

    def _add_branches(self, branches: list[Branches], first: Ints, below: Ints, lengths: Ints, last: Ints) -> None:
        group = np.repeat(np.arange(len(branches)), below)
        places = first[group] + within(below)
        self.tokens[places] = _joined([b.tokens for b in branches])
        self.depths[places] = _joined([b.depths for b in branches]) + lengths[group]
        parents = _joined([b.parents for b in branches])
        self.parents[places] = np.where(parents < 0, last[group], parents + first[group])

    def _add_asks(self, branches: list[Branches], order: Ints, first: Ints, lengths: Ints, nodes: Ints) -> None:
        counts = np.array([len(b.ask_nodes) for b in branches], dtype=np.int64)
        group = np.repeat(np.arange(len(branches)), counts)
        node, target = _joined([b.ask_nodes for b in branches]), _joined([b.ask_targets for b in branches])
        in_head = node < 0
        place = lengths[group] + node
        if (place < 0).any():
            raise ValueError("the first token has no token before it, so no probability")
        node[~in_head] += first[group[~in_head]]
        node[in_head] = nodes[group[in_head], place[in_head]]
        sets: dict[Hashable, int] = {}
        named = [[sets.setdefault(name, len(sets)) for name in b.sets] for b in branches]
        for at in np.flatnonzero(target < 0):
            target[at] = -1 - named[group[at]][-1 - target[at]]
        self.sets = list(sets)
        sort = np.argsort(node, kind="stable")
        self.ask_nodes, self.ask_targets, self.group_of_ask = node[sort], target[sort], order[group[sort]]
        places = np.empty(len(sort), dtype=np.int64)
        places[sort] = np.arange(len(sort))
        stops = np.cumsum(counts)
        self._asks: list[Ints] = [places[:0]] * len(order)
        for i, low, high in zip(order.tolist(), (stops - counts).tolist(), stops.tolist(), strict=True):
            self._asks[i] = places[low:high]

    def __len__(self) -> int:
        return len(self.tokens)

    def asks_of(self, group: int) -> Ints:
        """Where the asks of a group's branches stand, in their order."""
        return self._asks[group]

    @cached_property
    def _parents(self) -> list[int]:
        return self.parents.tolist()  # a list is read ten times as fast, one entry at a time

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


def _joined(arrays: Sequence[Ints]) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])


def within(counts: Ints) -> Ints:
    """0, 1, … within each run of so many."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)


def _differs_from_the_row_before(rows: Ints) -> npt.NDArray[np.bool_]:
    """For each place whether the row differs there, or further left, from the one before it."""
    differs = np.ones(rows.shape, dtype=bool)
    differs[1:] = rows[1:] != rows[:-1]
    return np.logical_or.accumulate(differs, 1)


def common_start(a: Sequence[object], b: Sequence[object]) -> int:
    """Number of leading tokens, or characters, that are equal."""
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
