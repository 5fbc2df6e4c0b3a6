"""Attention over a tree against plain transformers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from backends import HFBackend
from backends.base import ScoreResponse
from backends.local.trie import Branches, Trie
from backends.local.trie import Path as TokenPath
from backends.transformers.scoring import attention
from backends.transformers.scoring.attention import make_tree_pass
from tests.backends.local.tiny_models import GROUPED, log_probabilities, save_model_of
from tests.backends.transformers.reference import REQUESTS, TREE_FAMILIES, plain_model


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_fused_attention_agrees_with_transformers(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "sums_exactly", lambda _: False)
    called = []
    sdpa = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *a, **o: called.append(1) or sdpa(*a, **o))
    backend = HFBackend(folders[family], threads=1)
    model, tokenizer = plain_model(folders[family])
    scorer = backend.load().scorer
    assert scorer.route == "tree"
    for pack_tokens in (512, 9):
        scorer.size.most_tokens = pack_tokens
        for request, answer in zip(REQUESTS, backend.run_blocking(REQUESTS), strict=True):
            assert isinstance(answer, ScoreResponse), answer
            for continuation, score in zip(request.continuations, answer.scores, strict=True):
                if score.boundary != "straddled":
                    expected = log_probabilities(model, tokenizer(request.prompt + continuation)["input_ids"])
                    assert [t.logprob for t in score.tokens] == pytest.approx(expected[-len(score.tokens) :], abs=2e-5)
    assert bool(called) == (family != "gemma2"), "a soft cap is written out"


lines = st.lists(st.integers(0, 3), min_size=1, max_size=9).map(lambda tokens: TokenPath((9, *tokens), 1))


@given(st.lists(lines, min_size=1, max_size=40), st.integers(1, 60), st.booleans())
def test_each_query_sees_its_path_and_nothing_else(paths: list[TokenPath], nodes: int, on_cpu: bool) -> None:
    """Of each pack of a trie: which nodes the keys are, and at which depth; padding sees one key."""
    trie, start = Trie([((), Branches(paths))]), 0
    while start < len(trie):
        pack = trie.pack(start, nodes=nodes, rows=999)
        chain = trie.ancestors(start)
        tree = make_tree_pass(trie, pack, chain, {}, on_cpu=on_cpu)
        held = np.array([*chain, *range(pack.start, pack.stop)])
        allowed, keys, query_depth = tree.allowed.numpy(), held[tree.index.numpy()], tree.query_depth.numpy()
        block = allowed.shape[1]
        slots = tree.slots.tolist()
        assert tree.queries[tree.slots].tolist() == list(range(pack.stop - pack.start))
        for node, slot in enumerate(slots, pack.start):
            b, i = divmod(slot, block)
            seen = np.flatnonzero(allowed[b, i])
            assert keys[b, seen].tolist() == [*trie.ancestors(node), node]
            assert tree.key_depth[b, seen].tolist() == list(range(len(seen)))
            assert query_depth[b, i] == trie.depths[node]
        padding = np.setdiff1d(np.arange(len(tree.queries)), slots)
        assert not query_depth.reshape(-1)[padding].any()
        assert [np.flatnonzero(row).tolist() for row in allowed.reshape(-1, allowed.shape[2])[padding]] == [[0]] * len(
            padding
        )
        start = pack.stop


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_cpu_rounds_attention_to_16_bits_once(dtype: torch.dtype) -> None:
    """Against a plain sum in float64 along each path, on more nodes than one block takes."""
    random = torch.Generator().manual_seed(0)
    paths = [TokenPath((1, 2, 3, *(10 * i + j for j in range(5))), 1) for i in range(1, 9)]
    trie = Trie([((), Branches(paths))])
    tree = make_tree_pass(trie, trie.pack(0, nodes=999, rows=999), [], {})
    assert len(tree.index) > 1
    q, k, v = (torch.randn(1, heads, len(trie), 8, generator=random).mul(3).to(dtype) for heads in (4, 2, 2))
    with tree.active():
        found, _ = attention._tree_attention(SimpleNamespace(layer_idx=0, is_causal=True), q, k, v, None)
    for node in range(len(trie)):
        seen = [*trie.ancestors(node), node]
        for head in range(4):
            keys, values = (x[0, head // 2, seen].double() for x in (k, v))
            expected = (keys @ q[0, head, node].double() * 8**-0.5).softmax(0) @ values
            assert torch.allclose(
                found[0, node, head].double(), expected, rtol=torch.finfo(dtype).eps * 0.51, atol=1e-5
            )


SINKS = {
    **{name: GROUPED[name] for name in GROUPED if name != "rope_parameters"}, "num_local_experts": 2,
    "num_experts_per_tok": 2, "sliding_window": 6, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip


@pytest.mark.parametrize("exact", [True, False])
def test_attention_sinks_take_their_share(exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a key that scores far above them."""
    folder = save_model_of(lambda v: transformers.GptOssConfig(**SINKS, vocab_size=v), tmp_path)
    model, tokenizer = plain_model(folder)
    with torch.no_grad():
        for at, layer in enumerate(model.model.layers):
            layer.self_attn.sinks.copy_(torch.tensor([3.0, -2.0, 0.0, 40.0 * at]))
    model.save_pretrained(folder)
    monkeypatch.setattr(attention, "sums_exactly", lambda _: exact)
    backend = HFBackend(folder, threads=1)
    assert backend.load().scorer.route == "tree"
    compare(backend, model, tokenizer)


def compare(backend: HFBackend, model: Any, tokenizer: Any) -> None:
    compared = 0
    for request, answer in zip(REQUESTS, backend.run_blocking(REQUESTS), strict=True):
        assert isinstance(answer, ScoreResponse), answer
        for continuation, score in zip(request.continuations, answer.scores, strict=True):
            if score.boundary != "straddled":
                expected = log_probabilities(model, tokenizer(request.prompt + continuation)["input_ids"])
                assert [t.logprob for t in score.tokens] == pytest.approx(expected[-len(score.tokens) :], abs=2e-5)
                compared += 1
    assert compared > 5
