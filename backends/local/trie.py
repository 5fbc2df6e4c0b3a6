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

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        self.sets: list[Hashable] = []
        set_targets: dict[Hashable, int] = {}
        asks: dict[tuple[int, int], int] = {}
        asks_of: list[list[int]] = [[] for _ in paths]

        bodies = [path.computed for path in paths]
        # Paths that share most with the kept one come first. This is still a preorder, since all paths
        # through one node of the kept path stay together.
        order = sorted(range(len(paths)), key=lambda i: (-common_start(bodies[i], kept), bodies[i]))
        last: tuple[int, ...] = ()
        line: list[int] = []  # the nodes of `last`
        for i in order:
            path, body = paths[i], bodies[i]
            if body != last:
                shared = common_start(body, last)
                del line[shared:]
                for depth in range(shared, len(body)):
                    parents.append(line[-1] if line else -1)
                    line.append(len(tokens))
                    tokens.append(body[depth])
                    depths.append(depth)
                last = body
            mine = asks_of[i]
            for position in range(path.scored_from, len(path.tokens)):
                mine.append(asks.setdefault((line[position - 1], path.tokens[position]), len(asks)))
            if path.next_token_set is not None:
                if path.next_token_set not in set_targets:
                    set_targets[path.next_token_set] = -1 - len(self.sets)
                    self.sets.append(path.next_token_set)
                mine.append(asks.setdefault((line[-1], set_targets[path.next_token_set]), len(asks)))

        self.tokens = np.array(tokens, dtype=np.int64)
        self._parents = parents  # a list is read ten times as fast, one entry at a time
        self.parents = np.array(parents, dtype=np.int64)
        self.depths = np.array(depths, dtype=np.int64)
        pairs = np.array(list(asks), dtype=np.int64).reshape(len(asks), 2)
        by_node = np.argsort(pairs[:, 0], kind="stable")
        rank = np.empty(len(asks), dtype=np.int64)
        rank[by_node] = np.arange(len(asks))
        self.ask_nodes: Ints = pairs[by_node, 0]
        self.ask_targets: Ints = pairs[by_node, 1]
        self.asks_of: list[Ints] = [rank[np.array(mine, dtype=np.int64)] for mine in asks_of]

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestors(self, node: int) -> list[int]:
        """The ancestors of ``node``, from the first token down."""
        line = []
        parents = self._parents
        while (node := parents[node]) >= 0:
            line.append(node)
        return line[::-1]

    def after(self, node: int) -> int:
        """The first node after the subtree of ``node``; the number of nodes if there is none."""
        above = np.flatnonzero(self.depths[node + 1 :] <= self.depths[node])
        return node + 1 + int(above[0]) if len(above) else len(self)

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
