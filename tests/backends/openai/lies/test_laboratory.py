"""The laboratory itself: its model is a model, its honest server is believed, its lies do change an answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.backends.openai.lies.catalogue import FIRST, LIES, MORE
from tests.backends.openai.lies.server import STYLES, Style
from tests.backends.openai.lies.trial import trials
from tests.backends.openai.lies.word_model import VOCABULARY, WordModel, tokens_of


def test_the_word_model_depends_on_every_word_and_on_order() -> None:
    model = WordModel(1)
    prompts = (
        "Anna saw Ben in the garden",
        "Ben saw Anna in the garden",
        "Clara saw Ben in the garden",
        "Anna saw Ben",
    )
    rows = [model.logprobs(tokens_of(prompt)) for prompt in prompts]
    for row in rows:
        assert math.fsum(np.exp(row)) == pytest.approx(1)
        assert len(row) == len(VOCABULARY)
    assert all(np.abs(a - b).max() > 0.05 for i, a in enumerate(rows) for b in rows[:i])


def test_a_word_models_texts_multiply_their_tokens() -> None:
    model, before = WordModel(1), tokens_of("The nurse")
    alone = [model.logprobs((*before, *after))[model.index[t]] for after, t in (((), " is"), ((" is",), " Male"))]
    assert model.logprob(before, (" is", " Male")) == pytest.approx(sum(alone))


@pytest.mark.parametrize("style", STYLES)
def test_an_honest_server_of_each_style_is_believed(style: Style) -> None:
    (outcome,) = trials("honest", style, range(1))
    assert outcome.ended == "complete"
    assert (outcome.wrong, outcome.false_bounds) == (0, 0)
    assert outcome.exact + outcome.sampled >= 60


def test_more_lies_were_thought_up_than_found() -> None:
    assert len(FIRST) >= 28
    assert len(MORE) >= 20
    assert len(LIES) == len(FIRST) + len(MORE)
