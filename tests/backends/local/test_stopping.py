"""A stop ends a batch of scores after the pass at hand; whole backends are stopped in `test_contract`."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
import pytest

from backends.base import Answer, ScoreRequest
from backends.errors import StoppedError
from backends.local.scoring import Known, prepare, score_batch
from backends.local.trie import Trie
from backends.transformers.text import HFTextEncoder
from tests.backends.local.tiny_models import byte_level_tokenizer

SCORED = [ScoreRequest(f"{name} said in {i}", (" he", " she")) for name in ("Ann", "Tom") for i in range(30)]


class PlantedScorer:
    """Says -1 to everything, in passes of four texts. ``on_pass`` is called in each."""

    route, context, vocabulary = "planted", None, 10_000

    def __init__(self, on_pass: Callable[[], None]) -> None:
        self.on_pass = on_pass

    def passes(self, trie: Trie) -> Generator[Known, None, None]:
        for at in range(0, len(trie.ask_nodes), 8):
            self.on_pass()
            asks = np.arange(at, min(at + 8, len(trie.ask_nodes)))
            yield Known(asks, np.full(len(asks), -1.0))


@pytest.mark.parametrize("most", [0, 1, 3])
def test_after_a_stop_no_pass_is_begun(most: int) -> None:
    passes: list[int] = []
    told: dict[int, Answer] = {}
    encoder = HFTextEncoder(byte_level_tokenizer())
    scorer = PlantedScorer(lambda: passes.append(1))
    batch = prepare(SCORED, encoder, scorer)
    answers = score_batch(batch, scorer, told.__setitem__, lambda: len(passes) >= most)
    assert len(passes) == most
    assert bool(told) == bool(most)
    assert len(told) < len(SCORED)
    for at, answer in enumerate(answers):
        assert answer is told[at] if at in told else isinstance(answer, StoppedError)
