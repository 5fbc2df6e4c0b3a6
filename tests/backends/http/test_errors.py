"""Every failure of HTTP has its kind."""

from __future__ import annotations

import pytest

from backends.http.errors import from_status, message_of


@pytest.mark.parametrize(
    ("code", "said", "kind", "retryable"),
    [
        (400, "invalid value", "bad_request", False),
        (400, "maximum context length is 2048 tokens", "context_length", False),
        (401, "", "auth", False),
        (402, "", "quota", False),
        (403, "Project does not have access to this model", "auth", False),
        (403, "You are not allowed to request logprobs from this model", "unsupported", False),
        (
            400,
            "Could not finish the message because max_tokens or model output limit was reached",
            "unsupported",
            False,
        ),
        (404, "", "not_found", False),
        (408, "", "timeout", True),
        (429, "slow down", "rate_limited", True),
        (429, "insufficient_quota You exceeded your current quota", "quota", False),
        (500, "3 validation errors", "bad_request", False),
        (500, "oops", "server", True),
        (501, "", "unsupported", False),
        (503, "", "server", True),
        (307, "", "bad_request", False),
    ],
)
def test_each_status_has_its_kind(code: int, said: str, kind: str, retryable: bool) -> None:
    error = from_status(code, {}, said)
    assert (error.kind, error.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("said", "wait", "kind"),
    [
        ("You exceeded your current quota, please check your plan and billing. Please retry in 38 s.", "38", None),
        ("exceeded call rate limit of your pricing tier. See aka.ms/oai/quotaincrease", "7", None),
        ("You exceeded your current quota, please check your plan. Please retry in 38.2s.", "", None),
        ("Resource has been exhausted (e.g. check quota).", "", None),
        ("insufficient_quota You exceeded your current quota", "7", "quota"),
        ("You exceeded your current quota", "", "quota"),
    ],
)
def test_a_quota_that_comes_back_by_itself_is_waited_for(said: str, wait: str, kind: str | None) -> None:
    error = from_status(429, {"retry-after": wait} if wait else {}, said)
    assert error.kind == (kind or "rate_limited")
    assert error.retryable is (kind is None)


def test_a_wait_that_only_googles_text_names_is_kept() -> None:
    body = b'[{"error": {"code": 429, "message": "Quota exceeded. Please retry in 38.2s."}}]'
    assert from_status(429, {}, message_of(body)).retry_after == 38.2
