"""The laboratory's short form: lies that begin before the probe, each on one route, are refused or told no wrong score.

The whole catalogue on every route: ``python -m tests.backends.openai.lies``.
"""

from __future__ import annotations

import pytest

from tests.backends.openai.lies.server import Style
from tests.backends.openai.lies.trial import trials

CASES: tuple[tuple[str, Style], ...] = (
    ("BOS doubled on texts, not on ids", "whole"),
    ("semantic cache", "lists"),
    ("cache by the first 12 characters", "chat"),
    ("cache by the last 12 characters", "echo"),
    ("prompt cut to its last 100 tokens", "lists"),
    ("logarithms to base 2", "echo"),
    ("temperature 0.7 in lists", "chat"),
    ("temperature 1.5 in lists", "lists"),
    ("renormalised over the k listed", "lists"),
    ("top-40 in lists", "echo"),
    ("top-p 0.9 in lists", "chat"),
    ("names shifted below rank 1", "lists"),
    ("<think> before the answer", "chat"),
    ("hidden system prompt", "whole"),
    ("greedy draws", "drawn"),
    ("lists of another model", "lists"),
    ("system messages dropped", "chat"),
    ("last turn alone", "chat"),
    ("question marks for other characters", "lists"),
    ("two line breaks as one", "chat"),
    ("trailing line break stripped", "lists"),
    ("quotation marks as HTML", "lists"),
    ("rows of a chunk of 64 tokens", "ids"),
    ("rows of the last 64 tokens", "echo"),
    ("rows at temperature 0.77 from 50 on", "echo"),
)


@pytest.mark.parametrize("style", ["lists", "chat"])
@pytest.mark.parametrize("answers", ["one token", "2 to 31 tokens", "more than 32 tokens"])
def test_another_model_by_the_token_limit_is_refused(answers: str, style: Style) -> None:
    (outcome,) = trials(f"another model for answers of {answers}", style, range(1))
    assert outcome.ended == "refused"


@pytest.mark.parametrize(
    ("lie", "style"),
    [
        ("chosen tokens cached by 64 characters", "score"),
        ("chosen tokens of three decimals", "chosen"),
        ("a floor of -7 under chosen tokens", "score"),
        ("chosen tokens below rank 20 up by 2 nats", "chosen"),
    ],
)
def test_false_values_of_chosen_tokens_are_not_used(lie: str, style: Style) -> None:
    outcomes = trials(lie, style, range(2))  # without draws by bias at the odd seed
    assert [outcome.accepted_wrong for outcome in outcomes] == [0, 0]


@pytest.mark.parametrize(
    ("lie", "style", "seed"),
    [
        ("lists at temperature 1.4 beyond 60 tokens", "lists", 1),
        ("lists at temperature 1.5 where characters have several bytes", "chat", 1),
        ("lists and draws by n at temperature 0.7", "whole", 0),
        ("a bias that stays", "ids", 1),
        ("each word rounded by a step of its own", "lists", 0),
        ("letters without accents", "lists", 0),
        ("ampersands as words", "chat", 1),
        ("prompts of more than 150 tokens without their middle", "chat", 0),
    ],
)
def test_a_lie_after_some_prompts_alone_is_refused(lie: str, style: Style, seed: int) -> None:
    (outcome,) = trials(lie, style, range(seed, seed + 1))
    assert outcome.ended == "refused"


_EVERY = 3  # of the cases, each a probe of 10 s: one in so many is asked every time, all of them with the battery


@pytest.mark.parametrize(
    ("lie", "style"),
    [
        pytest.param(lie, style, id=f"{lie}, {style}", marks=() if number % _EVERY == 0 else pytest.mark.battery)
        for number, (lie, style) in enumerate(CASES)
    ],
)
def test_a_lie_before_the_probe_gives_no_wrong_score(lie: str, style: Style) -> None:
    (outcome,) = trials(lie, style, range(1))
    assert outcome.accepted_wrong == 0, outcome
