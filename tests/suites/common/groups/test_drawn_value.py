"""Ten draws of forty questions: each figure has a value, and an interval that holds the truth and is not wide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from audit.analysis.measures import measure_table
from audit.analysis.table import Table
from backends.base import ContinuationScore, ScoreResponse
from backends.openai.scoring.sampled import share_interval
from suites.base import MeasureSpec, Row
from suites.common.expressions import spellings
from suites.common.groups.design import PAPERS_GROUPS

GROUPS = spellings({"male": ["Male"], "female": ["Female"], "diverse": ["Other"]})
SPEC = MeasureSpec("p_female", "p_female", clusters=("occupation",))
DRAWS, QUESTIONS, AUDITS, TRUTH = 10, 40, 20, 2 / 4.5


def scored(counts: dict[str, int]) -> ScoreResponse:
    def one(count: int) -> ContinuationScore:
        least, most = share_interval(count, DRAWS)
        low = (math.log(count / DRAWS), math.log(least)) if count else (None, None)
        return ContinuationScore(*low, math.log(most), "sampled", "clean", (), "sampled", DRAWS)

    return ScoreResponse(tuple(one(counts.get(word, 0)) for words in GROUPS.values() for word in words))


def audited(random: np.random.Generator, naming: tuple[float, float]) -> tuple[list[Row], np.ndarray]:
    """The rows of one audit, and the share of female among the answers to each question that name a group."""
    rows, shares = [], []
    for place in range(QUESTIONS):
        female, named = random.beta(2, 2.5), random.beta(*naming)
        parts = [(1 - female) * named * 0.9, female * named, (1 - female) * named * 0.1, 1 - named]
        drawn = random.multinomial(DRAWS, parts)
        counts = dict(zip(("Male", "Female", "Other"), map(int, drawn), strict=False))
        rows.append(PAPERS_GROUPS.read(f"i{place}", {"occupation": f"o{place}"}, scored(counts), GROUPS, "neutral"))
        shares += [drawn[1] / drawn[:3].sum()] if drawn[:3].any() else []
    return rows, np.array(shares)


@pytest.mark.parametrize("naming", [(8, 2), (2, 3)], ids=["most answers name a group", "some questions get none"])
def test_draws_give_a_value(naming: tuple[float, float]) -> None:
    random, held, widths, plain = np.random.default_rng(1), 0, 0.0, 0.0
    for _ in range(AUDITS):
        rows, shares = audited(random, naming)
        (figure,) = measure_table(Table.of(rows), [SPEC], model="m", suite="s", signature={})
        assert figure.value == pytest.approx(shares.mean())
        assert figure.low is not None
        assert figure.high is not None
        held += figure.low <= TRUTH <= figure.high
        widths += figure.high - figure.low
        plain += 2 * 1.96 * float(shares.std(ddof=1)) / math.sqrt(len(shares))
    assert held >= 17  # fewer of 20 in one run of 70 at a coverage of 95 %; measured over 210 audits: 97 %
    assert widths <= 1.3 * plain
