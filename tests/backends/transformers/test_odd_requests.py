"""Requests that cannot be answered, among many that can: each fails alone, and early answers are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, models

from backends import BackendError, HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling, ScoreRequest, ScoreResponse
from backends.embedded import smollm2_path
from backends.transformers.text import HFTextEncoder
from tests.backends.local.tiny_models import FAMILIES, MERGES, byte_level_tokenizer, save_model_of
from tests.rounding import float32_close


@pytest.mark.models
def test_nan_and_unknown_tokens_fail_alone_on_a_real_model() -> None:
    """SmolLM2 with a word whose embedding is damaged, and three tokens that only its tokenizer has."""
    backend = HFBackend(smollm2_path(), dtype="float32")
    loaded = backend.load()
    jobs = ("nurse", "guard", "clerk")
    good = [ScoreRequest(f"The {jobs[i % 3]} {i} said that", (" he", " she")) for i in range(246)]
    n = len(good)
    usual = backend.run_blocking(good)
    weight = loaded.model.get_input_embeddings().weight.detach().clone()  # the head keeps those that it shares
    (damaged,) = loaded.encoder.encode([" zebra"])[0]
    weight[damaged] = torch.nan
    loaded.model.get_input_embeddings().weight = torch.nn.Parameter(weight)
    backend._tokenizer.add_tokens(["<img>", "<audio>", "<video>"])
    odd = [
        ScoreRequest("The zebra said that", (" he", " she")),
        ScoreRequest("The nurse and the zebra said that", (" he",)),
        ScoreRequest("The nurse said that", (" he", " zebra he")),
        ScoreRequest("The guard 4 said that", (" zebra she",)),
        ScoreRequest("The <img>", (" he",)),
        ScoreRequest("The nurse said", ("<audio>",)),
        ScoreRequest("The nurse said", (" he", "<video> he")),
        ScoreRequest("The nurse \ud800", (" he",)),
        ScoreRequest("The nurse said", (" he" * 9000,)),
        ScoreRequest("The zebra zebra", (" zebra",)),
    ]
    order = np.random.default_rng(3).permutation(n + 10).tolist()
    answers = backend.run_blocking([(good + odd)[i] for i in order])
    failed = sorted(order[at] for at, answer in enumerate(answers) if isinstance(answer, BackendError))
    assert failed == list(range(n, n + 10))
    found = dict(zip(order, answers, strict=True))
    for answer, other in zip((found[i] for i in range(n)), usual, strict=True):  # packs are put together otherwise
        assert [s.logprob for s in answer.scores] == float32_close([s.logprob for s in other.scores])


def test_a_raw_name_in_a_byte_level_vocabulary_is_its_own_text() -> None:
    tokenizer = byte_level_tokenizer()
    state = tokenizer.backend_tokenizer
    names = {**state.get_vocab(), "日本": len(tokenizer)}
    state.model = models.BPE(vocab=names, merges=MERGES)
    encoder = HFTextEncoder(tokenizer)
    assert encoder.vocabulary.beginning_with("日".encode()).tolist() == [names["日本"]]


def test_a_text_on_which_the_tokenizer_panics_fails_alone(tmp_path: Path) -> None:
    """Two of its tokens take one space: its library, written in Rust, then raises what is no `Exception`."""
    folder = save_model_of(FAMILIES["llama"], tmp_path)
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([AddedToken("\n", lstrip=True, rstrip=True), AddedToken("  ", lstrip=True)])
    tokenizer.save_pretrained(folder)
    backend = HFBackend(folder, threads=1)
    prompts = ("the man said", "the man said\n   x", "a man said", "\n   ")
    expected = [True, False, True, False]
    answers = backend.run_blocking([ScoreRequest(prompt, (" he", " she")) for prompt in prompts])
    assert [isinstance(answer, ScoreResponse) for answer in answers] == expected
    assert "the tokenizer's library failed on this text" in str(answers[1])
    written = backend.run_blocking([GenerateRequest(prompt, Sampling(max_tokens=2)) for prompt in prompts])
    assert [isinstance(answer, GenerateResponse) for answer in written] == expected
