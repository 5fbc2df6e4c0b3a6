"""Rows of the counting benchmark: bias scores, ties, bounds, changes and tests, with planted models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import pytest
from statsmodels.stats.contingency_tables import mcnemar

from backends.base import (
    ContinuationScore,
    ScoreResponse,
    TokenLogprob,
)
from suites import MGBR
from suites.base import Factor, IdentifiedInterval, Row
from suites.mgbr.design import CHANGES
from tests.suites.mgbr.planted import (
    FEMALE_JOBS,
    MALE_JOBS,
    MEN,
    WOMEN,
    bounded,
    counts_only,
    figure,
    last_list,
    lists_of,
    mean,
    noisy,
    rows_of,
    score,
)


def test_the_bias_score_is_accuracy_without_minus_with_jobs() -> None:
    def misled_by_long_lists(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
        right = sum(w in (WOMEN if gender == "female" else MEN) for w in words)
        added = sum(w in FEMALE_JOBS or w in MALE_JOBS for w in words)
        return {right + added: -0.5} if added > 4 else {right: -0.5}

    suite = MGBR(n=60, conditions=["zero-shot"])
    rows = rows_of(suite, misled_by_long_lists)
    long_lists = [i.factors["r"] > 4 for i in lists_of(suite) if i.factors["test_set"] == "D_ff"]  # type: ignore[operator]
    for gender, without, with_them in (("female", "D_gf", "D_ff"), ("male", "D_gm", "D_mm")):
        expected = sum(long_lists) / len(long_lists)
        assert 0 < expected < 1
        accuracy = [mean(rows, "accuracy", kind="list", test_set=t) for t in (without, with_them)]
        assert mean(rows, "bias_score", kind="pair", gender=gender) == pytest.approx(accuracy[0] - accuracy[1])
        assert mean(rows, "bias_score", kind="pair", gender=gender) == pytest.approx(expected)
    assert mean(rows, "accuracy", kind="list", test_set="D_ff", r=4) == 1.0
    assert mean(rows, "accuracy", kind="list", test_set="D_ff", r=5) == 0.0


def one_row(a: ContinuationScore, b: ContinuationScore) -> Row:
    suite = MGBR(n=1, conditions=["zero-shot"])
    return suite.read(lists_of(suite)[0], ScoreResponse((a, b)))


@pytest.mark.parametrize(
    ("a", "b", "accuracy", "tie"),
    [
        (score(-1.0), score(-2.0), IdentifiedInterval.exact(1), IdentifiedInterval.exact(0)),
        (score(-2.0), score(-1.0), IdentifiedInterval.exact(0), IdentifiedInterval.exact(0)),
        (score(-1.5), score(-1.5), IdentifiedInterval.exact(0), IdentifiedInterval.exact(1)),
        (score(-1.0), bounded(None, -3.0), IdentifiedInterval.exact(1), IdentifiedInterval.exact(0)),
        (bounded(None, -3.0), score(-1.0), IdentifiedInterval.exact(0), IdentifiedInterval.exact(0)),
        (bounded(None, -1.0), score(-1.0), IdentifiedInterval.exact(0), IdentifiedInterval(None, 0, 1)),
        (bounded(None, -0.5), score(-1.0), IdentifiedInterval(None, 0, 1), IdentifiedInterval(None, 0, 1)),
        (bounded(None, -3.0), bounded(None, -3.0), IdentifiedInterval(None, 0, 1), IdentifiedInterval(None, 0, 1)),
        (bounded(-2.0, -1.0), bounded(-4.0, -3.0), IdentifiedInterval.exact(1), IdentifiedInterval.exact(0)),
    ],
)
def test_right_is_strictly_likelier_and_open_where_bounds_are(
    a: ContinuationScore, b: ContinuationScore, accuracy: IdentifiedInterval, tie: IdentifiedInterval
) -> None:
    row = one_row(a, b)
    assert (row.values["accuracy"], row.values["tie"]) == (accuracy, tie)


def digits(text: str, *logprobs: float, exact: bool = True) -> ContinuationScore:
    """A score of " 10" in the tokens " ", "1" and "0", as models have it that read digits one by one."""
    tokens = [TokenLogprob(c, i, i + 1, p, ord(c), exact) for i, (c, p) in enumerate(zip(text, logprobs, strict=True))]
    return (
        ContinuationScore.exact(tokens)
        if exact
        else ContinuationScore(None, None, sum(logprobs), "bounded", "clean", tuple(tokens))
    )


def test_a_count_that_begins_the_other_holds_its_mass_already() -> None:
    one, ten = digits(" 1", -0.1, -0.2), digits(" 10", -0.1, -0.2, -0.3)
    for first, second in ((one, ten), (ten, one)):
        row = one_row(first, second)
        assert row.values["coverage"] == IdentifiedInterval.exact(math.exp(-0.1 - 0.2))
        assert row.values["accuracy"].value == float(first is one)
    two = digits(" 2", -0.1, -2.0)
    assert one_row(two, ten).values["coverage"].value == pytest.approx(math.exp(-2.1) + math.exp(-0.6))


def test_a_list_without_answer_makes_its_pair_missing() -> None:
    suite = MGBR(n=2, conditions=["zero-shot", "zero-shot+cot"], genders=["female"])
    rows = []
    for item in lists_of(suite):
        if (item.factors["condition"], item.factors["test_set"], item.factors["instance"]) == ("zero-shot", "D_ff", 1):
            rows.append(Row(item.id, item.factors, {}, missing="timeout"))
        else:
            rows.append(suite.read(item, ScoreResponse((score(-1.0), score(-2.0)))))
    derived = suite.derive(rows)
    missing = Counter(r.factors["kind"] for r in derived if r.missing == "timeout")
    r_of_first = next(i.factors["r"] for i in lists_of(suite) if i.factors["instance"] == 1)
    assert missing == {"list": 1, "pair": 1, "change": 1, "bias_change": 1, "occupation": r_of_first}
    assert len([r for r in derived if r.factors["kind"] == "pair" and r.missing is None]) == 3


def test_mcnemars_p_is_that_of_statsmodels_on_the_same_table() -> None:
    suite = MGBR(n=40)
    rows = rows_of(suite, noisy(3))
    seen = set()
    for condition, against in CHANGES:
        for test_set in ("D_gf", "D_ff", "D_gm", "D_mm"):
            a, b = (
                {
                    r.factors["instance"]: r.values["accuracy"].value
                    for r in rows
                    if r.factors["kind"] == "list"
                    and (r.factors["condition"], r.factors["test_set"]) == (name, test_set)
                }
                for name in (condition, against)
            )
            table = [[sum(a[i] == x and b[i] == y for i in a) for y in (1.0, 0.0)] for x in (1.0, 0.0)]
            expected = mcnemar(table, exact=True).pvalue
            where: dict[str, Factor] = {"condition": condition, "against": against, "test_set": test_set}
            assert figure(rows, "mcnemar_p", kind="mcnemar", **where) == [pytest.approx(expected)]
            changes = figure(rows, "accuracy_change", kind="change", **where)
            assert (changes.count(1.0), changes.count(-1.0)) == (table[0][1], table[1][0])
            assert sum(figure(rows, "improved", kind="change", **where)) == table[0][1]
            assert sum(figure(rows, "worsened", kind="change", **where)) == table[1][0]
            seen.add(round(expected, 6))
    assert len(seen) > 5
    assert min(seen) < 0.05 < max(seen)
    assert sum(spec.measure == "mcnemar_p" for spec in suite.measures(rows)) == 4 * len(CHANGES)


def test_a_bias_change_is_the_difference_of_the_two_bias_scores() -> None:
    rows = rows_of(MGBR(n=50), noisy(5))
    for gender in ("female", "male"):
        scores = [
            mean(rows, "bias_score", kind="pair", gender=gender, condition=c) for c in ("few-shot+cot", "few-shot")
        ]
        where: dict[str, Factor] = {"gender": gender, "condition": "few-shot+cot", "against": "few-shot"}
        assert mean(rows, "bias_change", kind="bias_change", **where) == pytest.approx(scores[0] - scores[1])


def test_an_occupations_bias_is_the_mean_of_lists_that_add_it() -> None:
    suite = MGBR(n=80, conditions=["zero-shot"])

    def misled_by_nannies(gender: str, condition: str, words: list[str]) -> Mapping[int, float]:
        wrong = "housekeeper" in words or "plumber" in words
        return {} if wrong else counts_only(gender, condition, words)

    rows = rows_of(suite, misled_by_nannies)
    lists = [
        last_list(i.request.prompt)  # type: ignore[union-attr, arg-type]
        for i in lists_of(suite)
        if i.factors["test_set"] == "D_ff"
    ]
    with_typist = [words for words in lists if "typist" in words]
    expected = sum("housekeeper" in words for words in with_typist) / len(with_typist)
    assert 0 < expected < 1
    assert mean(rows, "occupation_bias", kind="occupation", occupation="typist") == pytest.approx(expected)
    assert mean(rows, "occupation_bias", kind="occupation", occupation="housekeeper") == 1.0
    assert mean(rows, "occupation_bias", kind="occupation", occupation="plumber") == 1.0
