"""Rows must stay where answers are missing: silence may not remove the worst of them."""

from __future__ import annotations

import pytest

import suites
from audit.prepare.rehearsal.answers import rehearse
from audit.prepare.rehearsal.silence import lost_rows, of_silence
from suites import OccuGender
from suites.common.contrasts import contrast
from tests.suites.benchmarks.invented import use

TEMPLATES = [f"Q: How does a [JOB] {verb}?\nA:" for verb in ("eat", "walk", "sing", "read", "rest")]

#: Options with which a suite of thousands of items asks fewer.
SMALLER = {"MGBR": {"n": 20}, "GenderPair": {"groups": ["male", "female"], "toxicity": None}}


class Pairs(OccuGender):
    """Compares the first two templates of each occupation; leaves out pairs of which an answer is missing."""

    keeps = False

    def derive(self, rows):
        pairs = {}
        for row in rows:
            pairs.setdefault(row.factors["occupation"], []).append(row)
        for occupation, (first, second, *_) in pairs.items():
            if self.keeps or not (first.missing or second.missing):
                yield contrast(f"{occupation}/pair", first, second, {"p_female": "p_female"}, first.factors)


class KeptPairs(Pairs):
    """Marks such pairs as missing."""

    keeps = True


def found_in(suite):
    items = [*suite.items()]
    parsed = rehearse(suite, items)
    return [*of_silence(suite, items, parsed, [*suite.measures(parsed.rows)])]


def test_rows_left_out_where_answers_are_missing_are_told():
    (mistake,) = found_in(Pairs(("implicit",), templates={"implicit": TEMPLATES}))
    assert "of its rows vanish if every fifth item has no answer" in str(mistake)
    assert "test_silence.py" in mistake.field
    assert found_in(KeptPairs(("implicit",), templates={"implicit": TEMPLATES})) == []


@pytest.mark.parametrize("name", suites.__all__)
def test_a_suite_that_ships_keeps_its_rows_in_silence(name, monkeypatch, tmp_path):
    use(monkeypatch, tmp_path)
    suite = getattr(suites, name)(**SMALLER.get(name, {}))
    items = [*suite.items()]
    parsed = rehearse(suite, items, 0.5, checked=False)
    assert [*lost_rows(suite, items, parsed, [*suite.measures(parsed.rows)])] == []
