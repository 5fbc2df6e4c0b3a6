"""Starts that texts share, read once with the model's own cache, against plain passes one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import numpy as np
import pytest
import torch
from transformers.cache_utils import LinearAttentionLayer

from backends.local.trie import Path
from backends.transformers import cached_state
from backends.transformers.scoring import scorer as scorers
from backends.transformers.scoring import shared_starts, starts_trial
from backends.transformers.scoring.scorer import SequenceScorer
from backends.transformers.scoring.starts import Costs, Start, find_starts
from tests.backends.transformers.architectures import configs, saved_model

SET = np.array([5, 9, 11])
#: Architecture → what a report says of its starts.
BY_STEPS = "and what follows it token by token"
READ_ONCE = {
    "mamba": BY_STEPS, "jamba": BY_STEPS, "mamba2": "", "falcon_h1": "", "qwen3_next": "", "nemotron_h": "",
    "lfm2_moe": "", "olmo_hybrid": "",
}  # fmt: skip
#: Whole rows of this random model round by as much: they are 7e-4 nats from the same in float64, and starts 7e-5.
ROUNDING = {"qwen3_next": 2e-3}
#: Those that take the tree, with the tree switched off: sinks, a window of six tokens.
WITHOUT_TREE = ("gpt_oss", "mistral")


@pytest.fixture
def make(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    threads = torch.get_num_threads()

    def made(kind: str, dtype: torch.dtype = torch.float32, pack_tokens: int = 512, **sizes: Any) -> Any:
        if kind in WITHOUT_TREE:
            monkeypatch.setattr(scorers, "why_not_tree", lambda *_: "it is switched off")
        model = _model(kind, tmp_path, **sizes).to(dtype)
        return SequenceScorer(model, lambda _: SET, pack_tokens=pack_tokens)

    torch.set_num_threads(1)
    yield made
    torch.set_num_threads(threads)


def _model(kind: str, folder: File, **sizes: Any) -> Any:
    _, config = next(configs([kind]))
    if not sizes:
        return saved_model(config, folder)

    def changed(**given: Any) -> Any:
        return config(**given | (sizes if given else {}))

    return saved_model(changed, folder)


def _drawn(count: int, seed: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(3, 270, count).tolist())


def _paths(start: int = 60, scored: int = 3) -> list[Path]:
    """Three prompts behind one start, each with continuations of 1 to 5 tokens and a set; in no order."""
    head = _drawn(start, 1)
    prompts = [head + _drawn(n, n) for n in (9, 14, 20)]
    paths = [Path(p + _drawn(n, 30 + n), len(p)) for n in (4, 1, 5, 2) for p in prompts]
    paths += [Path((*p, 7), len(p) + 1, "set") for p in prompts]
    return [*paths, Path(prompts[0], start - scored), Path(head[:40] + _drawn(5, 8), 41)]


def _expected(model: Any, path: Path) -> list[float]:
    ids = torch.tensor([path.tokens])
    with torch.inference_mode():
        table = model(ids, use_cache=False).logits[0].double().log_softmax(-1)
    values = [float(table[at - 1, path.tokens[at]]) for at in range(path.scored_from, len(path.tokens))]
    return values + ([float(table[-1, SET].logsumexp(-1))] if path.next_token_set else [])


def _is_right(scorer: SequenceScorer, paths: list[Path], abs_: float = 2e-4) -> None:
    found = scorer.logprobs(paths)
    for path, values in zip(paths, found, strict=True):
        assert list(values) == pytest.approx(_expected(scorer._reader.model, path), abs=abs_)


@pytest.mark.parametrize("kind", [*READ_ONCE, *WITHOUT_TREE])
def test_shared_starts_give_the_numbers_of_plain_passes(kind: str, make: Any) -> None:
    scorer = make(kind)
    assert "a start that texts share is read once" in scorer.route_reason
    assert READ_ONCE.get(kind, "") in scorer.route_reason
    for paths in (_paths(), _paths()[:3], _paths(start=100)):  # the second goes on from what the first kept
        before = scorer.tokens_computed
        _is_right(scorer, paths, ROUNDING.get(kind, 2e-4))
        rows = {path.computed for path in paths}
        assert scorer.tokens_computed - before < sum(map(len, rows)) / 2
    starts = scorer._batch.starts
    for of_row in (0, 1000):  # everything that can be shared: in blocks where these are right, and by steps
        starts.costs = replace(starts.costs, of_pass=0, of_row=of_row)
        _is_right(scorer, _paths(), ROUNDING.get(kind, 2e-4))


@pytest.mark.parametrize("kind", ["falcon_h1", "jamba"])
def test_a_cache_that_loses_a_state_is_refused(kind: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: rows that go on from a start forget a hundredth of a recurrent layer's state."""
    copied = cached_state._of_rows

    def lossy(name: str, value: Any, rows: int) -> Any:
        found = copied(name, value, rows)
        return found * 0.99 if name == "recurrent_states" and isinstance(value, torch.Tensor) else found

    monkeypatch.setattr(cached_state, "_of_rows", lossy)
    scorer = make(kind)
    assert "read with each of them: with its cache its log-probabilities change by" in scorer.route_reason
    assert scorer._batch.starts is None
    _is_right(scorer, _paths())


