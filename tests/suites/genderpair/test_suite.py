"""The questions, follow-up questions and options of GenderPair."""

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from audit.collect.sample import Sample
from backends.base import (
    GenerateResponse,
    Message,
    ScoreRequest,
)
from backends.errors import ConfigError
from backends.stand_ins.fake import FakeBackend
from suites.common.text_scorer import TextScorer
from suites.genderpair import GenderPair
from suites.genderpair.pairs import Pair
from suites.genderpair.prompts import prompt_text
from tests.suites.genderpair.planted import suite

DATA = Path(__file__).parents[4] / "shared" / "data" / "genderpair"


@pytest.mark.skipif(not DATA.is_dir(), reason="the published files are not on this machine")
def test_the_published_benchmark_is_planned_in_bounded_memory():
    published = GenderPair(pairs=DATA, toxicity=None, regard=None)
    tracemalloc.start()
    count = sum(1 for _ in published.items())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 103_854
    assert peak < 20 * 2**20


def test_item_ids_are_unique_and_follow_ups_have_their_own():
    both = suite(structures=("paper", "brackets"), toxicity="profanity", regard="vader")
    ids = []
    for item in both.items():
        ids.append(item.id)
        ids += (
            []
            if item.is_control
            else [f.id for f in both.follow_ups(item, GenerateResponse("The man saw the woman. They left.", "stop"))]
        )
    assert len(set(ids)) == len(ids)
    assert [i.id for i in both.items()] == [i.id for i in both.items()]


def test_a_limited_run_is_balanced_and_keeps_both_orders():
    chosen = Sample(list(GenderPair().items()), GenderPair.strata, 0, GenderPair.sampled_together).take(600)
    chosen = [item for item in chosen if not item.is_control]  # what the scorers read first is not counted
    assert len(chosen) == 600
    counts = Counter((i.factors["group"], i.factors["aspect"], i.factors["configuration"]) for i in chosen)
    assert len(counts) == 3 * 4 * 6
    assert max(counts.values()) - min(counts.values()) <= 1
    orders = Counter((*(i.factors[f] for f in GenderPair.sampled_together),) for i in chosen)
    assert set(orders.values()) == {2}


@pytest.mark.parametrize(
    "options", [{"repeats": 10, "sampling": {"temperature": 1.0}}, {"structures": ("paper", "reworded", "brackets")}]
)
def test_a_limited_run_of_repeats_or_structures_keeps_every_cell(options):
    many = GenderPair(toxicity=None, regard=None, **options)
    chosen = Sample(list(many.items()), many.strata, 0, many.sampled_together).take(600)
    counts = Counter((i.factors["group"], i.factors["aspect"], i.factors["configuration"]) for i in chosen)
    assert len(counts) == 3 * 4 * 6
    assert max(counts.values()) - min(counts.values()) <= 3
    plain = GenderPair(toxicity=None, regard=None)
    assert plain.sampled_together == GenderPair.sampled_together  # the sample of a plain run stays what it was


def test_chat_prefills_the_mark_for_the_fallback():
    chat = suite(prompt_format="chat")
    item = next(chat.items())
    assert item.request.prompt == (Message("user", prompt_text("paper", 1, "man", Pair("rude", "polite"))),)
    follow, bare = chat.follow_ups(item, GenerateResponse("nothing", "stop"))
    assert bare.request == ScoreRequest("", ("rude", "polite"), first_given=True)
    assert follow.request == ScoreRequest((*item.request.prompt, Message("assistant", "{")), ("rude}", "polite}"))
    assert chat.needs == {"generate", "score", "chat"}


def test_every_prompt_and_repeat_has_its_own_draw():
    drawn = suite(repeats=3, sampling={"temperature": 1.0})
    requests = [item.request for item in drawn.items()]
    assert len({(r.seed, r.repeat) for r in requests}) == len(requests)
    assert [i.request for i in suite(repeats=3, sampling={"temperature": 1.0}, seed=1).items()] != requests


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"groups": ("men",)}, "groups"),
        ({"structures": "paper"}, "structures"),
        ({"prompt_format": "html"}, "prompt_format"),
        ({"repeats": 5}, "repeats"),
        ({"variant": "as_released", "fallback": "none"}, "fallback"),
        ({"variant": "released"}, "variant"),
        ({"pairs": "/nowhere/at/all"}, "pairs"),
        ({"toxicity": "vader"}, "toxicity"),
        ({"regard": TextScorer(FakeBackend(), {"regard_positive": "positive"}, "half")}, "regard.labels"),
    ],
)
def test_bad_options_are_named(options, field):
    with pytest.raises(ConfigError) as caught:
        suite(**options)
    assert caught.value.field == field
