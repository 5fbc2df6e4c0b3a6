"""A sample that could decide nothing is refused, with the limit that would do."""

import re

import pytest

from audit import Audit
from audit.collect import Sample
from audit.collect.sample import leading_specs, sampled_factors
from audit.prepare.resolve import Requirement, suite_items
from backends import FakeBackend
from backends.base import GenerateRequest
from backends.errors import ConfigError
from suites import MGBR, DebiasingPositions, GenderPair, OccuGender
from suites.base import Item, MeasureSpec

SUITES = [OccuGender(), DebiasingPositions(), GenderPair(), MGBR(n=60)]


def audit_of(folder, suite, limit, **options):
    return Audit({"m": FakeBackend()}, [suite], db=folder / "a.db", out=folder / "out", limit=limit, **options)


def test_debiasing_positions_below_five_occupations_is_refused(tmp_path):
    """Its explicit question is one template of four: five occupations take 19 sets of 39 conditions."""
    counted = []
    for limit in (60, 120, 200, 400, 700):
        with pytest.raises(ConfigError, match="Give 741 or more") as refused:
            suite_items("s", DebiasingPositions(), audit_of(tmp_path, DebiasingPositions(), limit))
        assert refused.value.value == limit
        counted.append(
            int(re.search(r"a sample with (\d) levels? of 'occupation' behind", str(refused.value)).group(1))
        )
    assert counted == sorted(counted)
    assert counted[-1] == 4


def test_a_small_sample_passes_by_name(tmp_path):
    result = audit_of(tmp_path, DebiasingPositions(), 60, small_sample=True).run_sync()
    assert result.suites[0].n_items == 39


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_named_limit_passes_and_one_less_does_not(suite):
    items = list(suite.items())
    specs = leading_specs(suite)
    requirement = Requirement(items, specs)
    sample = Sample(items, suite.strata, 0, suite.sampled_together, sampled_factors(specs))
    least = sample.least(lambda taken: requirement.lacking(taken) is None)
    assert requirement.lacking(sample.take(least)) is None
    assert requirement.lacking(sample.take(least - 1)) is not None
    assert requirement.lacking(items) is None


def test_a_figure_that_samples_no_factor_needs_five_items():
    items = [Item(f"{i}", GenerateRequest("x"), {"kind": "ab"[i % 2]}) for i in range(20)]
    plain = MeasureSpec("p", "p")
    requirement = Requirement(items, [plain])
    assert requirement.lacking(items[:5]) is None
    assert requirement.lacking(items[:4]) == (plain, "item", 4, 5)