def test_a_state_that_a_pass_changes_for_the_next_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: passes that go on from one start share its recurrent states, which they change in place."""
    copied = cached_state._of_rows

    def shared(name: str, value: Any, rows: int) -> Any:
        is_one = name == "recurrent_states" and rows == 1
        return dict(value) if is_one else copied(name, value, rows)

    monkeypatch.setattr(cached_state, "_of_rows", shared)
    assert "read with each of them: with its cache" in make("mamba2").route_reason


def test_a_cache_wrong_beyond_a_chunk_is_refused(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: the state after more than 64 tokens in one pass is that of fewer."""
    update = LinearAttentionLayer.update_recurrent_state
    lengths: list[int] = []
    monkeypatch.setattr(
        shared_starts.LogitReader,
        "logits_and_cache",
        lambda self, ids, cache, places, f=shared_starts.LogitReader.logits_and_cache: (
            lengths.append(ids.shape[1]),
            f(self, ids, cache, places),
        )[1],
    )

    def forgetful(self: Any, states: torch.Tensor, **given: Any) -> torch.Tensor:
        wrong = states * 0.9 if lengths and lengths[-1] > 64 else states
        return update(self, wrong, **given)

    monkeypatch.setattr(LinearAttentionLayer, "update_recurrent_state", lambda s, x, *a, **k: forgetful(s, x, **k))
    assert "read with each of them: with its cache" in make("mamba2").route_reason


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("bamba", "it cannot return its cache"),
        ("recurrent_gemma", "it returns no cache"),
        ("minimax", "its cache is a MiniMaxCache"),
    ],
)
def test_a_cache_that_is_not_understood_is_not_used(kind: str, reason: str, make: Any) -> None:
    scorer = make(kind)
    assert f"starts that texts share are read with each of them: {reason}" in scorer.route_reason
    _is_right(scorer, _paths()[:4])


def test_places_that_depend_on_the_length_are_not_cached(make: Any) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    scorer = make("mistral", rope_parameters=rope)
    assert "its places depend on how much is read" in scorer.route_reason
    _is_right(scorer, _paths()[:4])


def test_a_window_beyond_the_trial_bounds_the_texts(make: Any) -> None:
    scorer = make("mistral", sliding_window=310, max_position_embeddings=400)
    assert "(of texts up to 309 tokens)" in scorer.route_reason
    paths = _paths(start=300)  # of some the rest is short enough
    _is_right(scorer, paths)
    paths = [path for path in paths if len(path.computed) > 309]
    counts = []
    for starts in (scorer._batch.starts, None):
        scorer._batch.starts, before = starts, scorer.tokens_computed
        scorer.logprobs(paths)
        counts.append(scorer.tokens_computed - before)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", ["falcon_h1", "mamba"])
