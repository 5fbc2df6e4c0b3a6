"""Scores of HFBackend against plain transformers, one sequence at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends import HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.embedded import smollm2_path
from suites import OccuGender
from tests.backends.local.tiny_models import (
    FAMILIES,
    log_probabilities,
)
from tests.backends.transformers.reference import REQUESTS, TREE_FAMILIES, plain_model, scores
from tests.rounding import float32_close


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_gives_the_numbers_of_plain_transformers(family: str, folders: dict[str, Path]) -> None:
    backend = HFBackend(folders[family], threads=1)
    model, tokenizer = plain_model(folders[family])
    answers = backend.run_blocking(REQUESTS)
    for request, answer in zip(REQUESTS, answers, strict=True):
        assert isinstance(answer, ScoreResponse), answer
        for continuation, score in zip(request.continuations, answer.scores, strict=True):
            if score.boundary == "straddled":
                continue
            tokens = tokenizer(request.prompt + continuation)["input_ids"]
            expected = log_probabilities(model, tokens)[-len(score.tokens) :]
            assert [t.token_id for t in score.tokens] == tokens[-len(score.tokens) :]
            assert [t.logprob for t in score.tokens] == float32_close(expected)
    route = backend.describe_blocking().notes["route"]
    assert route.startswith("tree" if family in TREE_FAMILIES else "rows"), route


@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon", "bloom", "falcon_alibi"])
def test_packing_and_order_change_no_result(family: str, folders: dict[str, Path]) -> None:
    backend = HFBackend(folders[family], threads=1)
    usual = scores(backend, REQUESTS)
    scorer = backend.load().scorer
    for pack_tokens in (1, 3, 70):
        scorer.size.most_tokens = pack_tokens
        assert scores(backend, REQUESTS) == float32_close(usual)
    alone = [value for request in REQUESTS for value in scores(backend, [request])]
    assert alone == float32_close(usual)
    swapped = [ScoreRequest(r.prompt, r.continuations[::-1]) for r in REQUESTS[::-1]]
    assert scores(backend, swapped)[::-1] == float32_close(usual)


@pytest.mark.models
def test_on_a_real_model_packing_and_order_change_no_result() -> None:
    """With enough prompts to see an output head whose rows depend on how many there are (1.7e-5 nats)."""
    asked = [item.request for item in OccuGender(bias=("explicit",)).items()][::36]
    backend = HFBackend(smollm2_path(), dtype="float32")
    usual = dict(zip(asked, backend.run_blocking(asked), strict=True))
    random = np.random.default_rng(0)
    for size in (len(asked), 17, 5):
        order = random.permutation(len(asked))
        for at in range(0, len(asked), size):
            some = [asked[i] for i in order[at : at + size]]
            for request, answer in zip(some, backend.run_blocking(some), strict=True):
                values = [s.logprob for s in answer.scores]
                assert values == float32_close([s.logprob for s in usual[request].scores])


def test_distinct_tokens_are_computed_once(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    loaded = backend.load()
    encoder, scorer = loaded.encoder, loaded.scorer
    texts = [r.prompt + c for r in REQUESTS for c in r.continuations]
    distinct = {tuple(t[:n]) for t in encoder.encode(texts) for n in range(1, len(t))}
    before = scorer.tokens_computed
    scores(backend, REQUESTS)
    assert scorer.tokens_computed - before <= len(distinct) + 8  # spellings of straddled spaces add a few


def test_a_straddled_boundary_is_marginalised_exactly(folders: dict[str, Path]) -> None:
    """Against the sum over ALL token sequences long enough to hold the prompt's remainder."""
    backend = HFBackend(folders["llama"], threads=1)
    model, tokenizer = plain_model(folders["llama"])
    answer = backend.run_blocking([ScoreRequest("the ", ("he",)), ScoreRequest("! po", ("lice",))])
    for response, text, head, remainder in (
        (answer[0], "the he", "the", " "),
        (answer[1], "! police", "!", " po"),
    ):
        assert isinstance(response, ScoreResponse)
        (score,) = response.scores
        assert score.boundary == "straddled"
        joint = tokenizer(text)["input_ids"]
        context = tokenizer(head)["input_ids"]
        assert joint[: len(context)] == context
        numerator = sum(log_probabilities(model, joint)[len(context) - 1 :])
        denominator = math.log(mass_of_texts(model, tokenizer, context, remainder))
        assert score.logprob == float32_close(numerator - denominator)
        assert score.tokens[0].start < 0


def mass_of_texts(model: Any, tokenizer: Any, context: list[int], start: str) -> float:
    """P(the text after ``context`` begins with ``start``), by going through all tokens at each step."""
    texts = [tokenizer.decode([i]) for i in range(len(tokenizer))]

    def mass(tokens: list[int], wanted: str) -> float:
        with torch.inference_mode():
            probabilities = model(torch.tensor([tokens])).logits[0, -1].double().softmax(-1)
        total = 0.0
        for i, text in enumerate(texts):
            if text.startswith(wanted):
                total += float(probabilities[i])
            elif wanted.startswith(text):
                total += float(probabilities[i]) * mass([*tokens, i], wanted[len(text) :])
        return total

    return mass(context, start)
