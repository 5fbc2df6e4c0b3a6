"""Which questions are asked again: how many, and that they are spread over the run."""

from __future__ import annotations

from collections import Counter

import pytest

from audit.collect.repeated_questions import EvenSample, number_to_repeat


@pytest.mark.parametrize(("scored", "n"), [(0, 0), (1, 1), (24, 6), (240, 60), (1440, 60), (3000, 60), (9001, 181)])
def test_the_number_of_repeats_is_fixed(scored, n):
    sample = EvenSample(number_to_repeat(scored), scored, seed=3)
    assert number_to_repeat(scored) == n
    assert sum(sample.takes_next() for _ in range(scored)) == n


def test_each_segment_gives_one_and_each_place_is_as_likely():
    counts = Counter[int]()
    for seed in range(2000):
        sample = EvenSample(3, 20, seed)
        taken = [at for at in range(20) if sample.takes_next()]
        assert [at * 3 // 20 for at in taken] == [0, 1, 2]
        counts.update(taken)
    assert len(counts) == 20
    assert all(2000 * 3 / 20 * 0.75 < count < 2000 * 3 / 20 * 1.25 for count in counts.values())


def test_half_of_the_questions_gives_half_of_the_number():
    sample = EvenSample(60, 1440, seed=1)
    assert sum(sample.takes_next() for _ in range(720)) == 30
