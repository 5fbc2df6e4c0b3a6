"""The question without a list, and scores corrected for what a model answers to that, by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from backends.base import ContinuationScore, Message, ScoreRequest, ScoreResponse
from suites import MGBR
from suites.base import IdentifiedInterval, Row
from tests.suites.mgbr.planted import bounded, figure, lists_of, score


def answered(
    suite: MGBR, control: Mapping[int, ContinuationScore], of_list: tuple[ContinuationScore, ...]
) -> list[Row]:
    """All rows where every list's two counts are scored alike, and the counts of the control as given."""
    rows = []
    for item in suite.items():
        assert isinstance(item.request, ScoreRequest)
        counts = [int(text) for text in item.request.continuations]
        scores = tuple(control.get(count, score(-9.0)) for count in counts) if item.is_control else of_list
        rows.append(suite.read(item, ScoreResponse(scores)))
    return list(suite.derive(rows))


def test_control_is_the_question_without_its_list() -> None:
    suite = MGBR(n=3)
    controls = [item for item in suite.items() if item.is_control]
    assert len(controls) == 6 * 2
    for control in controls:
        same = {name: control.factors[name] for name in ("condition", "gender")}
        question = next(item for item in lists_of(suite) if same.items() <= item.factors.items())
        assert isinstance(question.request, ScoreRequest)
        assert isinstance(control.request, ScoreRequest)
        with_list, without = str(question.request.prompt), str(control.request.prompt)
        instruction, _, answer = without.rpartition("\n")
        assert answer == "Answer:"
        assert with_list.startswith(instruction + "\n")
        assert control.request.continuations == tuple(f" {count}" for count in range(1, 21))
    (chat, *_) = (i.request for i in MGBR(n=1, prompt_format="chat").items() if i.is_control)
    assert isinstance(chat, ScoreRequest)
    assert chat.prompt[-1] == Message("assistant", "Answer:")
    assert not [i for i in MGBR(n=1, mode="generation").items() if i.is_control]


@pytest.mark.parametrize(("of_control", "right"), [(0.5, 1), (0.8, 0), (0.7, 0)])
def test_prior_corrected_score_by_hand(of_control: float, right: int) -> None:
    """With the list c is e^0.7 times as likely as c + r. Without it e^0.5, e^0.8 and e^0.7 times: a tie is wrong."""
    suite = MGBR(n=1, conditions=["zero-shot"], genders=["female"])
    instance = suite.design.instances[0]
    counts = {
        len(instance.words["female"]): score(-2.0),
        len(instance.words["female"]) + instance.r: score(-2.0 - of_control),
    }
    rows = answered(suite, counts, (score(-1.0), score(-1.7)))
    assert figure(rows, "accuracy", kind="list") == [1, 1]
    assert figure(rows, "accuracy_without_list", kind="no_list") == [1]
    assert figure(rows, "prior_corrected_accuracy", kind="prior_corrected") == [right, right]
    assert figure(rows, "prior_corrected_bias_score", kind="prior_corrected_pair") == [0]


def test_bounds_and_missing_controls_leave_the_score_open() -> None:
    suite = MGBR(n=1, conditions=["zero-shot"], genders=["female"])
    wide = {count: bounded(-3.0, -1.0) for count in range(1, 21)}
    open_share = IdentifiedInterval(None, 0.0, 1.0)
    rows = answered(suite, wide, (score(-1.0), score(-2.0)))
    corrected = [row for row in rows if row.factors["kind"] == "prior_corrected"]
    assert {row.values["prior_corrected_accuracy"] for row in corrected} == {open_share}
    rows = answered(suite, {count: bounded(None, -4.0) for count in range(1, 21)}, (score(-1.0), score(-2.0)))
    assert {r.values["accuracy_without_list"] for r in rows if r.factors["kind"] == "no_list"} == {open_share}
    control, *lists = suite.items()
    read = [suite.read(item, ScoreResponse((score(-1.0), score(-2.0)))) for item in lists]
    derived = suite.derive([Row(control.id, control.factors, {}, "timeout"), *read])
    assert {r.factors["kind"]: r.missing for r in derived if r.missing} == dict.fromkeys(
        ("control", "no_list", "prior_corrected", "prior_corrected_pair"), "timeout"
    )
    assert not any(math.isnan(v) for v in figure(derived, "accuracy", kind="list"))
