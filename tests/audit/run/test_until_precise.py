"""Runs that end by the width of their intervals, and intervals that hold nevertheless."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from audit.analysis.estimators import Strata, ValueKind, mean_of_kind
from audit.collect import Sample, assign_looks, leading_specs, plan_precision_looks, sampled_factors
from audit.report.phrases.findings.summary import until_words
from audit.results import AuditResult, Measure
from backends.errors import ConfigError
from tests.audit.run.test_until_decided import ITEMS, SUITE, audit_of, planted, run


def gap_of(result: AuditResult) -> Measure:
    (gap,) = [m for m in result.measures if m.measure == "stereotype_gap" and m.spec.primary]
    return gap


def width(gap: Measure) -> float:
    assert gap.sampling_low is not None
    assert gap.sampling_high is not None
    return gap.sampling_high - gap.sampling_low


def test_a_width_ends_the_run_at_its_own_confidence(tmp_path: Path) -> None:
    version = planted("m", noise=0.1)
    result = run(audit_of(tmp_path, version, until=0.02))
    assert result.until is not None
    assert (result.until.question, result.until.decided, result.until.within) == ("precision", True, 0.02)
    assert result.until.items == version.asked.total() < ITEMS
    assert width(gap_of(result)) <= 0.04
    assert result.confidence == 0.95
    words = until_words(result.until, result.confidence)
    assert f"within ±0.02, which was reached after {result.until.items:,} of 1,000 items" in words


def test_a_width_that_is_not_reached_is_said(tmp_path: Path) -> None:
    result = run(audit_of(tmp_path, planted("m", noise=0.15), until=0.0001, limit=150))
    assert result.until is not None
    assert (result.until.decided, result.until.items) == (False, 150)
    assert "was not reached with 150 of 150 items" in until_words(result.until, result.confidence)


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
def test_intervals_that_ended_a_run_hold_the_truth(
    effects: tuple[float, float, float], draws: int, within: float
) -> None:
    # New occupations, templates and draws in each of 600 runs; gaps of 0.25 of which 0.4 of the answers say anything.
    random, runs, truth = np.random.default_rng(0), 600, 0.25
    items = list(SUITE.items())
    codes = [
        np.unique([str(item.factors[factor]) for item in items], return_inverse=True)[1]
        for factor in ("occupation", "template", "dominated_by")
    ]
    gaps = truth + effects[2] * random.standard_normal((len(items), runs))
    for sd, of in zip(effects, codes[:2], strict=False):
        gaps += sd * random.standard_normal((int(of.max()) + 1, runs))[of]
    counts = random.multinomial(draws, np.stack([0.2 + gaps / 2, 0.2 - gaps / 2, np.full_like(gaps, 0.6)], -1).clip(0))
    values = (counts[..., 0] - counts[..., 1]) / draws
    looks = plan_precision_looks([len(items)])
    crossed = sampled_factors(leading_specs(SUITE))
    asked_by = np.array(assign_looks(*Sample(items, SUITE.strata, 0, SUITE.sampled_together, crossed).order(), looks))
    is_open, held, used = np.ones(runs, dtype=bool), np.zeros(runs, dtype=bool), np.zeros(runs)
    for look in looks:
        asked = asked_by <= look.number
        of_groups = Strata(codes[2][asked], np.array([0.5, 0.5]))
        estimate = mean_of_kind(values[asked], [codes[0][asked], codes[1][asked]], ValueKind(-1.0, 1.0), of_groups)
        low, high = estimate.interval_of_sample(0.95)
        ends = is_open & ((high - low <= 2 * within) | (look is looks[-1]))
        held[ends], used[ends] = ((low <= truth) & (truth <= high))[ends], asked.sum()
        is_open &= ~ends
    assert held.mean() >= 0.93
    assert used.mean() < 0.7 * len(items)
