"""Where a pack is cut into blocks of queries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from backends.transformers.scoring.attention import BLOCK, block_starts


def branches(count: int, size: int) -> np.ndarray:
    """Depths of so many branches of one stem of four nodes, each a line."""
    return np.array([0, 1, 2, 3, *(4 + at for _ in range(count) for at in range(size))])


def test_a_cpu_cuts_where_branches_begin() -> None:
    depths = branches(8, 22)
    starts = block_starts(depths, on_cpu=True)
    assert len(starts) == 8
    assert set(depths[starts[1:]]) == {4}


def test_long_lines_are_cut_into_few_blocks() -> None:
    """Each gathers the keys of all before it: single ones, and branches of a long stem."""
    assert block_starts(np.arange(500), on_cpu=True) == list(range(0, 500, BLOCK))
    branches_of_long_stem = np.array([600 + at for _ in range(12) for at in range(22)])
    assert len(block_starts(branches_of_long_stem, on_cpu=True)) <= 6


@pytest.mark.parametrize("seed", range(5))
def test_no_block_is_empty_or_too_large(seed: int) -> None:
    random = np.random.default_rng(seed)
    depths = [0]
    for _ in range(random.integers(0, 300)):
        depths.append(int(random.integers(1, depths[-1] + 2)))
    starts = block_starts(np.array(depths), on_cpu=True)
    sizes = [high - low for low, high in itertools.pairwise([*starts, len(depths)])]
    assert starts[0] == 0
    assert min(sizes) > 0
    assert max(sizes) <= BLOCK
