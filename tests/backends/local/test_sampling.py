"""Sampling against transformers' own filters, and against the probabilities it should draw from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from backends.base import Sampling
from backends.errors import BackendError
from backends.local.sampling import Sampler, StopStringDecoder


def drawn(sampling, logits, n, seed=0):
    return [Sampler(sampling, seed, repeat, []).draw(logits) for repeat in range(n)]


def allowed_by_transformers(sampling, logits):
    """Ids that transformers' processors leave, in this project's order of filters."""
    import torch
    from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = torch.tensor(logits, dtype=torch.float64)[None]
    ids = torch.zeros((1, 1), dtype=torch.long)
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    return torch.softmax(scores[0], -1).numpy()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.5),
        Sampling(temperature=1.3, top_k=5),
        Sampling(temperature=1.0, top_p=0.7),
        Sampling(temperature=0.8, top_k=8, top_p=0.9),
    ],
)
def test_tokens_have_the_probabilities_of_transformers(sampling):
    logits = np.random.default_rng(1).normal(0, 2, 30).astype(np.float32)
    expected = allowed_by_transformers(sampling, logits)
    counts = np.bincount(drawn(sampling, logits, 4000), minlength=30)
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    assert stats.chisquare(counts[kept], expected[kept] * 4000).pvalue > 1e-4


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0.05, 0.999), st.integers(0, 40))
def test_the_nucleus_is_the_one_of_a_full_sort(seed, top_p, top_k):
    logits = np.random.default_rng(seed).normal(0, 4, 50)
    sampling = Sampling(temperature=1.0, top_p=top_p, top_k=top_k)
    weights = np.exp(logits - logits.max())
    order = np.argsort(-weights, kind="stable")[: top_k or None]
    share = np.cumsum(weights[order]) / weights[order].sum()
    nucleus = set(order[: int(np.searchsorted(share, top_p * (1 - 1e-12))) + 1].tolist())
    assert set(drawn(sampling, logits, 40, seed)) <= nucleus


def test_the_repetition_penalty_is_transformers():
    import torch
    from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

    logits = np.random.default_rng(2).normal(0, 3, 40).astype(np.float32)
    for seed in range(30):
        prompt = np.random.default_rng(seed).integers(0, 40, 12).tolist()
        theirs = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([prompt]), torch.tensor(logits)[None].clone())
        sampler = Sampler(Sampling(repetition_penalty=1.7), 0, 0, prompt)
        assert sampler.draw(logits) == int(theirs.argmax())


def test_a_drawn_token_is_penalised_from_then_on():
    sampler = Sampler(Sampling(repetition_penalty=10.0), 0, 0, [])
    logits = np.array([1.0, 3.0, 2.0])
    assert [sampler.draw(logits) for _ in range(3)] == [1, 2, 0]


def test_temperature_zero_is_the_arg_max():
    assert drawn(Sampling(), np.array([0.1, 5.0, 4.9]), 3) == [1, 1, 1]


@pytest.mark.parametrize("bad", [[0.0, np.nan, 1.0], [0.0, np.inf, 1.0], [np.inf, np.nan, -np.inf], [-np.inf] * 3])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(repetition_penalty=1.2)])
def test_nothing_is_drawn_from_what_is_no_distribution(sampling, bad):
    with pytest.raises(BackendError, match="not a distribution") as error:
        Sampler(sampling, 0, 0, [0]).draw(np.array(bad, dtype=np.float32))
    assert error.value.kind == "internal"
    assert error.value.hint


def test_a_token_that_cannot_be_is_never_drawn():
    assert set(drawn(Sampling(temperature=1.0), np.array([0.0, -np.inf, 0.0]), 40)) == {0, 2}


def test_the_draws_depend_on_seed_and_repeat_alone():
    logits = np.zeros(1000)
    sampling = Sampling(temperature=1.0)

    def text(seed, repeat):
        sampler = Sampler(sampling, seed, repeat, [])
        return [sampler.draw(logits) for _ in range(8)]

    assert text(3, 1) == text(3, 1)
    assert len({tuple(text(seed, repeat)) for seed in range(5) for repeat in range(5)}) == 25


def test_a_character_split_over_tokens_is_whole_again():
    text = StopStringDecoder((), lambda byte: bytes([byte]))
    for byte in "naïve 🙂".encode():
        text.add(byte)
    assert text.text == "naïve 🙂"


def test_a_text_cut_within_a_character_says_so():
    text = StopStringDecoder((), lambda token: "é".encode()[:1])
    text.add(0)
    assert text.text == "�"


def test_stop_string_split_over_tokens_ends_the_text():
    text = StopStringDecoder(("\n\n", "END"), [b"one\n", b"\ntwo END"].__getitem__)
    assert not text.add(0)
    assert text.add(1)
    assert text.text == "one"
