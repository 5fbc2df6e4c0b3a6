"""Where a pack of trie nodes is cut into blocks whose queries attend together.

A block gathers the keys of its ancestors and its own, and each of its queries is multiplied with all of them. Best
is a block of whole branches: its ancestors are few, and it sees little that is not its own.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

BLOCK = 64  # queries: enough for a full matrix kernel, and for the gathering of long lines of ancestors
#: On a CPU: further sizes, and how many queries take as long as the gathering of the keys.
SIZES = (8, 16, 24, 32, 48)
GATHERING = 16


def block_starts(depths: npt.NDArray[np.int64], *, on_cpu: bool = True) -> list[int]:
    """The first node of each block of a pack, given the depths of the pack's nodes in preorder."""
    plain = list(range(0, len(depths), BLOCK))
    if not on_cpu:  # a GPU takes 64 in less time than fewer, and more
        return plain
    begins = np.full_like(depths, depths.max() + 1)  # the depths where a branch begins
    begins[1:] = np.where(depths[1:] <= depths[:-1], depths[1:], begins[1:])
    cuts = [plain, *(_cut_at_branches(depths, begins, size) for size in SIZES)]
    return min(cuts, key=lambda starts: _cost(depths, starts))


def _cut_at_branches(depths: npt.NDArray[np.int64], begins: npt.NDArray[np.int64], most: int) -> list[int]:
    """Blocks of at most so many nodes, and of half of it at least: one may end before a branch nearer to the root."""
    starts = [0]
    while len(depths) - starts[-1] > most:
        least, last = starts[-1] + (most + 1) // 2, starts[-1] + most
        places = begins[least : last + 1].copy()
        places[-1] = depths[last]
        starts.append(last - int(places[::-1].argmin()))
    return starts


def _cost(depths: npt.NDArray[np.int64], starts: list[int]) -> int:
    """Time of a layer's attention, in the products of one query with one key; all blocks are padded to one size."""
    block = max(high - low for low, high in itertools.pairwise([*starts, len(depths)]))
    return len(starts) * (int(depths[starts].max()) + block) * (block + GATHERING)
