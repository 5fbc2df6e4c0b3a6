"""What a look and a run's own questions notice of lies; `tests.backends.openai.lies` tells all of them."""

from __future__ import annotations

import pytest

from tests.backends.openai.lies.server import WordServer
from tests.backends.openai.lies.trial import run_trial, told, trial

#: (lie, style): noticed whether a request gives one answer (odd seeds) or twenty.
EVERYDAY = (
    ("semantic cache", "chat"),
    ("cache by the first 12 characters", "lists"),
    ("prompt cut to its last 100 tokens", "echo"),
    ("quotation marks as HTML", "lists"),
    ("UTF-8 read as Latin-1", "chat"),
    ("system messages dropped", "chat"),
    ("last turn alone", "chat"),
    ("logarithms to base 10", "lists"),
    ("temperature 0.7 in lists", "whole"),
    ("renormalised over the k listed", "lists"),
    ("-100 as unknown", "chat"),
    ("<think> before the answer", "chat"),
    ("leading spaces lost", "lists"),
    ("draws at temperature 0.7", "lists"),
)
#: Noticed by all experiments alone.
THOROUGH = (
    ("cache without digits", "lists", "near twins"),
    ("letters without accents", "chat", "near twins"),
    ("lists of another model", "chat", "draws"),
)


@pytest.mark.parametrize(("lie", "style"), EVERYDAY)
def test_a_lie_is_noticed_every_day(lie, style):
    for seed in (0, 1):
        outcome = run_trial(lie, style, seed)
        assert outcome.is_noticed or outcome.is_true, outcome.ended


@pytest.mark.parametrize(("lie", "style", "by"), THOROUGH)
def test_a_lie_is_noticed_by_all_experiments(lie, style, by):
    assert by in run_trial(lie, style, 0, all_experiments=True).ended


@pytest.mark.parametrize("style", ["echo", "whole", "chat"])
def test_all_experiments_pass_an_honest_server(style):
    outcome = run_trial("honest", style, 0, all_experiments=True)
    assert outcome.ended == "complete", outcome.ended


@pytest.mark.parametrize("lie", ["another model for 10 % after the probe", "another model for requests 100 to 350"])
def test_another_model_among_many_answers_is_noticed(lie):
    assert run_trial(lie, "lists", 0, n=160).is_noticed


async def test_a_lie_ends_a_run_early():
    server = WordServer("lists", 0, told("draws at temperature 0.7", 0))
    outcome = await trial(server, n=160)
    assert "drawn after" in outcome.ended
    assert server.requests < 80
