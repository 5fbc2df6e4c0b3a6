"""A sample that could decide nothing is refused, with the limit that would do."""

import itertools
import re

import pytest

from audit import Audit
from audit.collect import Requirement, Sample, leading_specs, levels_behind, sampled_factors
from audit.prepare.resolve import suite_items
from backends import FakeBackend
from backends.base import GenerateRequest
from backends.errors import ConfigError
from suites import MGBR, DebiasingPositions, GenderPair, GeneralAbility, OccuGender
from suites.base import Item, MeasureSpec

SUITES = [OccuGender(), DebiasingPositions(), GenderPair(), MGBR(n=60)]


def audit_of(folder, suite, limit, **options):
    return Audit({"m": FakeBackend()}, [suite], db=folder / "a.db", out=folder / "out", limit=limit, **options)


def test_debiasing_positions_below_five_occupations_is_refused(tmp_path):
    """Its explicit question is one template of four: five occupations of each group take 42 sets of 39 conditions."""
    counted = []
    for limit in (60, 120, 200, 400, 800, 1000, 1300):
        with pytest.raises(ConfigError, match="Give 1638 or more") as refused:
            suite_items("s", DebiasingPositions(), audit_of(tmp_path, DebiasingPositions(), limit))
        assert refused.value.value == limit
        assert "All items have 1 of 'template' behind stereotype_gap (bias explicit" in str(refused.value)
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


def test_a_stratum_that_a_sample_lacks_is_lacking():
    items = [Item(f"{o}/{t}", GenerateRequest("x"), {"o": o, "t": t, "g": o // 9}) for o in range(18) for t in range(6)]
    spec = MeasureSpec("gap", "p", clusters=("o", "t"), stratum="g", weights={0: 0.5, 1: 0.5})
    requirement = Requirement(items, [spec])
    assert requirement.lacking(items) is None
    assert requirement.lacking([item for item in items if item.factors["g"] == 0]) == (spec, "o", 0, 5)
    assert requirement.lacking([item for item in items if item.factors["o"] < 13]) == (spec, "o", 4, 5)


def test_a_stratum_of_no_factor_of_its_own_is_lacking_too():
    items = [Item(f"{t}/{g}", GenerateRequest("x"), {"t": t, "g": g}) for t in range(9) for g in "abc"]
    spec = MeasureSpec("gap", "p", clusters=("t",), stratum="g", weights={"a": 0.5, "b": 0.5})
    requirement = Requirement(items, [spec])
    assert requirement.lacking(items) is None
    assert requirement.lacking([item for item in items if item.factors["g"] != "c"]) is None, "it has no weight"
    assert requirement.lacking([item for item in items if item.factors["g"] != "b"]) == (spec, "g", 1, 2)


def test_a_design_with_three_templates_needs_no_more_than_these():
    items = [Item(f"{o}/{t}", GenerateRequest("x"), {"o": o, "t": t}) for o in range(9) for t in range(3)]
    spec = MeasureSpec("p", "p", clusters=("o", "t"))
    requirement = Requirement(items, [spec])
    assert levels_behind(items, spec) == {"o": 9, "t": 3}
    assert requirement.lacking([item for item in items if item.factors["o"] < 5]) is None
    assert requirement.lacking([item for item in items if item.factors["o"] < 4]) == (spec, "o", 4, 5)
    assert requirement.lacking([item for item in items if item.factors["t"] < 2]) == (spec, "t", 2, 3)


class PairsOfNothing(GeneralAbility):
    """Sets of four questions, and no figure that generalises over anything."""

    sampled_together = ("passage",)

    def items(self):
        for passage, part in itertools.product(range(6), range(4)):
            yield Item(f"{passage}/{part}", GenerateRequest("x"), {"passage": passage, "part": part})

    def measures(self, rows):
        return iter(())


@pytest.mark.parametrize("small_sample", [True, False])
def test_a_limit_below_one_set_never_asks_nothing(tmp_path, small_sample):
    audit = audit_of(tmp_path, PairsOfNothing(), 3, small_sample=small_sample)
    with pytest.raises(ConfigError, match="Give 4 or more"):
        suite_items("s", audit.suites["GeneralAbility"], audit)


def test_a_figure_that_samples_no_factor_needs_five_items():
    items = [Item(f"{i}", GenerateRequest("x"), {"kind": "ab"[i % 2]}) for i in range(20)]
    plain = MeasureSpec("p", "p")
    requirement = Requirement(items, [plain])
    assert requirement.lacking(items[:5]) is None
    assert requirement.lacking(items[:4]) == (plain, "item", 4, 5)
    of_strata = MeasureSpec("p", "p", stratum="kind", weights={"a": 0.5, "b": 0.5})
    requirement = Requirement(items, [of_strata])
    assert requirement.lacking(items[:10]) is None
    assert requirement.lacking(items[:9]) == (of_strata, "item", 4, 5)
