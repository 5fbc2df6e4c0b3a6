"""What scoring costs beside the model: prompts a second with a model that takes no time.

    python -m tests.benchmarks.bench_planning [--prompts 128] [--rounds 3]

SmolLM2's tokenizer, and everything that surrounds its forward passes on transformers: texts to tokens, the boundary,
the trie, packs and their masks, answers. The model itself gives zeros at once. Each line is printed as soon as it is
known: the best of some rounds, and how large its share is of the time that a prompt takes with SmolLM2 on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from backends.base import ScoreRequest
from backends.embedded import smollm2_path
from backends.local.scoring import score_requests
from backends.local.trie import Path, Trie
from backends.transformers.memory import PassSize
from backends.transformers.scoring import tree_attention
from backends.transformers.scoring.tree import TreeRoute
from backends.transformers.source import ModelSource
from backends.transformers.text import HFTextEncoder
from suites import OccuGender

SMOLLM2_MS = 55.0  # an explicit prompt with SmolLM2 in float32 on two cores of 2.5 GHz


class NoModel:
    """A reader of logits that has none: its keys are empty, and each log-probability is -1."""

    device = torch.device("cpu")
    config = SimpleNamespace(num_hidden_layers=1)
    tokens_computed = 0

    def __init__(self, encoder: HFTextEncoder) -> None:
        self._vocabulary = encoder.vocabulary

    @contextlib.contextmanager
    def attention(self, name: str) -> Iterator[None]:
        yield

    def logits(self, ids: torch.Tensor, *_: Any) -> torch.Tensor:
        tree = tree_attention._current.tree
        assert tree is not None
        before = tree.past[0][0].shape[1] if tree.past else 0
        empty = torch.zeros(1, before + ids.shape[1], 0)
        tree.present[0] = (empty, empty)
        return empty

    def log_probabilities(self, logits: Any, rows: Any, targets: Any, sets: list[Any]) -> Any:
        for target in targets[targets < 0]:
            self._vocabulary.beginning_with(sets[-1 - target])
        return np.full(len(targets), -1.0)


class NoTimeScorer:
    """`Scorer` on the tree route, without a model."""

    route, context, vocabulary, pack_tokens = "tree", 8192, 49152, 512

    def __init__(self, encoder: HFTextEncoder) -> None:
        reader: Any = NoModel(encoder)
        self._tree = TreeRoute(reader, PassSize(self.pack_tokens, 1365, "cpu"))

    def logprobs(self, paths: Sequence[Path]) -> list[Any]:
        trie = Trie(paths, self._tree.kept)
        answers, _ = self._tree.logprobs(trie)
        return [answers[asks] for asks in trie.asks_of]


def tell(what: str, seconds: float, prompts: int) -> None:
    each = 1000 * seconds / prompts
    share = each / SMOLLM2_MS
    print(
        f"{what:34} {each:8.2f} ms a prompt, {prompts / seconds:7.0f} a second, {share:6.1%} of SmolLM2's time",
        flush=True,
    )


def best(rounds: int, work: Any) -> float:
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    source = ModelSource(model=str(smollm2_path()), revision=None, adapter=None, trust_remote_code=False)
    encoder = HFTextEncoder(source.tokenizer())
    items = islice(OccuGender(bias=("explicit",)).items(), options.prompts)
    explicit = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    spaced = [ScoreRequest(f"{r.prompt} ", tuple(c.lstrip() for c in r.continuations)) for r in explicit]
    encoder.vocabulary.beginning_with(b" ")  # the vocabulary is made once for a model
    for name, requests in (("explicit", explicit), ("prompts that end in a space", spaced)):
        scorer = NoTimeScorer(encoder)
        seconds = best(options.rounds, lambda: score_requests(requests, encoder, scorer))  # noqa: B023
        tell(name, seconds, len(requests))
    random = np.random.default_rng(0)
    stem = tuple(random.integers(0, 49152, 40).tolist())
    paths = [Path(stem + tuple(random.integers(0, 49152, 14).tolist()), 40) for _ in range(1000)]

    def plan() -> None:
        NoTimeScorer(encoder).logprobs(paths)

    print(f"{'a trie of 13,040 nodes':34} {best(options.rounds, plan):8.2f} s", flush=True)


if __name__ == "__main__":
    main()
