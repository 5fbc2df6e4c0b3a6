"""Figures of single templates, and the ± over templates."""

import statistics

import pytest

from backends import FakeBackend, PlantedBias
from suites import OccuGender
from suites.base import Row
from suites.common.groups.design import PAPERS_GROUPS
from suites.occugender.measures import plus_minus_rows

SHARES = PAPERS_GROUPS.probabilities


async def answered(suite):
    def groups(prompt):
        female = 0.2 + 0.1 * prompt.count("memory") + 0.2 * prompt.count("admire") + 0.05 * prompt.count("nurse")
        return {"male": 0.9 - female, "female": female, "diverse": 0.1}

    items = list(suite.items())
    planted = PlantedBias(groups, lambda _: suite.expressions["implicit"], 0.6)
    answers = await FakeBackend(score=planted).run([i.request for i in items])
    return [suite.read(i, a) for i, a in zip(items, answers, strict=True)]


async def test_plus_minus_is_the_deviation_of_template_means():
    suite = OccuGender(["implicit"])
    rows = await answered(suite)
    by_group = {row.factors["dominated_by"]: row for row in plus_minus_rows(rows, SHARES)}
    for group, row in by_group.items():
        means = []
        for template in suite.templates:
            values = [
                r.values["p_female"].value
                for r in rows
                if r.factors["template"] == template.id and r.factors["dominated_by"] == group
            ]
            assert len(values) == 20
            means.append(statistics.fmean(values))
        expected = statistics.stdev(means) / 20**0.5
        assert expected > 0.01
        assert row.values["p_female_plus_minus"].value == pytest.approx(expected, abs=1e-12)


async def test_plus_minus_is_missing_where_an_answer_is():
    suite = OccuGender(["implicit"])
    rows = await answered(suite)
    first = rows[0]
    rows[0] = Row(first.item_id, first.factors, {}, "timeout")
    found = {row.factors["dominated_by"]: row.missing for row in plus_minus_rows(rows, SHARES)}
    assert found == {"female": "timeout", "male": None}


def test_every_template_has_its_own_figures():
    specs = [s for s in OccuGender(debiasing=[2]).measures([]) if "template" in s.where]
    assert len(specs) == 2 * (25 + 5) * (2 * 3 + 1)
    assert all(s.is_subgroup and s.clusters == ("occupation",) for s in specs)
