"""Continuous batching on llama.cpp against llama-cpp-python's own loop, on SmolLM2."""

import pytest

from backends.base import GenerateRequest, Message, Sampling
from backends.embedded import smollm2_path
from backends.local.generation import TextGenerator

llama_cpp = pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.models

ASKS = ["Write a story about {}.", "Who is {}? Tell me in a sentence, please.", "Name {}."]
SUBJECTS = ["a nurse", "a mechanic and her old dog", "the king"]
PROMPTS = [(Message("user", ask.format(subject)),) for ask in ASKS for subject in SUBJECTS]


@pytest.fixture(scope="module")
def engine():
    from backends.llamacpp.engine import LlamaEngine

    engine = LlamaEngine(smollm2_path(), threads=1, context=512)
    yield engine
    engine.close()


def ask(engine, requests):
    from backends.llamacpp.generation import LlamaGeneration

    streamed = []
    answers = TextGenerator(LlamaGeneration(engine)).generate(requests, lambda *one: streamed.append(one))
    assert len(dict(streamed)) == len(streamed), "each once"
    assert all(answers[place] is answer for place, answer in streamed)
    return answers


def test_greedy_texts_are_those_of_create_completion(engine, monkeypatch):
    monkeypatch.setattr("backends.llamacpp.generation.SLOTS", 3)  # 3: texts finish, move and join at all times
    lengths = [4 + 3 * (i % 5) for i in range(len(PROMPTS))]
    answers = ask(engine, [GenerateRequest(p, Sampling(max_tokens=n)) for p, n in zip(PROMPTS, lengths, strict=True)])
    theirs = llama_cpp.Llama(
        str(smollm2_path()), n_ctx=512, n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False
    )
    for prompt, length, answer in zip(PROMPTS, lengths, answers, strict=True):
        done = theirs.create_completion(
            engine.render(prompt), max_tokens=length, temperature=0.0, top_k=0, top_p=1.0, repeat_penalty=1.0
        )
        choice = done["choices"][0]
        assert (answer.text, answer.finish_reason) == (choice["text"], choice["finish_reason"])
        assert answer.prompt_tokens == done["usage"]["prompt_tokens"]


def test_a_text_depends_on_its_own_request_alone(engine):
    """llama.cpp's own samplers, seeded by request; its kernels round alike for one row and for several here."""
    samplings = [
        Sampling(temperature=1.0, max_tokens=8),
        Sampling(temperature=0.7, top_p=0.9, max_tokens=8),
        Sampling(temperature=1.3, top_k=20, repetition_penalty=1.3, max_tokens=8),
    ]
    requests = [GenerateRequest(p, samplings[i % 3], seed=i // 2, repeat=i % 2) for i, p in enumerate(PROMPTS)]
    together = ask(engine, requests)
    alone = [ask(engine, [request])[0] for request in requests]
    assert sum(a != b for a, b in zip(together, alone, strict=True)) <= 1, "near ties"
    assert ask(engine, requests[::-1])[::-1] == together


def test_a_penalty_counts_the_prompt(engine):
    """Of a prompt that repeats one word, the word is not said again."""
    plain, penalised = (
        ask(engine, [GenerateRequest("nurse nurse nurse nurse nurse nurse", Sampling(max_tokens=4, **options))])[0]
        for options in ({}, {"repetition_penalty": 3.0})
    )
    assert "nurse" in plain.text
    assert "nurse" not in penalised.text


def test_a_common_start_is_computed_once(engine, monkeypatch):
    decoded = []
    original = llama_cpp.llama_decode

    def counting(context, batch):
        decoded.append(batch.n_tokens)
        return original(context, batch)

    monkeypatch.setattr(llama_cpp, "llama_decode", counting)
    requests = [GenerateRequest(PROMPTS[0], Sampling(temperature=1.0, max_tokens=1), 0, r) for r in range(8)]
    answers = ask(engine, requests)
    assert sum(decoded) == answers[0].prompt_tokens + 7  # the last token of each repeat is decoded for its logits
