"""LlamaCppBackend on real models: against itself one sequence at a time, and against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import llama_cpp
import numpy as np
import pytest

from backends import BackendError, ConfigError, HFBackend, LlamaCppBackend
from backends.base import GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest, ScoreResponse
from backends.embedded import gemma3_path, smollm2_path
from backends.llamacpp.engine import LlamaEngine
from tests.backends.local.tiny_models import (
    save_gguf_without_tensors,
    save_tiny_chat_gguf,
    save_tiny_llama_gguf,
    save_tiny_mamba_gguf,
    save_tiny_phi3_gguf,
)
from tests.servers import xllamacpp_server

pytestmark = pytest.mark.models

CACHE = (1, 30, 1)  # keys float16, values bfloat16, flash attention: as the backend has them
WORDS = (" Male", " Female", " Woman", " Man", " male", " Nonbinary", " Non-binary", " Genderqueer", " Gender-fluid")
REQUESTS = [
    ScoreRequest(f"Q: Imagine a {job}. What is the {job}'s gender? Answer with one word.\nA:", WORDS)
    for job in ("nurse", "electrician", "software developer")
] + [
    ScoreRequest("The nurse said that ", ("herself", "himself")),
    ScoreRequest("A police", ("man", "woman")),
    ScoreRequest('He said: "', ("Yes", '"', "🙂👩‍🚀")),
    ScoreRequest("The man", (" man", "man")),
    ScoreRequest("In 2021 (", ("2", "he)", ")")),
]


@pytest.fixture(scope="module")
def path(request: pytest.FixtureRequest) -> Path:
    return getattr(request, "param", smollm2_path)()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def backend(path: Path) -> Iterator[LlamaCppBackend]:
    backend = LlamaCppBackend(path)
    backend.check()
    yield backend
    backend.close_blocking()


def scored(backend: Any, requests: list[ScoreRequest]) -> list[Any]:
    """All continuation scores in order; an error fails the test."""
    found = []
    for answer in backend.run_blocking(requests):
        assert isinstance(answer, ScoreResponse), answer
        found += answer.scores
    return found


def one_sequence(engine: LlamaEngine, tokens: list[int], count: int) -> list[float]:
    """log P(token | earlier tokens) of the last ``count`` tokens: one fresh context, one sequence.

    Tokens that follow make the batch whole groups, as the backend's are; they change nothing before them.
    """
    first, wanted, tokens = len(tokens) - count, tokens, tokens + tokens[-1:] * (-len(tokens) % 16)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 256, 256, 1, 1
    params.type_k, params.type_v, params.flash_attn_type = CACHE
    params.n_outputs_max_per_seq = 0
    context = llama_cpp.llama_init_from_model(engine.model, params)
    batch = llama_cpp.llama_batch_init(256, 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, first <= i + 1
        batch.seq_id[i][0] = 0
    assert llama_cpp.llama_decode(context, batch) == 0
    size = llama_cpp.llama_vocab_n_tokens(engine.vocab)
    found = []
    for i, token in enumerate(wanted[first:], first):
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i - 1), (size,)).astype(np.float64)
        found.append(float(logits[token] - np.logaddexp.reduce(logits)))
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return found


@pytest.mark.parametrize("path", [smollm2_path, gemma3_path], ids=["smollm2", "gemma3"], indirect=True)
def test_the_batch_equals_one_sequence_at_a_time(backend: LlamaCppBackend) -> None:
    engine = backend.load().model
    asked = [(request.prompt, continuation) for request in REQUESTS for continuation in request.continuations]
    compared = 0
    for (prompt, continuation), score in list(zip(asked, scored(backend, REQUESTS), strict=True))[::3]:
        if score.boundary == "straddled":
            continue
        tokens = engine.encode([prompt + continuation])[0]
        expected = one_sequence(engine, tokens, len(score.tokens))
        assert [t.logprob for t in score.tokens] == pytest.approx(expected, abs=1e-4)
        compared += 1
    assert compared >= 10


@pytest.fixture(scope="module")
def other() -> Iterator[HFBackend]:
    backend = HFBackend(smollm2_path())
    yield backend
    backend.close_blocking()


def test_transformers_gives_nearly_the_same_on_the_same_file(backend: LlamaCppBackend, other: HFBackend) -> None:
    """llama.cpp rounds activations to 8 bits for quantised weights, transformers unpacks the weights."""
    ours, theirs = scored(backend, REQUESTS), scored(other, REQUESTS)
    assert [(s.boundary, [(t.token_id, t.start, t.end) for t in s.tokens]) for s in ours] == [
        (s.boundary, [(t.token_id, t.start, t.end) for t in s.tokens]) for s in theirs
    ]
    apart = np.array([a.logprob - b.logprob for a, b in zip(ours, theirs, strict=True)])
    mean, most = np.abs(apart).mean(), np.abs(apart).max()
    # Measured: SmolLM2 Q4_1 mean 0.17, most 0.42; Gemma 3 Q4_K_M mean 0.26, most 0.75.
    assert mean < 0.4
    assert most < 1.2


def test_order_packing_and_kept_cells_change_no_result(backend: LlamaCppBackend) -> None:
    usual = [s.logprob for s in scored(backend, REQUESTS)]
    scorer = backend.load().scorer
    assert [s.logprob for s in scored(backend, REQUESTS)] == pytest.approx(usual, abs=1e-4)
    scorer.close()
    scorer.pack_tokens, kept = 17, scorer.pack_tokens
    assert [s.logprob for s in scored(backend, REQUESTS)] == pytest.approx(usual, abs=1e-4)
    scorer.close()
    scorer.pack_tokens = kept
    alone = [
        s.logprob for r in REQUESTS[::-1] for s in scored(backend, [ScoreRequest(r.prompt, r.continuations[::-1])])
    ]
    assert alone[::-1] == pytest.approx(usual, abs=1e-4)


TURN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


@pytest.mark.parametrize("template", [TURN, "{{ bos_token }}" + TURN])
def test_a_chat_has_one_bos_and_no_control_token_of_the_user(tmp_path: Path, template: str) -> None:
    engine = LlamaEngine(save_tiny_chat_gguf(tmp_path / "chat.gguf", template, True), vocab_only=True)
    bos = llama_cpp.llama_vocab_bos(engine.vocab)
    tokens = engine.render((Message("user", "hi"),))
    assert (tokens[0], tokens.count(bos)) == (bos, 1)
    name = engine.control[0]
    with pytest.raises(BackendError, match=f"a user's text contains {name}, which the tokenizer takes for a control"):
        engine.render((Message("user", f"say {name}"),))
    engine.close()


@pytest.mark.servers
@pytest.mark.parametrize("template", [TURN, "{{ bos_token }}" + TURN])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_chat_has_bos_where_llama_cpps_own_server_has_it(tmp_path: Path, template: str, adds_bos: bool) -> None:
    engine = LlamaEngine(save_tiny_chat_gguf(tmp_path / "chat.gguf", template, adds_bos), vocab_only=True)
    tokens = engine.render((Message("user", "hi"),))
    bos = llama_cpp.llama_vocab_bos(engine.vocab)
    assert tokens.count(bos) == tokens[:1].count(bos) == int(adds_bos or "bos_token" in template)
    scored_text = engine.text((Message("user", "hi"),))
    assert engine.added(tokens, scored_text) == int(adds_bos and "bos_token" not in template)
    engine.close()
    with xllamacpp_server(tmp_path / "chat.gguf", n_ctx=128) as server:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        usage = httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=60).json()["usage"]
    assert usage["prompt_tokens"] == len(tokens)


def test_chat_is_the_same_text_and_tokens_on_both_engines(backend: LlamaCppBackend, other: HFBackend) -> None:
    asked = (Message("user", "Imagine a nurse. What is the nurse's gender?"),)
    started = (*asked, Message("assistant", "The nurse is a"))
    requests = [ScoreRequest(asked, ("She", "He")), ScoreRequest(started, (" woman", " man"))]
    for mine, its in zip(scored(backend, requests), scored(other, requests), strict=True):
        assert [t.token_id for t in mine.tokens] == [t.token_id for t in its.tokens]
        assert mine.logprob == pytest.approx(its.logprob, abs=1.0)
    assert backend.load().encoder.render(started) == other.load().encoder.render(started)


def test_more_leaves_than_sequences_are_split_over_packs(backend: LlamaCppBackend) -> None:
    words = tuple(f" {a} {b}" for a in ("he", "she", "they", "it") for b in range(100))
    values = [s.logprob for s in scored(backend, [ScoreRequest("The doctor said that", words)])]
    engine = backend.load().model
    for at in (0, 150, 399):
        tokens = engine.encode(["The doctor said that" + words[at]])[0]
        start = len(engine.encode(["The doctor said that"])[0])
        assert values[at] == pytest.approx(sum(one_sequence(engine, tokens, len(tokens) - start)), abs=1e-4)


def test_a_file_in_parts_is_known_by_all_of_them(tmp_path: Path) -> None:
    def other(tensors: dict[str, Any]) -> None:
        tensors["blk.0.ffn_up"] *= 2

    (tmp_path / "other").mkdir()
    one = LlamaCppBackend(save_tiny_llama_gguf(tmp_path / "tiny.gguf", part_tensors=5))
    two = LlamaCppBackend(save_tiny_llama_gguf(tmp_path / "other" / "tiny.gguf", part_tensors=5, change=other))
    assert one.model.read_bytes() == two.model.read_bytes()
    for backend in (one, two):
        backend.check()
    kept = [b.describe_blocking().fingerprint for b in (one, two)]
    assert kept[0]["weights_sha256"] != kept[1]["weights_sha256"]
    asked = [ScoreRequest("the man", (" he", " she"))]
    assert [s.logprob for s in scored(one, asked)] != pytest.approx([s.logprob for s in scored(two, asked)], abs=0.01)
    one.close_blocking()
    two.close_blocking()
    (tmp_path / "tiny-00003-of-00003.gguf").unlink()
    with pytest.raises(ConfigError, match=r"tiny-00003-of-00003\.gguf is missing"):
        one.check()


def test_recurrent_model_generates_and_does_not_score(tmp_path: Path) -> None:
    backend = LlamaCppBackend(save_tiny_mamba_gguf(tmp_path / "mamba.gguf"))
    backend.check()
    scored, generated = backend.run_blocking(
        [ScoreRequest("ab", ("c",)), GenerateRequest("ab", Sampling(max_tokens=4))]
    )
    backend.close_blocking()
    assert isinstance(scored, BackendError)
    assert scored.kind == "unsupported"
    assert "HFBackend" in str(scored)
    assert isinstance(generated, GenerateResponse)


@pytest.mark.parametrize("architecture", ["t5", "t5encoder", "dream", "llada"])
def test_encoders_and_diffusion_models_are_refused_when_loaded(tmp_path: Path, architecture: str) -> None:
    file = save_gguf_without_tensors(tmp_path / "model.gguf", architecture)
    with pytest.raises(BackendError, match=architecture) as error:
        LlamaEngine(file, vocab_only=True)
    assert error.value.kind == "unsupported"
    LlamaEngine(save_gguf_without_tensors(tmp_path / "causal.gguf", "llama"), vocab_only=True).close()


def test_of_a_broken_model_neither_numbers_nor_texts_are_taken(tmp_path: Path) -> None:
    def broken(tensors: dict[str, Any]) -> None:
        tensors["token_embd"][ord("z") - ord("!")] = np.nan

    backend = LlamaCppBackend(save_tiny_llama_gguf(tmp_path / "broken.gguf", change=broken))
    once = Sampling(max_tokens=1)
    asked = [ScoreRequest("z", ("a",)), GenerateRequest("z", once), GenerateRequest("z", Sampling(1.0, max_tokens=4))]
    streamed: list[int] = []
    *failed, good = backend.run_blocking([*asked, GenerateRequest("a", once)], lambda place, _: streamed.append(place))
    backend.close_blocking()
    for answer in failed:
        assert isinstance(answer, BackendError)
        assert answer.kind == "internal"
        assert "not a distribution" in answer.message
        assert "GGUF" in answer.hint
    assert isinstance(good, GenerateResponse)
    assert sorted(streamed) == [0, 1, 2, 3], "each is told as soon as it is known"


def test_longrope_keeps_its_short_angles_whatever_else_is_asked(tmp_path: Path) -> None:
    backend = LlamaCppBackend(save_tiny_phi3_gguf(tmp_path / "phi3.gguf", first=2048, most=8192))
    short = ScoreRequest("the man said", ("x", "y"))
    alone = [s.logprob for s in scored(backend, [short])]
    long, longer = (ScoreRequest("abc" * (n // 3), ("x",)) for n in (1500, 1800))
    beside, fits, refused, text = backend.run_blocking(
        [short, long, longer, GenerateRequest("abc" * 600, Sampling(max_tokens=300))]
    )
    assert isinstance(beside, ScoreResponse)
    assert [s.logprob for s in beside.scores] == pytest.approx(alone, abs=1e-4)
    assert isinstance(fits, ScoreResponse)
    for answer in (refused, text):
        assert isinstance(answer, BackendError)
        assert answer.kind == "context_length"
    assert backend.describe_blocking().notes["context"].startswith("2048 cells")
    backend.close_blocking()
