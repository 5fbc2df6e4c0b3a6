"""Lies that begin when a whole audit is under way: no wrong score is accepted in a run that names no problem."""

from __future__ import annotations

import pytest

from tests.backends.openai.lies.audits import audit_trials
from tests.backends.openai.lies.server import Style


def test_an_honest_server_agrees_with_itself() -> None:
    (outcome,) = audit_trials("honest", "lists", range(1), 100)
    assert (outcome.ended, outcome.wrong, outcome.disagreed) == ("complete", 0, 0)
    assert outcome.asked_again >= 15
    assert outcome.exact > 200


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
