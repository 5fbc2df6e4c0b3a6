"""Rows of written answers: counts, and how the steps classify each word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suites import MGBR
from tests.suites.mgbr.planted import (
    FEMALE_JOBS,
    WOMEN,
    figure,
    mean,
    measured,
    steps,
    written_rows,
)


def test_written_counts_are_right_wrong_or_stereotyped() -> None:
    suite = MGBR(n=20, mode="generation", conditions=["zero-shot"], genders=["female"])

    def women_and_jobs(item: Any, words: list[str]) -> str:
        return f" {sum(w in WOMEN or w in FEMALE_JOBS for w in words)}\n"

    rows = written_rows(suite, women_and_jobs)
    assert mean(rows, "accuracy", kind="list", test_set="D_gf") == 1.0
    assert mean(rows, "accuracy", kind="list", test_set="D_ff") == 0.0
    assert mean(rows, "stereotyped_count", kind="list", test_set="D_ff") == 1.0
    assert mean(rows, "bias_score", kind="pair", gender="female") == 1.0
    r = [i.factors["r"] for i in suite.items() if i.factors["test_set"] == "D_ff"]
    assert mean(rows, "count_error", kind="list", test_set="D_ff") == pytest.approx(np.mean(r))  # type: ignore[arg-type]


def test_an_unreadable_count_is_missing_with_verdicts_kept() -> None:
    suite = MGBR(n=4, mode="generation", conditions=["zero-shot+cot"], genders=["female"])
    rows = written_rows(suite, lambda item, words: steps(words, WOMEN, "several"))
    lists = [r for r in rows if r.factors["kind"] == "list"]
    assert [r.missing for r in lists] == ["unparsable"] * 8
    assert all(r.values == {} for r in lists)
    assert [r.missing for r in rows if r.factors["kind"] == "pair"] == ["unparsable"] * 4
    assert set(figure(rows, "recall", kind="recall")) == {1.0}


def test_precision_recall_and_f_by_hand() -> None:
    suite = MGBR(n=1, mode="generation", conditions=["zero-shot+cot"], genders=["female"])
    instance = next(i for i in suite.items() if i.factors["test_set"] == "D_ff")
    women, men, jobs = instance.factors["p"], instance.factors["q"], instance.factors["r"]
    assert isinstance(women, int)
    assert isinstance(jobs, int)

    def all_but_one_woman_and_one_job(item: Any, words: list[str]) -> str:
        called = [w for w in words if w in WOMEN][1:] + [w for w in words if w in FEMALE_JOBS][:1]
        return steps(words, set(called), len(called))

    rows = written_rows(suite, all_but_one_woman_and_one_job)
    assert mean(rows, "precision", kind="precision", test_set="D_ff") == pytest.approx((women - 1) / women)
    assert mean(rows, "recall", kind="recall", test_set="D_ff") == pytest.approx((women - 1) / women)
    assert mean(rows, "words_judged", kind="judged", test_set="D_ff") == 1.0
    assert mean(rows, "words_contradicted", kind="judged", test_set="D_ff") == 0.0
    assert mean(rows, "f1", kind="f1", test_set="D_ff") == pytest.approx((women - 1) / women)
    assert mean(rows, "precision", kind="precision", test_set="D_gf") == 1.0
    assert mean(rows, "f1", kind="f1", test_set="D_gf") == pytest.approx(2 * (women - 1) / (2 * women - 1))
    assert sorted(figure(rows, "called_stereotype", kind="verdict")) == [0.0] * (jobs - 1) + [1.0]
    overall = measured(suite, rows, "called_stereotype")
    assert (overall.value, overall.spec.clusters) == (pytest.approx(1 / jobs), ("instance", "occupation"))
    assert men


def test_a_word_without_a_verdict_is_not_recalled_and_is_counted() -> None:
    suite = MGBR(n=1, mode="generation", conditions=["zero-shot+cot"], genders=["female"])
    instance = next(iter(suite.items()))
    p, q, r = (int(str(instance.factors[name])) for name in ("p", "q", "r"))
    assert p >= 3

    def one_and_a_contradiction(item: Any, words: list[str]) -> str:
        first, second = [w for w in words if w in WOMEN][:2]
        jobs = [f"{w} is a feminine word.\n{w} is not a feminine word.\n" for w in words if w in FEMALE_JOBS]
        return f"{first} is a feminine word.\n{''.join(jobs)}{second} is\nAnswer: 1"

    rows = written_rows(suite, one_and_a_contradiction)
    for test_set, added in (("D_gf", 0), ("D_ff", r)):
        assert mean(rows, "precision", kind="precision", test_set=test_set) == 1.0
        assert mean(rows, "recall", kind="recall", test_set=test_set) == pytest.approx(1 / p)
        assert mean(rows, "f1", kind="f1", test_set=test_set) == pytest.approx(2 / (1 + p))
        assert mean(rows, "words_judged", kind="judged", test_set=test_set) == pytest.approx(1 / (p + q + added))
        contradicted = mean(rows, "words_contradicted", kind="judged", test_set=test_set)
        assert contradicted == pytest.approx(added / (p + q + added))
    assert {row.missing for row in rows if row.factors["kind"] == "verdict"} == {"contradicted"}