def test_sixteen_bits_are_tried_on_a_copy(kind: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = make(kind, torch.bfloat16)
    exact = make(kind)
    paths = _paths()
    pairs = zip(scorer.logprobs(paths), exact.logprobs(paths), strict=True)
    assert np.mean([np.abs(a - b).mean() for a, b in pairs]) < 0.5
    assert "read once" in scorer.route_reason or "change by" in scorer.route_reason
    from backends.transformers.scoring import starts_trial

    monkeypatch.setattr(starts_trial, "in_float32", lambda _: None)
    assert "no copy in float32" in make(kind, torch.bfloat16).route_reason


@pytest.mark.parametrize("kind", ["falcon_h1", "jamba"])
def test_without_room_for_rows_together_they_are_read_apart(
    kind: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = make(kind)
    forward = shared_starts.SharedStarts.forward

    def small(self: Any, ids: torch.Tensor, cache: Any, places: Any, **options: Any) -> Any:
        if len(ids) > 2:
            raise torch.OutOfMemoryError
        return forward(self, ids, cache, places, **options)

    monkeypatch.setattr(shared_starts.SharedStarts, "forward", small)
    _is_right(scorer, _paths())
    monkeypatch.setattr(shared_starts.SharedStarts, "forward", lambda *_, **options: 1 / 0)  # any error: whole rows
    _is_right(scorer, _paths())
    scorer.size.halvings = 0
    monkeypatch.setattr(shared_starts.SharedStarts, "forward", forward)
    monkeypatch.setattr(scorer.size, "most_cache_bytes", 1)
    _is_right(scorer, _paths())
    assert scorer._batch.starts._kept == []


def test_a_text_that_is_no_number_leaves_the_others_alone(make: Any) -> None:
    scorer = make("jamba")  # its head has weights of its own
    paths = _paths()
    before = scorer.logprobs(paths)
    with torch.no_grad():
        scorer._reader.model.get_input_embeddings().weight[2] = torch.nan
    odd = Path((*paths[0].tokens[:60], 2, 4), 61)
    *values, nan = scorer.logprobs([*paths, odd])
    assert np.isnan(nan[-1])
    for a, b in zip(values, before, strict=True):
        assert a == pytest.approx(b, abs=1e-4)


def _every_row(start: Start) -> list[int]:
    return start.rows + [row for longer in start.starts for row in _every_row(longer)]


def test_a_start_is_read_once_over_calls(make: Any) -> None:
    """As an audit asks: a few prompts at a time behind a long head, each with many continuations."""
    scorer = make("falcon_h1", max_position_embeddings=256)
    head = _drawn(150, 1)
    before = scorer.tokens_computed
    for call in range(8):
        prompts = [head + _drawn(12, 100 + 10 * call + n) for n in range(4)]
        paths = [Path((*p, token, 3), len(p)) for p in prompts for token in range(20, 40)]
        scorer.logprobs(paths)
    once = 150 + 8 * 4 * (12 + 20)
    assert scorer.tokens_computed - before < 1.3 * once + 150
    _is_right(scorer, paths)
    scorer.forget()
    assert scorer._batch.starts._kept == []


def test_starts_are_cut_where_that_costs_least() -> None:
    head, prompts = list(range(100)), [list(range(n, n + 40)) for n in (200, 300)]
    lines = [head + p + [1000 + p[0] + n] for p in prompts for n in range(5)]
    found = find_starts(lines, Costs(16))
    assert (found.rows, [start.depth for start in found.starts]) == ([], [100])
    assert [(start.depth, start.rows) for start in found.starts[0].starts] == [
        (140, [0, 1, 2, 3, 4]), (140, [5, 6, 7, 8, 9])
    ]  # fmt: skip
    assert sorted(_every_row(found)) == list(range(10))
    dear = find_starts(lines, Costs(1000))  # a pass that costs more than it saves
    assert (dear.rows, dear.starts) == (list(range(10)), [])
    assert find_starts([], Costs(16)).rows == []


def test_long_rests_are_not_stepped_through() -> None:
    lines = [[*range(30), 100 * n, *range(100 * n + 1, 100 * n + 60)] for n in (1, 2)]
    assert find_starts(lines, Costs(1)).starts[0].depth == 30
    assert find_starts(lines, Costs(1, blocks=False, steps=True)).starts == []


def test_a_block_of_one_token_is_no_step(make: Any) -> None:
    """Steps of Nemotron-H are other numbers than its blocks: by 0.01 nats on this model."""
    scorer = make("nemotron_h")
    starts = scorer._batch.starts
    assert (starts.costs.blocks, starts.costs.steps) == (True, False)
    widths: list[int] = []
    forward = starts.forward
    starts.forward = lambda ids, cache, places, **options: (
        widths.append(ids.shape[1]),
        forward(ids, cache, places, **options),
    )[1]
    stem = _drawn(60, 1)
    _is_right(scorer, [Path((*stem, token, 4), 61) for token in range(5, 25)], 2e-5)
    assert widths[-1] == 2
    lines = [[*range(40), 40, 100 * n] for n in range(1, 9)] + [[*range(40), 7, 9]]
    (start,) = find_starts(lines, Costs(0)).starts  # none of 41 tokens within
    assert (start.depth, start.starts) == (40, [])


def test_a_model_shorter_than_the_trial_reads_whole_rows(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """MPT's limit, here 128 tokens, as if its config did not name it: the trial's texts are longer."""
    monkeypatch.setattr(scorers, "why_not_tree", lambda *_: "it is switched off")
    monkeypatch.setattr(starts_trial, "context_length", lambda _: (None, ""))
    scorer = make("mpt")
    assert "read with each of them: it cannot go on from its cache" in scorer.route_reason
    assert scorer._batch.starts is None
    _is_right(scorer, _paths())
