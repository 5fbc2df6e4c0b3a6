"""Which of two requests an answer belongs to that came to both."""

from __future__ import annotations

import time

import pytest

from backends.base import GenerateRequest
from backends.errors import BackendError
from backends.openai.response_ids import ResponseIdTracker

FIRST, SECOND = GenerateRequest("first"), GenerateRequest("second")


def seen() -> ResponseIdTracker:
    found = ResponseIdTracker()
    found.unique = True
    return found


def test_a_copy_for_a_question_asked_later_leaves_the_first_one_alone() -> None:
    answers = seen()
    answers.check({"id": "1"}, request=FIRST, sent=time.monotonic())
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=SECOND, sent=time.monotonic())
    assert answers.ambiguous == []


def test_where_both_were_under_way_the_first_to_take_it_is_in_doubt() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, request=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=SECOND, sent=both)
    assert answers.ambiguous == [FIRST]


def test_a_request_that_is_given_its_own_answer_twice_puts_no_other_in_doubt() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, request=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, request=FIRST, sent=both)
    assert answers.ambiguous == []


def test_a_copy_of_a_long_list_is_told_from_another_one_under_its_number() -> None:
    def answer(last: float) -> dict[str, object]:
        return {"id": "1", "created": 5, "choices": [{"logprobs": {"top_logprobs": [{"a": -1.0, "b": last}] * 500}}]}

    answers = seen()
    answers.check(answer(-2.0))
    answers.check(answer(-3.0))
    answers.check({**answer(-2.0), "created": 6})
    with pytest.raises(BackendError, match="given before"):
        answers.check(answer(-3.0))


def test_one_name_for_all_answers_numbers_none() -> None:
    answers = ResponseIdTracker()
    for text in ("a", "b", "c", "d"):
        answers.check({"id": "cmpl", "choices": [{"text": text}]})
    assert answers.distinct == 1
