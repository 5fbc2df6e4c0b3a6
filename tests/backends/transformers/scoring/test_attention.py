"""Attention over a tree against plain transformers."""

from __future__ import annotations

import itertools
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
from backends.base import ScoreRequest, ScoreResponse
from backends.local.trie import Branches, Trie
from backends.local.trie import Path as TokenPath
from backends.transformers.scoring import attention
from backends.transformers.scoring.attention import BLOCK, block_starts, make_tree_pass
from tests.backends.local.tiny_models import GROUPED, log_probabilities, save_model_of, save_tiny_model
from tests.backends.transformers.reference import REQUESTS, TREE_FAMILIES, plain_model, scores
from tests.rounding import float32_close


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_keys_without_attention_agree_with_transformers(family: str, tmp_path: Path) -> None:
    """Scores so far below the largest that their exponentials underflow."""
    folder = save_tiny_model(family, tmp_path)
    model, tokenizer = plain_model(folder)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(3000)
    model.save_pretrained(folder)
    prompt = REQUESTS[0].prompt
    with torch.inference_mode():
        first = model(**tokenizer(prompt, return_tensors="pt"), output_attentions=True).attentions[0]
    assert (first == 0).sum() > first.numel() / 2 + 100, "more than what comes after each query"
    backend = HFBackend(folder, threads=1)
    assert scores(backend, [ScoreRequest(prompt, (" the woman",))]) == float32_close(
        [sum(log_probabilities(model, tokenizer(prompt + " the woman")["input_ids"])[-2:])]
    )
    assert backend.describe_blocking().notes["route"].startswith("tree"), "and not by falling back"


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])
def test_blocks_attending_one_by_one_change_nothing(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do where the keys of all blocks, or their mask, are too much for the memory allowed."""
    requests = [ScoreRequest(f"the {word}{i} said that", (" he", " she")) for word in "mwpx" for i in range(6)]
    usual = scores(HFBackend(folders[family], threads=1), requests)
    monkeypatch.setattr(attention, "GATHER_BYTES", 1)
    assert scores(HFBackend(folders[family], threads=1), requests) == float32_close(usual)


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


@pytest.mark.parametrize("pack_tokens", [512, 9])
def test_chunks_of_attention_end_where_the_config_says(pack_tokens: int, tmp_path: Path) -> None:
    """They are longer than the texts that try the tree, and shorter than these."""
    folder = save_model_of(
        lambda v: transformers.Llama4TextConfig(
            **GROUPED, intermediate_size_mlp=48, vocab_size=v, attention_chunk_size=12, num_local_experts=2,
            interleave_moe_layer_step=1,
        ),
        tmp_path,
    )  # fmt: skip
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    scorer = backend.load().scorer
    assert scorer.route == "tree"
    scorer.size.most_tokens = pack_tokens
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


def branches(count: int, size: int) -> np.ndarray:
    """Depths of so many branches of one stem of four nodes, each a line."""
    return np.array([0, 1, 2, 3, *(4 + at for _ in range(count) for at in range(size))])


def test_a_cpu_cuts_where_branches_begin() -> None:
    depths = branches(8, 22)
    starts = block_starts(depths, on_cpu=True)
    assert len(starts) == 8
    assert set(depths[starts[1:]]) == {4}


def test_long_lines_are_cut_into_few_blocks() -> None:
    """Each gathers the keys of all before it: single ones, and branches of a long stem."""
    assert block_starts(np.arange(500), on_cpu=True) == list(range(0, 500, BLOCK))
    branches_of_long_stem = np.array([600 + at for _ in range(12) for at in range(22)])
    assert len(block_starts(branches_of_long_stem, on_cpu=True)) <= 6


@pytest.mark.parametrize("seed", range(5))
def test_no_block_is_empty_or_too_large(seed: int) -> None:
    random = np.random.default_rng(seed)
    depths = [0]
    for _ in range(random.integers(0, 300)):
        depths.append(int(random.integers(1, depths[-1] + 2)))
    starts = block_starts(np.array(depths), on_cpu=True)
    sizes = [high - low for low, high in itertools.pairwise([*starts, len(depths)])]
    assert starts[0] == 0
    assert min(sizes) > 0
    assert max(sizes) <= BLOCK
