"""Contrasts in words."""

from __future__ import annotations

import pytest

from suites.common.groups.weights import reading_meaning, sides_of

OF_WORDS = "of every 100 points of probability that the scored words hold"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"old": 1.0, "adult": -1.0}, "old minus adult"),
        ({"mw": 1.0, "mm": -1 / 3, "cw": -1 / 3, "cm": -1 / 3}, "mw minus the mean of mm, cw and cm"),
        ({"mw": 0.5, "cw": 0.5, "mm": -0.5, "cm": -0.5}, "the mean of mw and cw minus the mean of mm and cm"),
        ({"mw": 1.0, "cm": 1.0, "mm": -1.0, "cw": -1.0}, "mw + cm minus mm + cw"),
        ({"a": 0.75, "b": 0.25, "c": -1.0}, "0.75 × a + 0.25 × b minus c"),
    ],
)
def test_a_contrast_names_both_of_its_sides(weights, said):
    assert " minus ".join(sides_of(weights)) == said


def test_a_reading_with_braces_is_no_placeholder():
    meaning = reading_meaning("{x}", {"old": 1.0, "young": -1.0})
    assert meaning.above.format(points="5") == "texts about old have '{x}' 5 times in 100 more than young"
