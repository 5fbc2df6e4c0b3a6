"""Which route a model takes, and which models are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from backends import BackendError, HFBackend
from backends.base import GenerateRequest, Sampling, ScoreRequest
from backends.embedded import gemma3_path
from backends.transformers import source, weight_layout
from backends.transformers.scoring import tree_attention, trials
from backends.transformers.scoring.tree import TreeRoute
from tests.backends.local.tiny_models import (
    BASE,
    FAMILIES,
    GROUPED,
    log_probabilities,
    save_model_of,
)
from tests.backends.transformers.reference import REQUESTS, plain_model, scores

NOT_TREES: dict[str, Any] = {
    "recurrent_gemma": lambda v: transformers.RecurrentGemmaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, lru_width=32,
        attention_window_size=6, vocab_size=v,
    ),
    "lfm2": lambda v: transformers.Lfm2Config(
        **{k: x for k, x in GROUPED.items() if k not in ("head_dim", "initializer_range")}, vocab_size=v,
        layer_types=["conv", "full_attention", "conv"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_models_take_the_tree_and_stay_near_float32(dtype: Any, folders: dict[str, Path]) -> None:
    exact = scores(HFBackend(folders["llama"], threads=1), REQUESTS)
    backend = HFBackend(folders["llama"], dtype=dtype, threads=1)
    assert scores(backend, REQUESTS) == pytest.approx(exact, rel=0.05, abs=0.5)
    assert backend.load().scorer.route == "tree"
    assert backend.describe_blocking().fingerprint["dtype"] == dtype


def _route(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a model in bfloat16, whose rounding is too large for the usual trial."""
    monkeypatch.setattr(trials, "ROUNDING_OF_16", 1e-6)
    return HFBackend(folder, dtype="bfloat16", device="cpu", threads=1).load().scorer.route


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])
def test_a_model_that_rounds_much_is_tried_in_float32(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _route(folders[family], monkeypatch) == "tree"


@pytest.mark.parametrize("wrong_in", [torch.float32, torch.bfloat16])
def test_a_wrong_tree_is_found_beside_large_rounding(
    wrong_in: torch.dtype, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is wrong for everything, and where it is so in 16 bits alone."""
    attention = tree_attention._tree_attention

    def wrong(module: Any, query: Any, *rest: Any, **options: Any) -> Any:
        out, weights = attention(module, query, *rest, **options)
        return (out * 1.3 if query.dtype == wrong_in else out), weights

    transformers.AttentionInterface.register(tree_attention.ATTENTION, wrong)
    try:
        assert _route(folders["llama"], monkeypatch) == "batch"
    finally:
        transformers.AttentionInterface.register(tree_attention.ATTENTION, attention)


def test_a_copy_without_room_is_not_made(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_layout, "_COPYING", 1 << 40)
    assert _route(folders["llama"], monkeypatch) == "batch"


@pytest.mark.models
def test_gemma_in_bfloat16_takes_the_tree() -> None:
    """Its log-probabilities of random tokens round by 0.15 nats by the tree, and by 0.18 in plain passes."""
    assert HFBackend(gemma3_path(), dtype="bfloat16", device="cpu", threads=1).load().scorer.route == "tree"


@pytest.mark.parametrize("spoilt", [1, 2])
def test_a_trial_with_a_nan_is_failed(spoilt: int, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: in the trial in several packs, or in that in one."""
    logprobs, calls = TreeRoute.logprobs, []

    def with_nan(self: TreeRoute, trie: Any) -> Any:
        values, failed = logprobs(self, trie)
        calls.append(trie)
        if len(calls) == spoilt:
            values[0] = np.nan
        return values, failed

    monkeypatch.setattr(TreeRoute, "logprobs", with_nan)
    reason = HFBackend(folders["llama"], threads=1).load().scorer.route_reason
    assert "by a mask: with the tree its log-probabilities change by nan nats" in reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", sorted(NOT_TREES))
def test_models_with_other_layers_take_the_batch(family: str, dtype: Any, tmp_path: Path) -> None:
    """In 16 bits a hybrid's small state moves its numbers by little more than rounding."""
    backend = HFBackend(save_model_of(NOT_TREES[family], tmp_path), dtype=dtype, threads=1)
    assert backend.load().scorer.route == "batch"
    if dtype == "float32":
        model, tokenizer = plain_model(tmp_path)
        request = ScoreRequest(REQUESTS[0].prompt, (" he",))
        tokens = tokenizer(request.prompt + " he")["input_ids"]
        assert scores(backend, [request]) == pytest.approx(log_probabilities(model, tokens)[-1:], abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_sees_later_tokens_is_refused(dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose kind is not known to be an encoder's."""
    monkeypatch.setattr(source, "is_encoder", lambda config: False)
    sizes = {**BASE, "pad_token_id": 1, "initializer_range": 1.0}  # so that it moves by nats, as trained ones do
    folder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v), tmp_path)
    backend = HFBackend(folder, dtype=dtype, threads=1)
    answers = backend.run_blocking([*REQUESTS, GenerateRequest("the man", Sampling(max_tokens=3))])
    assert [a.kind for a in answers if isinstance(a, BackendError)] == ["unsupported"] * (len(REQUESTS) + 1)
    assert "sees later tokens" in answers[0].message
    decoder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v, is_decoder=True), tmp_path)
    assert len(scores(HFBackend(decoder, dtype=dtype, threads=1), REQUESTS)) == 13


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_token_of_another_expert_is_no_later_token_seen(
    dtype: Any, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: one token moves with what follows it, as only rounding in 16 bits would move it."""
    forward = transformers.FalconForCausalLM.forward
    lines = []

    def moved(self: Any, ids: torch.Tensor, **options: Any) -> Any:
        out = forward(self, ids, **options)
        if len(ids) == 1 and ids.shape[1] == 39:
            lines.append(ids)
            out.logits[:, 3, ids[0, 4]] -= 5 * len(lines)
        return out

    monkeypatch.setattr(transformers.FalconForCausalLM, "forward", moved)
    answers = HFBackend(folders["falcon"], dtype=dtype, threads=1).run_blocking(REQUESTS)
    assert len(lines) >= 2
    refused = [isinstance(a, BackendError) and "sees later tokens" in a.message for a in answers]
    assert refused == [dtype == "float32"] * len(REQUESTS)


@pytest.mark.parametrize(("most", "said"), [("padding", "rows of equal length"), ("rows", "read alone")])
def test_rows_that_move_each_other_are_read_alone(
    most: str, said: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: padding, or any neighbour, moves each row."""
    model, tokenizer = plain_model(folders["falcon"])
    forward = transformers.FalconForCausalLM.forward
    most_rows = []

    def moved(self: Any, ids: torch.Tensor, attention_mask: Any = None, **options: Any) -> Any:
        out = forward(self, ids, attention_mask=attention_mask, **options)
        padded = attention_mask is not None and not attention_mask.all()
        if padded or (most == "rows" and len(ids) > 1):
            out.logits[..., 5] += 3
        most_rows.append(len(ids))
        return out

    monkeypatch.setattr(transformers.FalconForCausalLM, "forward", moved)
    backend = HFBackend(folders["falcon"], threads=1)
    backend.load()
    assert said in backend.describe_blocking().notes["route"]
    most_rows.clear()
    requests = [ScoreRequest(f"the man said {n}", (" he", " she was", " is")) for n in range(8)]
    found = scores(backend, requests)
    assert max(most_rows) == (1 if most == "rows" else 8)
    expected = [
        sum(log_probabilities(model, tokenizer(r.prompt + c)["input_ids"])[-len(tokenizer(c)["input_ids"]) :])
        for r in requests
        for c in r.continuations
    ]
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.timeout(60)
def test_a_window_shorter_than_the_trial_takes_the_batch(tmp_path: Path) -> None:
    def with_window_of_six(tokens: int) -> Any:
        config = FAMILIES["gpt_neo"](tokens)
        config.window_size = 6
        return config

    backend = HFBackend(save_model_of(with_window_of_six, tmp_path), threads=1)
    assert backend.load().scorer.route == "batch"
