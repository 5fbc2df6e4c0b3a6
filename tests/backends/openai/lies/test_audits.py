"""Lies that begin when a whole audit is under way: no wrong score is accepted in a run that names no problem."""

from __future__ import annotations

import pytest

from tests.backends.openai.lies.audits import audit_trials
from tests.backends.openai.lies.server import Style


def test_an_honest_server_agrees_with_itself() -> None:
    (outcome,) = audit_trials("honest", "lists", range(1), 100)
    assert (outcome.ended, outcome.wrong, outcome.disagreed) == ("complete", 0, 0)
    assert outcome.asked_again == 25
    assert outcome.exact > 200


def test_checking_a_server_costs_at_most_400_requests() -> None:
    (outcome,) = audit_trials("honest", "chat", range(1, 2), 40)
    assert (outcome.ended, outcome.asked, outcome.asked_again) == ("complete", 40, 10)
    # A request a question. 2,000 of them have 60 asked again, and four canaries more, of at most 10 requests each.
    assert outcome.requests - outcome.asked - outcome.asked_again + 60 + 4 * 10 <= 400


@pytest.mark.parametrize(
    ("lie", "style"),
    [
        ("another model for 10 % after the probe", "lists"),
        ("another model but for the canary", "chat"),
        ("another model for requests 100 to 350", "lists"),
        ("5 % previous answers", "chat"),
        ("quantised twin for half", "lists"),
        ("canned refusal", "lists"),
        ("leading spaces lost", "lists"),
    ],
)
def test_a_lie_under_way_is_named_or_bounded(lie: str, style: Style) -> None:
    (outcome,) = audit_trials(lie, style, range(1), 160)
    assert outcome.accepted_wrong == 0
    assert outcome.ended != "complete"
