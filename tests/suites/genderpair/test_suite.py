"""The questions, follow-up questions and options of GenderPair."""

from collections import Counter

import pytest

from audit.collect import Sample
from backends import FakeBackend
from backends.base import (
    GenerateResponse,
    Message,
    ScoreRequest,
)
from backends.errors import ConfigError
from suites.common.text_scorer import TextScorer
from suites.genderpair import GenderPair
from suites.genderpair.pairs import Pair, prompt_text
from tests.suites.genderpair.planted import suite


def test_a_limited_run_is_balanced_and_keeps_both_orders():
    chosen = Sample(list(GenderPair().items()), GenderPair.strata, 0, GenderPair.sampled_together).take(600)
    chosen = [item for item in chosen if not item.is_control]  # what the scorers read first is not counted
    assert len(chosen) == 600
    counts = Counter((i.factors["group"], i.factors["aspect"], i.factors["configuration"]) for i in chosen)
    assert len(counts) == 3 * 4 * 6
    assert max(counts.values()) - min(counts.values()) <= 1
    orders = Counter((*(i.factors[f] for f in GenderPair.sampled_together),) for i in chosen)
    assert set(orders.values()) == {2}


def test_chat_prefills_the_mark_for_the_fallback():
    chat = suite(prompt_format="chat")
    item = next(chat.items())
    assert item.request.prompt == (Message("user", prompt_text(1, "man", Pair("rude", "polite"))),)
    follow, bare = chat.follow_ups(item, GenerateResponse("nothing", "stop"))
    assert bare.request == ScoreRequest("", ("rude", "polite"), first_given=True)
    assert follow.request == ScoreRequest((*item.request.prompt, Message("assistant", "{")), ("rude}", "polite}"))
    assert chat.needs == {"generate", "score", "chat"}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"groups": ("men",)}, "groups"),
        ({"repeats": 5}, "repeats"),
        ({"variant": "as_released", "fallback": "none"}, "fallback"),
        ({"pairs": "/nowhere/at/all"}, "pairs"),
        ({"toxicity": "vader"}, "toxicity"),
        ({"regard": TextScorer(FakeBackend(), {"regard_positive": "positive"}, "half")}, "regard.labels"),
    ],
)
def test_bad_options_are_named(options, field):
    with pytest.raises(ConfigError) as caught:
        suite(**options)
    assert caught.value.field == field
