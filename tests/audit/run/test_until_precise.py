"""Runs that end by the width of their intervals, and intervals that hold nevertheless."""

from __future__ import annotations

from pathlib import Path

from audit.report.phrases.summary import until_words
from audit.results import AuditResult, Measure
from tests.audit.run.test_until_decided import ITEMS, audit_of, planted, run


def gap_of(result: AuditResult) -> Measure:
    (gap,) = [m for m in result.measures if m.measure == "stereotype_gap" and m.spec.primary]
    return gap


def width(gap: Measure) -> float:
    assert gap.low is not None
    assert gap.high is not None
    return gap.high - gap.low


def test_a_width_ends_the_run_at_its_own_confidence(tmp_path: Path) -> None:
    version = planted("m", noise=0.1)
    result = run(audit_of(tmp_path, version, until=0.02))
    assert result.until is not None
    assert (result.until.question, result.until.decided, result.until.within) == ("precision", True, 0.02)
    assert result.until.items == version.asked.total() < ITEMS
    assert width(gap_of(result)) <= 0.04
    assert result.confidence == 0.95
    words = until_words(result.until, result.confidence)
    assert f"within ±0.02, which was reached after {result.until.items:,} of 1,000 questions" in words


def test_a_width_that_is_not_reached_is_said(tmp_path: Path) -> None:
    result = run(audit_of(tmp_path, planted("m", noise=0.15), until=0.0001, limit=150))
    assert result.until is not None
    assert (result.until.decided, result.until.items) == (False, 150)
    assert "was not reached with 150 of 150 questions" in until_words(result.until, result.confidence)


def test_every_model_has_to_be_known(tmp_path: Path) -> None:
    result = run(audit_of(tmp_path, planted("calm", noise=0.01), planted("restless", noise=0.3), until=0.02))
    widths = [width(m) for m in result.measures if m.measure == "stereotype_gap" and m.spec.primary]
    assert len(widths) == 2
    assert max(widths) <= 0.04
    assert result.until is not None
    assert result.until.items > 100, "the calm one alone would do with the first look"
