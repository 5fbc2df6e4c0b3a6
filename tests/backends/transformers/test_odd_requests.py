"""Requests that cannot be answered, among many that can: each fails alone, and early answers are told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import models

from backends import BackendError, HFBackend
from backends.base import Answer, Message, ScoreRequest, ScoreResponse
from backends.transformers.text import HFTextEncoder
from tests.backends.local.tiny_models import FAMILIES, MERGES, byte_level_tokenizer, save_model_of
from tests.backends.transformers.reference import scores

GOOD = [ScoreRequest(f"the man{'!' * (i % 7)} said {i}", (" he", " she")) for i in range(246)]
#: A token beyond the embedding, a text that is no Unicode, a chat without a template, a text without end, no context.
ODD = [
    ScoreRequest("the man", ("<img>",)),
    ScoreRequest("the <img>", (" he",)),
    ScoreRequest("the man \ud800", (" he",)),
    ScoreRequest("the man", (" he", "\udfff")),
    ScoreRequest((Message("user", "hello"),), (" he",)),
    ScoreRequest("x" * 200, (" he",)),
    ScoreRequest("", ("he",)),
    ScoreRequest("the man", (" he" * 99,)),
    ScoreRequest("<img>", (" he",)),
    ScoreRequest("\ud800", ("\ud800",)),
]


@pytest.fixture(scope="module")
def larger_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer was given a token that its embedding has not."""
    folder = save_model_of(FAMILIES["llama"], tmp_path_factory.mktemp("larger"))
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens(["<img>"])
    tokenizer.save_pretrained(folder)
    return folder


def test_ten_odd_requests_of_256_give_ten_errors(larger_tokenizer: Path) -> None:
    backend = HFBackend(larger_tokenizer, threads=1)
    order = np.random.default_rng(1).permutation(256).tolist()
    asked = [(GOOD + ODD)[i] for i in order]
    answers = backend.run_blocking(asked)
    failed = {order[place]: answer for place, answer in enumerate(answers) if isinstance(answer, BackendError)}
    assert sorted(failed) == list(range(246, 256))
    assert "is not one of the model's" in failed[246].message
    assert "surrogate" in failed[248].message
    values = dict(zip(order, answers, strict=True))
    alone = scores(HFBackend(larger_tokenizer, threads=1), GOOD[:20])
    assert [s.logprob for i in range(20) for s in values[i].scores] == pytest.approx(alone, abs=1e-5)


def test_a_pass_that_fails_for_one_request_spares_the_others(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    usual = backend.run_blocking(GOOD[:12])
    scorer: Any = backend.load().scorer
    logprobs = type(scorer).logprobs

    def fails_at_a_prompt(self: Any, paths: Any) -> Any:
        bad = backend.load().encoder.encode([GOOD[5].prompt], chat=False)[0]
        if any(list(path.tokens[: len(bad)]) == bad for path in paths):
            raise RuntimeError("index out of\nrange")
        return logprobs(self, paths)

    monkeypatch.setattr(type(scorer), "logprobs", fails_at_a_prompt)
    answers = backend.run_blocking(GOOD[:12])
    assert [i for i, answer in enumerate(answers) if isinstance(answer, BackendError)] == [5]
    assert answers[5].message == "RuntimeError: index out of range"
    for answer, expected in zip(answers[:5], usual[:5], strict=True):
        assert [s.logprob for s in answer.scores] == pytest.approx([s.logprob for s in expected.scores], abs=1e-5)


async def test_scores_are_told_a_few_at_a_time(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    told: list[int] = []

    def on_response(place: int, answer: Answer) -> None:
        assert isinstance(answer, ScoreResponse)
        told.append(place)
        if len(told) == 9:
            running.cancel()

    running = asyncio.create_task(backend.run_streaming(GOOD, on_response))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert 9 <= len(told) < 64
    await backend.close()


def test_a_raw_name_in_a_byte_level_vocabulary_is_its_own_text() -> None:
    tokenizer = byte_level_tokenizer()
    state = tokenizer.backend_tokenizer
    names = {**state.get_vocab(), "日本": len(tokenizer)}
    state.model = models.BPE(vocab=names, merges=MERGES)
    encoder = HFTextEncoder(tokenizer)
    assert encoder.vocabulary.beginning_with("日".encode()).tolist() == [names["日本"]]


def test_a_tokenizer_written_in_python_is_refused_by_name() -> None:
    class Slow:
        chat_template = None

    with pytest.raises(BackendError, match="Slow is written in Python"):
        HFTextEncoder(Slow())


def test_a_set_beyond_the_embedding_adds_no_probability(larger_tokenizer: Path) -> None:
    """A straddling prompt end "<" is the start of "<img>", which the model never predicts."""
    backend = HFBackend(larger_tokenizer, threads=1)
    (answer,) = backend.run_blocking([ScoreRequest("the po", ("lice",))])
    model = transformers.AutoModelForCausalLM.from_pretrained(larger_tokenizer)
    assert model.config.vocab_size == len(byte_level_tokenizer())
    assert isinstance(answer, ScoreResponse)
    (straddled,) = backend.run_blocking([ScoreRequest("the <", ("im",))])
    assert isinstance(straddled, ScoreResponse)
    assert torch.isfinite(torch.tensor(straddled.scores[0].logprob))
