"""Which of two requests an answer belongs to that came to both."""

from __future__ import annotations

import time

import pytest

from backends.base import GenerateRequest
from backends.errors import BackendError
from backends.openai.api import SeenAnswers

FIRST, SECOND = GenerateRequest("first"), GenerateRequest("second")


def seen() -> SeenAnswers:
    found = SeenAnswers()
    found.numbered = True
    return found


def test_a_copy_for_a_question_asked_later_leaves_the_first_one_alone() -> None:
    answers = seen()
    answers.check({"id": "1"}, asking=FIRST, sent=time.monotonic())
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, asking=SECOND, sent=time.monotonic())
    assert answers.doubtful == []


def test_where_both_were_under_way_the_first_to_take_it_is_in_doubt() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, asking=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, asking=SECOND, sent=both)
    assert answers.doubtful == [FIRST]


def test_a_request_that_is_given_its_own_answer_twice_puts_no_other_in_doubt() -> None:
    answers = seen()
    both = time.monotonic()
    answers.check({"id": "1"}, asking=FIRST, sent=both)
    with pytest.raises(BackendError, match="given before"):
        answers.check({"id": "1"}, asking=FIRST, sent=both)
    assert answers.doubtful == []
