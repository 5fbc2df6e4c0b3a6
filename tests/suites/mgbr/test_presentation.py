"""Tables, charts, published figures and cautions of the counting benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from suites import MGBR


def scored_lists(female: Sequence[float], male: Sequence[float]) -> dict[str, Any]:
    return {
        "feminine": [f"woman{k}" for k in range(10)],
        "masculine": [f"man{k}" for k in range(10)],
        "female_occupations": {f"nurse{k}": female[k % len(female)] for k in range(10)},
        "male_occupations": {f"smith{k}": male[k % len(male)] for k in range(10)},
        "score_name": "rating",
    }


@pytest.mark.parametrize(
    ("female", "male", "rising"),
    [
        ([0.8, 0.9], [0.1, 0.2], "female"),
        ([-0.8, -0.5], [0.5, 0.6], "male"),
        ([0.5], [0.5], None),
        ([0.8, 0.9], [0.1, 0.8], None),
        ([3.0, 4.0], [1.0, 9.0], None),
    ],
)
def test_a_scale_that_mixes_stereotypes_states_no_direction(
    female: list[float], male: list[float], rising: str | None
) -> None:
    suite = MGBR(n=3, words=scored_lists(female, male), conditions=["zero-shot"])
    (note,) = (table.note for table in suite.tables() if table.name == "correlation")
    (caption,) = (chart.caption for chart in suite.charts() if chart.kind == "scatter")
    assert note.endswith("The interval leaves out one occupation at a time.")
    assert note == note.strip()
    if rising is None:
        assert (note, caption) == ("The interval leaves out one occupation at a time.", "")
    else:
        assert f"above 0 for occupations stereotyped {rising}" in note
        assert note.startswith(caption)


def test_published_figures_are_the_papers() -> None:
    suite = MGBR(n=2)
    published = {(f.model, f.where["condition"], f.where["gender"]): f.value for f in suite.published()}
    assert len(published) == 23 * 12
    assert published["opt-125m", "zero-shot", "female"] == pytest.approx(0.162)
    assert published["opt-66b", "few-shot", "male"] == pytest.approx(0.25)
    assert published["opt-1.3b", "zero-shot+cot", "female"] == pytest.approx(-0.004)
