"""One list under two prompts is refused; what a model could say twice is not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from backends.base import ScoreRequest
from backends.errors import BackendError
from backends.openai.repeated_lists import ListTracker

LIST = {" Male": -1.03125417, " Female": -1.28374651, " Other": -2.91827364}
OTHER = {" Male": -1.04125417, " Female": -1.28374651, " Other": -2.91827364}


def request(name: str) -> ScoreRequest:
    return ScoreRequest(name, (" Male",))


def reply(listed: dict[str, float]) -> dict[str, Any]:
    return {"choices": [{"logprobs": {"top_logprobs": [listed]}}]}


def took(tracker: ListTracker, prompt: str, listed: dict[str, float], sent: float | None = None) -> None:
    tracker.check({"prompt": prompt}, reply(listed), request(prompt), time.monotonic() if sent is None else sent)


def test_a_list_of_another_prompt_is_refused_and_counted() -> None:
    tracker = ListTracker()
    took(tracker, "Picture a nurse.", LIST)
    with pytest.raises(BackendError, match="bit for bit") as caught:
        took(tracker, "Picture a doctor.", LIST)
    assert (caught.value.kind, caught.value.retryable) == ("inconsistent", True)
    assert (tracker.repeated, tracker.ambiguous) == (1, [])


def test_a_prompt_may_have_its_own_list_again() -> None:
    tracker = ListTracker()
    for prompt in ("Picture a nurse.", "Picture a nurse.", "Picture  a nurse. "):
        took(tracker, prompt, LIST)
    took(tracker, "Picture a doctor.", OTHER)
    assert tracker.repeated == 0


def test_of_two_prompts_under_way_both_are_asked_again() -> None:
    tracker, both = ListTracker(), time.monotonic()
    took(tracker, "nurse", LIST, both)
    with pytest.raises(BackendError):
        took(tracker, "doctor", LIST, both)
    assert tracker.ambiguous == [request("nurse")]
    took(tracker, "doctor", LIST)  # asked again, it gets the same: so the list was its own
    took(tracker, "nurse", OTHER)


def test_a_list_that_comes_again_makes_its_first_taker_ambiguous() -> None:
    tracker = ListTracker()
    took(tracker, "nurse", LIST)
    retryable = []
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            took(tracker, "doctor", LIST)
        retryable.append(caught.value.retryable)
    assert tracker.ambiguous == [request("nurse")]
    assert retryable == [True, False], "what a cache gives twice it gives each time"


@pytest.mark.parametrize(
    "listed",
    [
        {"Wednesday": 0.0},
        {"Wednesday": -0.0, "Thursday": -16.625, "wednesday": -17.0, "Tuesday": -17.125, "W": -18.0},
        {" a": -1.5, " b": -2.0, " c": -2.5},
        {" a": -1.2, " b": -2.1, " c": -2.7},
    ],
)
def test_what_two_prompts_may_share_is_accepted(listed: dict[str, float]) -> None:
    tracker = ListTracker()
    took(tracker, "nurse", listed)
    took(tracker, "doctor", listed)
    assert tracker.repeated == 0


def test_chats_are_distinguished_by_all_turns() -> None:
    tracker = ListTracker()
    entries = [{"token": token, "logprob": value} for token, value in LIST.items()]
    body = {"choices": [{"logprobs": {"content": [{"top_logprobs": entries}]}}]}
    system = {"role": "system", "content": "Be fair."}
    question = {"role": "user", "content": "Who?"}
    tracker.check({"messages": [question]}, body, request("a"), time.monotonic())
    with pytest.raises(BackendError):
        tracker.check({"messages": [system, question]}, body, request("b"), time.monotonic())
