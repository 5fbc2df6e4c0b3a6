"""Runs that end by the width of their intervals, and intervals that hold nevertheless."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.collect import Sample, assign_looks, leading_specs, plan_precision_looks, sampled_factors
from audit.report.phrases.findings.summary import until_words
from audit.results import AuditResult, Measure
from backends.errors import ConfigError
from tests.audit.run.test_until_decided import ITEMS, SUITE, audit_of, planted, run


def gap_of(result: AuditResult) -> Measure:
    (gap,) = [m for m in result.measures if m.measure == "stereotype_gap" and m.spec.primary]
    return gap


def width(gap: Measure) -> float:
    assert gap.low is not None
    assert gap.high is not None
    return gap.high - gap.low


def test_every_model_has_to_be_known(tmp_path: Path) -> None:
    result = run(audit_of(tmp_path, planted("calm", noise=0.01), planted("restless", noise=0.15), until=0.02))
    widths = [width(m) for m in result.measures if m.measure == "stereotype_gap" and m.spec.primary]
    assert len(widths) == 2
    assert max(widths) <= 0.04
    assert result.until is not None
    assert result.until.items > 100, "the calm one alone would do with the first look"


def test_a_width_is_compared_with_no_baseline(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compares with nothing"):
        run(audit_of(tmp_path, planted("m"), until=0.02), baseline="released")
    with pytest.raises(ConfigError, match="half the width"):
        audit_of(tmp_path, planted("m"), until=-0.02)
    with pytest.raises(ConfigError, match=r"every primary figure lies within ±1 anyway. Write 5 % as 0.05"):
        run(audit_of(tmp_path, planted("m"), until=5))


@pytest.mark.parametrize(
    ("effects", "draws", "within"),
    [((0.04, 0.03, 0.1), 3, 0.05), ((0.0, 0.0, 0.0), 2, 0.06), ((0.15, 0.05, 0.1), 2, 0.08)],
)
