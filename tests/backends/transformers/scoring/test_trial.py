"""Which route a model takes, and which models are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from backends import BackendError, HFBackend
from backends.base import GenerateRequest, Sampling
from backends.embedded import gemma3_path
from backends.transformers.scoring import attention, trial
from tests.backends.local.tiny_models import BASE, log_probabilities, save_model_of
from tests.backends.transformers.reference import REQUESTS, scores


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Architectures are tried anew in each test."""
    monkeypatch.setattr(trial, "_kept", {})


def test_a_model_that_rounds_much_takes_the_tree_and_is_no_farther_from_float32() -> None:
    """Random weights of 16 layers, the head scaled by 4, in bfloat16: against one pass a text."""
    from backends.local.scoring import logprobs
    from backends.local.trie import Path as TokenPath
    from backends.transformers.scoring.scorer import SequenceScorer

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=16, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=2000,
    )  # fmt: skip
    exact = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        exact.lm_head.weight.mul_(4)
    model = transformers.LlamaForCausalLM(config).eval()
    model.load_state_dict(exact.state_dict())
    model = model.bfloat16()
    scorer = SequenceScorer(model, lambda _: np.arange(0), pack_tokens=512)
    assert scorer.route == "tree"
    random = np.random.default_rng(0)
    stem = tuple(random.integers(0, 2000, 20).tolist())
    lines = [stem + tuple(random.integers(0, 2000, 8).tolist()) for _ in range(60)]
    found = np.concatenate(list(logprobs(scorer, [TokenPath(line, 20) for line in lines])))  # type: ignore[arg-type]
    ways = {m: np.concatenate([log_probabilities(m, list(line))[-8:] for line in lines]) for m in (exact, model)}
    apart, usual = (np.abs(values - ways[exact]).mean() for values in (found, ways[model]))
    assert usual > 0.01, "it does round"
    assert apart < 1.15 * usual  # of 480 values, each with the rounding of another order of sums


@pytest.mark.parametrize(
    ("wrong_in", "said"),
    [(torch.float32, "by a mask"), (torch.bfloat16, "with the tree its log-probabilities change by")],
)
def test_a_wrong_tree_is_found(wrong_in: torch.dtype, said: str, folders: dict[str, Path]) -> None:
    """Where the architecture is wrong, and where it is so on the loaded model's own dtype alone."""
    usual = attention._tree_attention

    def wrong(module: Any, query: Any, *rest: Any, **options: Any) -> Any:
        out, weights = usual(module, query, *rest, **options)
        return (out.flip(1) if query.dtype == wrong_in else out), weights

    transformers.AttentionInterface.register(attention.ATTENTION, wrong)
    try:
        scorer: Any = HFBackend(folders["llama"], dtype="bfloat16", device="cpu", threads=1).load().scorer
    finally:
        transformers.AttentionInterface.register(attention.ATTENTION, usual)
    assert said in scorer.route_reason


@pytest.mark.models
def test_gemma_in_bfloat16_takes_the_tree() -> None:
    """Its log-probabilities of random tokens, of 19 nats, round by 0.2 on some processors; padding moves none."""
    assert HFBackend(gemma3_path(), dtype="bfloat16", device="cpu", threads=1).load().scorer.route == "tree"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_sees_later_tokens_is_refused(dtype: Any, tmp_path: Path) -> None:
    sizes = {**BASE, "pad_token_id": 1}
    folder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v), tmp_path)
    backend = HFBackend(folder, dtype=dtype, threads=1)
    answers = backend.run_blocking([*REQUESTS, GenerateRequest("the man", Sampling(max_tokens=3))])
    assert [a.kind for a in answers if isinstance(a, BackendError)] == ["unsupported"] * (len(REQUESTS) + 1)
    assert "sees later tokens" in answers[0].message
    decoder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v, is_decoder=True), tmp_path)
    assert len(scores(HFBackend(decoder, dtype=dtype, threads=1), REQUESTS)) == 13
