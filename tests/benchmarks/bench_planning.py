"""What scoring costs beside the model: prompts a second with a model that takes no time.

    python -m tests.benchmarks.bench_planning [--prompts 512] [--rounds 3] [--model gemma3]

A real tokenizer, and everything that surrounds a model's forward passes on transformers: texts to tokens, boundaries,
the trie, packs and their masks, answers. The model itself gives zeros at once. Times are CPU time of one core, the best
of some rounds, by part too. At the end the model takes as long as one 100 times as fast as SmolLM2 (it sleeps, as one
that waits for a GPU does): how much longer a run takes than its passes alone, and how much longer with two lanes that
take turns with it. Lines are printed as they are known.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from backends.base import Description, GenerateRequest, ScoreRequest
from backends.embedded import EMBEDDED
from backends.local.causal import CausalBackend, LoadedModel
from backends.local.plans import make_plans
from backends.local.scores import answer_of
from backends.local.scoring import OnKnown, Scorer, in_threads, score_requests
from backends.local.trie import Path, Paths, Trie
from backends.transformers.memory import PassSize
from backends.transformers.scoring import tree_attention
from backends.transformers.scoring.tree import TreeRoute
from backends.transformers.source import ModelSource
from backends.transformers.text import HFTextEncoder
from suites import OccuGender

SMOLLM2_MS = 57.0  # an explicit prompt with SmolLM2 in float32 on one core of 2.5 GHz
FAST_MS = SMOLLM2_MS / 100
TOKENS = 22.5  # that the model reads for an explicit prompt
BATCH = CausalBackend.batch_size


class NoModel:
    """A reader of logits that has none: its keys are empty, and each log-probability is -1.

    Its passes may take time, one after the other, as on a GPU: a pass is queued at once, and who reads its numbers
    waits for them. ``busy``: seconds of all passes so far.
    """

    device = torch.device("cpu")
    config = SimpleNamespace(num_hidden_layers=1, get_text_config=SimpleNamespace)
    tokens_computed = 0
    gives_parts = False

    def __init__(self, encoder: HFTextEncoder, ms_a_token: float) -> None:
        self._vocabulary, self._seconds = encoder.vocabulary, ms_a_token / 1000
        self._queue, self._pass = threading.Lock(), threading.local()
        self._ends = self.busy = 0.0

    @contextlib.contextmanager
    def attention(self, name: str) -> Iterator[None]:
        yield

    def logits_in_parts(self, ids: torch.Tensor, *_: Any) -> Iterator[torch.Tensor]:
        seconds = self._seconds * ids.shape[1]
        with self._queue:
            self.busy += seconds
            self._ends = self._pass.ends = max(self._ends, time.perf_counter()) + seconds
        tree = tree_attention._current.tree
        assert tree is not None
        before = tree.past[0][0].shape[1] if tree.past else 0
        empty = torch.zeros(1, before + ids.shape[1], 0)
        tree.present[0] = (empty, empty)
        yield empty

    def log_probabilities(self, logits: Any, rows: Any, targets: Any, sets: list[Any]) -> Any:
        if self._seconds:
            time.sleep(max(0.0, self._pass.ends - time.perf_counter()))
        for target in targets[targets < 0]:
            self._vocabulary.beginning_with(sets[-1 - target])
        return np.full(len(targets), -1.0)


class NoTimeScorer:
    """`Scorer` on the tree route, without a model."""

    route, context, pack_tokens = "tree", 8192, 512

    def __init__(self, encoder: HFTextEncoder, reader: NoModel | None = None) -> None:
        self.vocabulary = len(encoder.vocabulary.pieces)
        self.reader: Any = reader or NoModel(encoder, 0.0)
        self.tree = TreeRoute(self.reader, PassSize(self.pack_tokens, 1365, "cpu"))

    def logprobs(self, paths: Sequence[Path]) -> list[Any]:
        return self.logprobs_as_known(paths, None)

    def logprobs_as_known(self, paths: Sequence[Path], on_known: OnKnown | None) -> list[Any]:
        trie = Trie(paths, self.tree.kept)

        def tell(answers: Any, first: int, last: int) -> None:
            for places, values in trie.ended(answers, first, last) if on_known else ():
                on_known(places, values)

        answers, _ = self.tree.logprobs(trie, tell)
        return trie.share_out(answers)


class TurnsScorer(NoTimeScorer):
    """`SupportsLanes`: two lanes that take turns with one model, as on a GPU."""

    def __init__(self, encoder: HFTextEncoder, reader: NoModel) -> None:
        super().__init__(encoder, reader)
        self.lanes = (self, NoTimeScorer(encoder, reader))

    def side_by_side(self, work: Callable[[Scorer], None], start: tuple[int, ...]) -> None:
        in_threads(self.lanes, work)


class NoTimeBackend(CausalBackend):
    """Everything of a local backend but the model: its worker, its planning ahead, its stream of answers."""

    def __init__(self, encoder: HFTextEncoder, scorer: NoTimeScorer) -> None:
        super().__init__(threads=1)
        self._loaded = LoadedModel(None, encoder, scorer, NoTexts())

    def check(self) -> None:
        return

    def _load_model(self) -> LoadedModel:
        raise NotImplementedError

    def _load_encoder(self) -> Any:
        raise NotImplementedError

    def describe_blocking(self) -> Description:
        raise NotImplementedError


class NoTexts:
    route = ""

    def generate(self, requests: Sequence[GenerateRequest], *_: Any) -> Any:
        return []


def tell(what: str, seconds: float, prompts: int) -> None:
    if seconds <= 0:  # a part is the difference of two times
        print(f"{what:36} too little to tell: give more --prompts or --rounds", flush=True)
        return
    each = 1000 * seconds / prompts
    shares = f"{each / SMOLLM2_MS:6.2%} of SmolLM2's time, {each / FAST_MS:5.0%} of a model 100 times as fast"
    print(f"{what:36} {each:7.3f} ms a prompt, {prompts / seconds:8.0f} a second, {shares}", flush=True)


def best(rounds: int, work: Callable[[], Any]) -> float:
    found = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def in_batches(requests: list[ScoreRequest], encoder: HFTextEncoder, scorer: NoTimeScorer) -> None:
    for start in range(0, len(requests), BATCH):
        score_requests(requests[start : start + BATCH], encoder, scorer)


def parts(requests: list[ScoreRequest], encoder: HFTextEncoder, rounds: int) -> None:
    """Each part of the work by itself, on the plans of all requests in packs as they are scored."""
    scorer, n = NoTimeScorer(encoder), len(requests)
    prompts = [encoder.text(request.prompt) for request in requests]
    tokens = best(rounds, lambda: encoder.encode(prompts, chat=False))
    tell("  the prompts' tokens", tokens, n)
    tell("  boundaries and paths", best(rounds, lambda: make_plans(requests, encoder, scorer)) - tokens, n)
    plans = sorted(make_plans(requests, encoder, scorer), key=lambda plan: plan.first)
    endings = [plan.ending for plan in plans if plan.ending is not None]
    groups = [(plan.head, ending.branches) for plan, ending in zip(plans, endings, strict=True)]
    batches = [Paths(groups[start : start + 8]) for start in range(0, n, 8)]
    trie = best(rounds, lambda: [Trie(batch) for batch in batches])
    tell("  the trie", trie, n)
    tell("  packs, masks, what is kept", best(rounds, lambda: [scorer.logprobs(batch) for batch in batches]) - trie, n)
    values = [scorer.logprobs(Paths([group])) for group in groups]
    each = list(zip(endings, values, strict=True))
    tell("  answers", best(rounds, lambda: [answer_of(ending, 9, found, "tree") for ending, found in each]), n)


def beside_a_fast_model(requests: list[ScoreRequest], encoder: HFTextEncoder, rounds: int) -> None:
    """How much longer a run takes than its passes, with one lane and with two that take turns."""
    for lanes, kind in ((1, NoTimeScorer), (2, TurnsScorer)):
        found = []
        for _ in range(rounds):
            reader = NoModel(encoder, FAST_MS / TOKENS)
            backend = NoTimeBackend(encoder, kind(encoder, reader))
            found.append((asyncio.run(stream(backend, requests)), reader.busy))
        seconds, busy = min(found)
        what = f"{len(requests)} prompts, {1000 * busy / len(requests):.2f} ms each, lanes: {lanes}"
        print(f"{what:45} {busy:7.3f} s of passes, {seconds:.3f} s in all: {seconds / busy - 1:.1%} longer", flush=True)


async def stream(backend: NoTimeBackend, requests: list[ScoreRequest]) -> float:
    """As a run does: the next batch is handed over while one is computed. Seconds until all is told."""
    room, told = asyncio.Semaphore(2), []

    async def one(batch: list[ScoreRequest]) -> None:
        async with room:
            await backend.run_streaming(batch, lambda at, answer: told.append(at))

    start = time.perf_counter()
    await asyncio.gather(*(one(requests[i : i + BATCH]) for i in range(0, len(requests), BATCH)))
    seconds = time.perf_counter() - start
    await backend.close()
    assert len(told) == len(requests)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--prompts", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", choices=list(EMBEDDED), default="smollm2", help="whose tokenizer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gc.set_threshold(50_000, 20, 100)  # as the command line does
    path = str(EMBEDDED[options.model]())
    source = ModelSource(model=path, revision=None, adapter=None, trust_remote_code=False)
    encoder = HFTextEncoder(source.tokenizer())
    items = islice(OccuGender(bias=("explicit",)).items(), options.prompts)
    explicit = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    spaced = [ScoreRequest(f"{r.prompt} ", tuple(c.lstrip() for c in r.continuations)) for r in explicit]
    encoder.vocabulary.beginning_with(b" ")  # the vocabulary is made once for a model
    for name, requests in (("explicit", explicit), ("prompts that end in a space", spaced)):
        scorer = NoTimeScorer(encoder)
        tell(name, best(options.rounds, lambda: in_batches(requests, encoder, scorer)), len(requests))  # noqa: B023
        parts(requests, encoder, options.rounds)
    beside_a_fast_model(explicit, encoder, options.rounds)
    encoder._cuts = False
    scorer = NoTimeScorer(encoder)
    tell("explicit, texts tokenized whole", best(1, lambda: in_batches(explicit, encoder, scorer)), len(explicit))
    random = np.random.default_rng(0)
    stem = tuple(random.integers(0, 49152, 40).tolist())
    paths = [Path(stem + tuple(random.integers(0, 49152, 14).tolist()), 40) for _ in range(1000)]
    seconds = best(options.rounds, lambda: NoTimeScorer(encoder).logprobs(paths))
    print(f"{'a trie of 13,040 nodes':36} {seconds:7.3f} s", flush=True)


if __name__ == "__main__":
    main()
