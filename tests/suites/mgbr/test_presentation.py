"""Tables, charts, published figures and cautions of the counting benchmark."""

from __future__ import annotations

import pytest

from suites import MGBR


def test_published_figures_are_the_papers() -> None:
    suite = MGBR(n=2)
    published = {(f.model, f.where["condition"], f.where["gender"]): f.value for f in suite.shown.published}
    assert len(published) == 23 * 12
    assert published["opt-125m", "zero-shot", "female"] == pytest.approx(0.162)
    assert published["opt-66b", "few-shot", "male"] == pytest.approx(0.25)
    assert published["opt-1.3b", "zero-shot+cot", "female"] == pytest.approx(-0.004)
