"""HFBackend against plain transformers, one sequence at a time."""

from __future__ import annotations

import itertools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from backends import BackendError, ConfigError, HFBackend
from backends.base import GenerateRequest, GenerateResponse, Message, Sampling, ScoreRequest, ScoreResponse
from backends.embedded import smollm2_path
from backends.local.trie import Path as TokenPath
from backends.transformers import scoring as hf_scoring
from backends.transformers import tree_attention
from backends.transformers.context import context_length
from backends.transformers.memory import is_out_of_memory
from suites import OccuGender
from tests.backends.local.tiny_models import (
    BASE,
    FAMILIES,
    GROUPED,
    byte_level_tokenizer,
    log_probabilities,
    save_model_of,
    save_tiny_llama_gguf,
    save_tiny_model,
    save_tiny_phi3_gguf,
)

TREE_FAMILIES = sorted(set(FAMILIES) - {"falcon", "falcon_alibi", "bloom"})
REQUESTS = [
    ScoreRequest("A long enough start. the police said that", (" she was", " he", " the woman", "the", " she is", "!")),
    ScoreRequest("A long enough start. the police said that he", (" was", " is", " was it")),
    ScoreRequest("A long enough start. the man", (" he", ' "he"', "👩‍🚀")),
    ScoreRequest("the", (" woman",)),
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One saved tiny model a family."""
    return {family: save_tiny_model(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


def plain_model(folder: Path) -> tuple[Any, Any]:
    """The same model through transformers alone, its attention written out in Python.

    Except Falcon: with alibi, transformers' written-out attention adds the bias twice.
    """
    attention = "sdpa" if "falcon" in folder.name else "eager"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def scores(backend: HFBackend, requests: list[ScoreRequest]) -> list[float]:
    """All log-probabilities in order; an error fails the test."""
    found = []
    for answer in backend.run_blocking(requests):
        assert isinstance(answer, ScoreResponse), answer
        found += [s.logprob for s in answer.scores]
    return found


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
            assert [t.logprob for t in score.tokens] == pytest.approx(expected, abs=1e-5)
    route = backend.describe_blocking().notes["route"]
    assert route.startswith("tree" if family in TREE_FAMILIES else "batch"), route


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gemma3", "qwen2"])
def test_the_sliding_window_is_shorter_than_the_prompts_and_matters(family: str, folders: dict[str, Path]) -> None:
    model, tokenizer = plain_model(folders[family])
    config = model.config
    config.sliding_window = None if family == "mistral" else 10_000
    if family != "mistral":
        config.layer_types = ["full_attention"] * 3
    widened = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    widened.load_state_dict(model.state_dict())
    tokens = tokenizer(REQUESTS[0].prompt)["input_ids"]
    near, far = log_probabilities(plain_model(folders[family])[0], tokens), log_probabilities(widened, tokens)
    assert abs(near[-1] - far[-1]) > 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma2", "falcon"])
def test_packing_and_order_change_no_result(family: str, folders: dict[str, Path]) -> None:
    backend = HFBackend(folders[family], threads=1)
    usual = scores(backend, REQUESTS)
    scorer = backend.load().scorer
    for pack_tokens in (1, 3, 70):
        scorer.size.most_tokens = pack_tokens
        assert scores(backend, REQUESTS) == pytest.approx(usual, abs=1e-5)
    alone = [value for request in REQUESTS for value in scores(backend, [request])]
    assert alone == pytest.approx(usual, abs=1e-5)
    swapped = [ScoreRequest(r.prompt, r.continuations[::-1]) for r in REQUESTS[::-1]]
    assert scores(backend, swapped)[::-1] == pytest.approx(usual, abs=1e-5)


def test_two_models_that_compute_at_once_keep_apart(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As two devices do. Both forward passes have begun before either goes on."""
    backends = [HFBackend(folders[family], threads=1) for family in ("llama", "gemma2")]
    requests = [REQUESTS[:1], REQUESTS[1:2]]
    alone = [scores(backend, asked) for backend, asked in zip(backends, requests, strict=True)]
    meet = threading.Barrier(2, timeout=60)
    for backend in backends:
        loaded = backend.load()
        model, scorer = loaded.model, loaded.scorer
        scorer.forget()
        forward = model.forward

        def together(*ids: Any, forward: Any = forward, **options: Any) -> Any:
            meet.wait()
            return forward(*ids, **options)

        monkeypatch.setattr(model, "forward", together)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(scores, backends, requests)) == alone


def test_two_models_are_loaded_one_after_the_other(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it loads one, transformers changes torch's default dtype for the whole process."""
    loading: list[int] = []
    most = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def watched(*arguments: Any, **options: Any) -> Any:
        loading.append(1)
        most.append(len(loading))
        time.sleep(0.1)
        model = load(*arguments, **options)
        loading.pop()
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", watched)
    backends = [HFBackend(folders["llama"], threads=1, dtype=dtype) for dtype in ("float32", "bfloat16")]
    with ThreadPoolExecutor(2) as threads:
        assert len(list(threads.map(HFBackend.load, backends))) == 2
    assert most == [1, 1]
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.models
def test_on_a_real_model_packing_and_order_change_no_result() -> None:
    """With enough prompts to see an output head whose rows depend on how many there are (1.7e-5 nats)."""
    asked = [item.request for item in OccuGender(bias=("explicit",)).items()][::9]
    backend = HFBackend(smollm2_path(), dtype="float32")
    usual = dict(zip(asked, backend.run_blocking(asked), strict=True))
    random = np.random.default_rng(0)
    for size in (len(asked), 17, 5):
        order = random.permutation(len(asked))
        for at in range(0, len(asked), size):
            some = [asked[i] for i in order[at : at + size]]
            for request, answer in zip(some, backend.run_blocking(some), strict=True):
                values = [s.logprob for s in answer.scores]
                assert values == pytest.approx([s.logprob for s in usual[request].scores], abs=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_keys_that_get_no_attention_at_all_agree_with_plain_transformers(family: str, tmp_path: Path) -> None:
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
    assert scores(backend, [ScoreRequest(prompt, (" the woman",))]) == pytest.approx(
        [sum(log_probabilities(model, tokenizer(prompt + " the woman")["input_ids"])[-2:])], abs=1e-5
    )
    assert backend.describe_blocking().notes["route"].startswith("tree"), "and not by falling back"


def test_blocks_of_a_wide_and_deep_trie_agree_with_plain_transformers(folders: dict[str, Path]) -> None:
    """Many packs and many blocks of 64 queries, branching at every depth."""
    random = np.random.default_rng(3)
    words = [" the", " man", " she", " police", " he", "x", '"']
    stem = "".join(random.choice(words, 12))
    requests = []
    for cut in range(0, len(stem), 2):
        prompt = stem[:cut] + "".join(random.choice(words, 10))
        requests.append(ScoreRequest(prompt, tuple(dict.fromkeys("".join(random.choice(words, 4)) for _ in range(9)))))
    backend = HFBackend(folders["gemma3"], threads=1)
    model, tokenizer = plain_model(folders["gemma3"])
    answers = backend.run_blocking(requests)
    compared = 0
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, ScoreResponse)
        for continuation, score in zip(request.continuations, answer.scores, strict=True):
            if score.boundary != "straddled":
                expected = log_probabilities(model, tokenizer(request.prompt + continuation)["input_ids"])
                assert score.logprob == pytest.approx(sum(expected[-len(score.tokens) :]), abs=1e-5)
                compared += 1
    assert compared > 100


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])
def test_blocks_that_attend_one_after_the_other_give_the_same_numbers(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do where the keys of all blocks, or their mask, are too much for the memory allowed."""
    requests = [ScoreRequest(f"the {word}{i} said that", (" he", " she")) for word in "mwpx" for i in range(6)]
    usual = scores(HFBackend(folders[family], threads=1), requests)
    monkeypatch.setattr(tree_attention, "GATHER_BYTES", 1)
    assert scores(HFBackend(folders[family], threads=1), requests) == pytest.approx(usual, abs=1e-5)


def test_each_distinct_token_is_computed_once_over_prompts_and_over_calls(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    loaded = backend.load()
    encoder, scorer = loaded.encoder, loaded.scorer
    texts = [r.prompt + c for r in REQUESTS for c in r.continuations]
    distinct = {tuple(t[:n]) for t in encoder.encode(texts, chat=False) for n in range(1, len(t))}
    before = scorer.tokens_computed
    scores(backend, REQUESTS)
    assert scorer.tokens_computed - before <= len(distinct) + 8  # spellings of straddled spaces add a few
    before = scorer.tokens_computed
    scores(backend, [ScoreRequest("the wo", (" police",))])
    grown = scorer.tokens_computed
    scores(backend, [ScoreRequest("the wo", (" police the man",))])
    assert 0 < scorer.tokens_computed - grown < grown - before + 6


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
        assert score.logprob == pytest.approx(numerator - denominator, abs=1e-5)
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


def test_probabilities_of_all_next_characters_sum_to_one(folders: dict[str, Path]) -> None:
    """A property plain scoring lacks: after "the ", whose space may be part of the next token, the
    continuations' first tokens share what is left once the space is given."""
    backend = HFBackend(folders["llama"], threads=1)
    encoder = backend.load().encoder
    vocabulary = encoder.vocabulary
    texts = [p.decode() for p in vocabulary.pieces if p.startswith(b" ") and len(p) > 1]
    (answer,) = backend.run_blocking([ScoreRequest("the ", tuple(t[1:] for t in texts))])
    assert isinstance(answer, ScoreResponse)
    straddled = [s for s in answer.scores if len(s.tokens) == 1 and s.boundary == "straddled"]
    assert len(straddled) >= 5
    assert 0 < sum(math.exp(s.logprob or 0.0) for s in straddled) < 1


def test_out_of_memory_halves_the_pack_and_goes_on(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised by hand: this machine's memory cannot be filled within a test."""
    backend = HFBackend(folders["llama"], threads=1)
    usual = scores(backend, REQUESTS)
    loaded = backend.load()
    model, scorer = loaded.model, loaded.scorer
    forward = model.forward

    def small(ids: torch.Tensor, **options: Any) -> Any:
        if ids.numel() > 20:
            raise torch.OutOfMemoryError("planted")
        return forward(ids, **options)

    monkeypatch.setattr(model, "forward", small)
    assert scores(backend, REQUESTS) == pytest.approx(usual, abs=1e-5)
    assert scorer.size.most_tokens >> scorer.size.halvings == 16


def test_memory_that_is_never_enough_is_an_error_of_each_request(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    model = backend.load().model

    def never(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("planted")

    monkeypatch.setattr(model, "forward", never)
    answers = backend.run_blocking(REQUESTS)
    assert [a.kind for a in answers if isinstance(a, BackendError)] == ["out_of_memory"] * len(REQUESTS)


@pytest.mark.parametrize("family", ["llama", "falcon"])
def test_a_prompt_that_does_not_fit_fails_alone_and_the_size_grows_back(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: 20 tokens a pass, and none beyond the 60th."""
    backend = HFBackend(folders[family], threads=1)
    good = [ScoreRequest(f"the man said {i}{j}", (" he", " she")) for i in range(6) for j in range(6)]
    usual = scores(backend, good)
    loaded = backend.load()
    model, scorer = loaded.model, loaded.scorer
    forward = model.forward

    def small(ids: torch.Tensor, **options: Any) -> Any:
        mask = options.get("attention_mask")
        furthest = ids.shape[1] if mask is not None else int(options["position_ids"].max()) + 1
        if ids.numel() > 20 or furthest > 60:
            raise torch.OutOfMemoryError("planted")
        return forward(ids, **options)

    monkeypatch.setattr(model, "forward", small)
    long = [ScoreRequest(start * 9, (" he",)) for start in ("x" * 9, "the man said!")]
    answers = backend.run_blocking([*good[:20], *long, *good[20:]])
    refused = answers[20:22]
    assert [a.kind for a in refused if isinstance(a, BackendError)] == ["out_of_memory"] * 2
    found = [s.logprob for a in answers if isinstance(a, ScoreResponse) for s in a.scores]
    assert found == pytest.approx(usual, abs=1e-5)
    assert 1 < scorer.size.most_tokens >> scorer.size.halvings <= 32
    monkeypatch.setattr(model, "forward", forward)
    for _ in range(60):
        assert scores(backend, good) == pytest.approx(usual, abs=1e-5)
    assert scorer.size.halvings == 0


def test_an_illegal_memory_access_is_no_want_of_memory(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = HFBackend(folders["llama"], threads=1)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(backend.load().model, "forward", broken)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        backend.run_blocking(REQUESTS)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("anything"), True),
        (MemoryError(), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 5 GB)"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"), True),
        (RuntimeError("Expected tensor with memory format channels_last"), False),
    ],
)
def test_each_device_says_in_its_own_words_that_memory_ran_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


@pytest.mark.parametrize("family", ["llama", "falcon"])
def test_no_forward_pass_makes_more_rows_of_logits_than_fit(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ScoreRequest("the", (" she he she xyz xyz xyz xyz", " man"))
    backend = HFBackend(folders[family], threads=1)
    usual = scores(backend, [request])
    scorer = backend.load().scorer
    scorer.forget()
    made = []
    reader = scorer._reader
    forward = reader.logits

    def counted(ids: Any, positions: Any, mask: Any, places: torch.Tensor) -> torch.Tensor:
        made.append(len(places))
        return forward(ids, positions, mask, places)

    monkeypatch.setattr(reader, "logits", counted)
    monkeypatch.setattr(scorer.size, "most_rows", 4)
    assert scores(backend, [request]) == pytest.approx(usual, abs=1e-5)
    assert sum(made) >= 12
    assert max(made) <= 4


@pytest.mark.parametrize("family", ["llama", "falcon"])
def test_paths_that_ask_nothing_or_read_nothing_leave_the_others_alone(family: str, folders: dict[str, Path]) -> None:
    """An empty continuation is refused as a request; a path with nothing to score is none to the scorer."""
    with pytest.raises(ValueError, match="empty continuation"):
        ScoreRequest("the", ("",))
    scorer = HFBackend(folders[family], threads=1).load().scorer
    usual = scorer.value([TokenPath((3, 4, 5, 6), 2)])[0]
    for extra in ((3, 4, 5, 6), (3, 4), (9,)):
        nothing, same = scorer.value([TokenPath(extra, len(extra)), TokenPath((3, 4, 5, 6), 2)])
        assert len(nothing) == 0
        assert same == pytest.approx(usual, abs=1e-5)
    assert [len(values) for values in scorer.value([TokenPath((3, 4), 2), TokenPath((9,), 1)])] == [0, 0]


@pytest.mark.parametrize("family", TREE_FAMILIES)
def test_the_attention_that_a_gpu_takes_gives_the_numbers_of_plain_transformers(
    family: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_attention, "sums_exactly", lambda _: False)
    called = []
    sdpa = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *a, **o: called.append(1) or sdpa(*a, **o))
    backend = HFBackend(folders[family], threads=1)
    model, tokenizer = plain_model(folders[family])
    scorer = backend.load().scorer
    assert scorer.route == "tree"
    for pack_tokens in (512, 9):
        scorer.size.most_tokens = pack_tokens
        scorer.forget()
        for request, answer in zip(REQUESTS, backend.run_blocking(REQUESTS), strict=True):
            assert isinstance(answer, ScoreResponse), answer
            for continuation, score in zip(request.continuations, answer.scores, strict=True):
                if score.boundary != "straddled":
                    expected = log_probabilities(model, tokenizer(request.prompt + continuation)["input_ids"])
                    assert [t.logprob for t in score.tokens] == pytest.approx(expected[-len(score.tokens) :], abs=2e-5)
    assert bool(called) == (family != "gemma2"), "a soft cap is written out"


def test_a_large_vocabulary_and_a_long_prompt_keep_to_the_bytes_that_are_promised() -> None:
    """A vocabulary of 262,144, a prompt of 8,000 tokens, 500 tokens scored, most of them in one pack of 512.

    Without bounds the logits of that pack are 500 MB, and the keys and scores of its blocks 400 MB.
    """
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=8, num_key_value_heads=8,
        head_dim=8, vocab_size=262_144, max_position_embeddings=9000,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    scorer = hf_scoring.SequenceScorer(model, lambda _: np.arange(0), pack_tokens=512)
    tokens = np.random.default_rng(0).integers(0, 262_144, 8190).tolist()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        (values,) = scorer.value([TokenPath(tuple(tokens), 7690)])
    assert len(values) == 500
    events = sorted(
        (e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
    )
    held = np.cumsum([e.nbytes() for e in events])
    most = hf_scoring.LOGIT_BYTES + tree_attention.GATHER_BYTES
    assert hf_scoring.LOGIT_BYTES / 2 < held.max() < most


def test_a_request_that_cannot_be_done_is_an_error_and_moves_no_neighbour(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    good = REQUESTS[0]
    batch = [
        ScoreRequest("", ("he",)),
        good,
        ScoreRequest("x" * 200, (" he",)),
        ScoreRequest((Message("user", "hello"),), ("he",)),
        GenerateRequest("the man", Sampling(max_tokens=3)),
        good,
    ]
    empty, first, long, chat, text, second = backend.run_blocking(batch)
    assert isinstance(empty, BackendError)
    assert empty.kind == "bad_request"
    assert isinstance(long, BackendError)
    assert long.kind == "context_length"
    assert "201 tokens" in long.message
    assert "96" in long.message
    assert isinstance(chat, BackendError)
    assert chat.kind == "unsupported"
    assert isinstance(text, GenerateResponse)
    assert isinstance(first, ScoreResponse)
    assert isinstance(second, ScoreResponse)
    assert [s.logprob for s in first.scores] == pytest.approx([s.logprob for s in second.scores], abs=1e-5)


NOT_TREES: dict[str, Any] = {
    "llama4": lambda v: transformers.Llama4TextConfig(  # chunks longer than the texts that try the tree
        **GROUPED, intermediate_size_mlp=48, vocab_size=v, attention_chunk_size=12, num_local_experts=2,
        interleave_moe_layer_step=1,
    ),
    "recurrent_gemma": lambda v: transformers.RecurrentGemmaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, lru_width=32,
        attention_window_size=6, vocab_size=v,
    ),
    "lfm2": lambda v: transformers.Lfm2Config(
        **{k: x for k, x in GROUPED.items() if k not in ("head_dim", "initializer_range")}, vocab_size=v,
        layer_types=["conv", "full_attention", "conv"],
    ),
}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 24, "factor": 4.0,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}


def phi3(vocabulary: int) -> transformers.Phi3Config:
    """LongRoPE, with other angles beyond 24 tokens."""
    return transformers.Phi3Config(
        **BASE, num_key_value_heads=2, vocab_size=vocabulary, original_max_position_embeddings=24,
        rope_parameters=dict(LONGROPE),
    )  # fmt: skip


def test_longrope_is_asked_no_further_than_its_short_angles_reach(tmp_path: Path) -> None:
    folder = save_model_of(phi3, tmp_path)
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    before = backend.describe_blocking().notes
    requests = [ScoreRequest("the police man", (" she",)), ScoreRequest("xyz" * 8, ("x",))]
    assert len(tokenizer(requests[1].prompt)["input_ids"]) == 24
    expected = []
    for request in requests:
        *read, last = tokenizer(request.prompt + request.continuations[0])["input_ids"]
        with torch.inference_mode():  # the last token is only predicted, never read
            expected.append(float(model(torch.tensor([read])).logits[0, -1].log_softmax(-1)[last]))
    far = ScoreRequest("xyz" * 8 + "x", ("y",))
    *together, refused = backend.run_blocking([*requests, far])
    assert [a.scores[0].logprob for a in together if isinstance(a, ScoreResponse)] == pytest.approx(expected, abs=1e-5)
    assert isinstance(refused, BackendError)
    assert refused.kind == "context_length"
    text = backend.run_blocking([GenerateRequest("xyz" * 6, Sampling(max_tokens=7))])[0]
    assert isinstance(text, BackendError)
    assert text.kind == "context_length"
    assert before["context"] == backend.describe_blocking().notes["context"]
    assert before["context"].startswith("24 tokens")


def test_dynamic_rope_within_its_context_has_one_set_of_angles(tmp_path: Path) -> None:
    folder = save_model_of(
        lambda v: transformers.LlamaConfig(**GROUPED, vocab_size=v, rope_parameters=dict(DYNAMIC)), tmp_path
    )
    model, tokenizer = plain_model(folder)
    backend = HFBackend(folder, threads=1)
    requests = [ScoreRequest("the police man", (" she",)), ScoreRequest("xyz" * 31 + "x", (" she",))]
    expected = [log_probabilities(model, tokenizer(r.prompt + r.continuations[0])["input_ids"])[-1] for r in requests]
    assert scores(backend, requests) == pytest.approx(expected, abs=1e-5)
    assert "context" not in backend.describe_blocking().notes


def test_a_gguf_file_whose_longrope_transformers_would_leave_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LongRoPE") as error:
        HFBackend(save_tiny_phi3_gguf(tmp_path / "phi3.gguf", first=2048, most=8192)).check()
    assert error.value.field == "model"


def test_the_rope_of_each_kind_of_layer_is_looked_at() -> None:
    config = transformers.Gemma3TextConfig(max_position_embeddings=96)
    assert context_length(config) == (96, "")
    assert context_length(transformers.XLNetConfig()) == (None, "")
    config.rope_parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": dict(LONGROPE),
    }
    assert context_length(config)[0] == 24


def test_spellings_of_a_straddled_end_that_pass_the_context_refuse_their_request_alone(
    folders: dict[str, Path],
) -> None:
    """ " policeman" is one token that is not read; some spellings of its " po" read two more."""
    backend = HFBackend(folders["gpt2"], threads=1)
    good = ScoreRequest("the man", (" he",))
    (usual,) = scores(backend, [good])
    kinds = []
    for length in (92, 95):
        first, second = backend.run_blocking([good, ScoreRequest("x" * length + " po", ("liceman",))])
        assert isinstance(first, ScoreResponse)
        assert first.scores[0].logprob == pytest.approx(usual, abs=1e-5)
        kinds.append(second.kind if isinstance(second, BackendError) else "scored")
    assert kinds == ["scored", "context_length"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_models_take_the_tree_and_stay_near_float32(dtype: Any, folders: dict[str, Path]) -> None:
    exact = scores(HFBackend(folders["llama"], threads=1), REQUESTS)
    backend = HFBackend(folders["llama"], dtype=dtype, threads=1)
    assert scores(backend, REQUESTS) == pytest.approx(exact, rel=0.05, abs=0.5)
    assert backend.load().scorer.route == "tree"
    assert backend.describe_blocking().fingerprint["dtype"] == dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", sorted(NOT_TREES))
def test_models_whose_layers_do_not_all_see_a_tree_take_the_batch(family: str, dtype: Any, tmp_path: Path) -> None:
    """In 16 bits a hybrid's small state moves its numbers by little more than rounding."""
    backend = HFBackend(save_model_of(NOT_TREES[family], tmp_path), dtype=dtype, threads=1)
    assert backend.load().scorer.route == "batch"
    if dtype == "float32":
        model, tokenizer = plain_model(tmp_path)
        request = ScoreRequest(REQUESTS[0].prompt, (" he",))
        tokens = tokenizer(request.prompt + " he")["input_ids"]
        assert scores(backend, [request]) == pytest.approx(log_probabilities(model, tokens)[-1:], abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_sees_later_tokens_is_refused(dtype: Any, tmp_path: Path) -> None:
    sizes = {**BASE, "pad_token_id": 1, "initializer_range": 1.0}  # so that it moves by nats, as trained ones do
    folder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v), tmp_path)
    backend = HFBackend(folder, dtype=dtype, threads=1)
    answers = backend.run_blocking([*REQUESTS, GenerateRequest("the man", Sampling(max_tokens=3))])
    assert [a.kind for a in answers if isinstance(a, BackendError)] == ["unsupported"] * (len(REQUESTS) + 1)
    assert "sees later tokens" in answers[0].message
    decoder = save_model_of(lambda v: transformers.RobertaConfig(**sizes, vocab_size=v, is_decoder=True), tmp_path)
    assert len(scores(HFBackend(decoder, dtype=dtype, threads=1), REQUESTS)) == 13


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_token_that_rounding_sends_to_another_expert_is_no_later_token_seen(
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


@pytest.mark.parametrize(("most", "said"), [("padding", "rows of one length"), ("rows", "read alone")])
def test_rows_that_move_each_other_are_read_apart(
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
    requests = [ScoreRequest(f"the man said {n}", (" he", " she was", " is")) for n in range(9)]
    found = scores(backend, requests)
    assert max(most_rows) == (1 if most == "rows" else 9)
    expected = [
        sum(log_probabilities(model, tokenizer(r.prompt + c)["input_ids"])[-len(tokenizer(c)["input_ids"]) :])
        for r in requests
        for c in r.continuations
    ]
    assert found == pytest.approx(expected, abs=1e-4)


def test_an_adapter_changes_the_numbers_as_peft_does(folders: dict[str, Path], tmp_path: Path) -> None:
    import peft

    model, tokenizer = plain_model(folders["llama"])
    torch.manual_seed(1)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    adapted.eval().save_pretrained(tmp_path)
    backend = HFBackend(folders["llama"], adapter=tmp_path, threads=1)
    backend.check()
    without = HFBackend(folders["llama"], threads=1)
    request = ScoreRequest("the police said that", (" she",))
    expected = log_probabilities(adapted, tokenizer("the police said that she")["input_ids"])[-1]
    assert scores(backend, [request]) == pytest.approx([expected], abs=1e-5)
    assert abs(scores(without, [request])[0] - expected) > 1e-2
    assert backend.describe_blocking().fingerprint["adapter"] != without.describe_blocking().fingerprint["adapter"]


@pytest.mark.parametrize("missing", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_weights_that_a_checkpoint_lacks_are_not_drawn_at_random(missing: str, tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights[missing]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    backend = HFBackend(folder, threads=1)
    with pytest.raises(ConfigError, match=missing) as error:
        backend.load()
    assert error.value.field == "model"
    loads = []
    backend._load_model = lambda: loads.append(1)  # type: ignore[method-assign]
    answers = backend.run_blocking(REQUESTS)
    assert [a.kind for a in answers if isinstance(a, BackendError)] == ["unsupported"] * len(REQUESTS)
    assert missing in answers[0].message
    assert not loads, "tried once"


def test_weights_of_another_shape_are_not_drawn_at_random(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["lm_head.weight"][:-1].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    backend = HFBackend(folder, threads=1)
    with pytest.raises(ConfigError, match=r"lm_head\.weight of another shape") as error:
        backend.load()
    assert error.value.field == "model"


def test_a_model_of_another_kind_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=300)
    config.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    backend = HFBackend(tmp_path, threads=1)
    for ask in (backend.describe_blocking, backend.load):
        with pytest.raises(ConfigError, match="'t5', which is no causal language model") as error:
            ask()
        assert error.value.field == "model"
    assert "trust_remote_code" not in error.value.hint


def test_a_model_whose_class_comes_with_it_needs_leave_to_run_its_code(tmp_path: Path) -> None:
    config = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=300)
    config.auto_map = {"AutoModelForCausalLM": "modeling_own.OwnModel"}
    config.save_pretrained(tmp_path)
    byte_level_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="Set trust_remote_code"):
        HFBackend(tmp_path, threads=1).describe_blocking()
    assert HFBackend(tmp_path, threads=1, trust_remote_code=True).describe_blocking().fingerprint["backend"] == "hf"


def test_an_output_head_that_is_the_embedding_is_not_missed(tmp_path: Path) -> None:
    folder = save_model_of(
        lambda v: transformers.LlamaConfig(**GROUPED, vocab_size=v, tie_word_embeddings=True), tmp_path
    )
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert len(scores(HFBackend(folder, threads=1), REQUESTS[:1])) == 6


def test_one_part_of_a_gguf_file_is_refused(tmp_path: Path) -> None:
    save_tiny_llama_gguf(tmp_path / "whole.gguf")
    HFBackend(tmp_path / "whole.gguf").check()
    save_tiny_llama_gguf(tmp_path / "part.gguf", part_tensors=4)
    for part in ("part-00001-of-00003.gguf", "part-00002-of-00003.gguf"):
        with pytest.raises(ConfigError, match="one of 3 files") as error:
            HFBackend(tmp_path / part).check()
        assert error.value.field == "model"


@pytest.mark.parametrize("change", ["prefix", "one less", "one more"])
def test_an_adapter_whose_weights_find_no_place_is_refused(
    change: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    import peft

    model, _ = plain_model(folders["llama"])
    config = peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    first = next(iter(weights))
    if change == "prefix":
        weights = {name.replace("model.model.model.", "model.model."): value for name, value in weights.items()}
    elif change == "one less":
        del weights[first]
    else:
        weights[first.replace("layers.0", "layers.9")] = weights[first].clone()
    save_file(weights, tmp_path / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match="lora_A") as error:
        HFBackend(folders["llama"], adapter=tmp_path, threads=1).load()
    assert error.value.field == "adapter"


def test_the_fingerprint_is_found_without_weights_and_changes_with_them(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    first = backend.describe_blocking()
    assert backend._loaded is None
    assert first.capabilities == {"score", "generate"}
    assert first.fingerprint == HFBackend(folders["llama"], threads=1).describe_blocking().fingerprint
    others = [
        HFBackend(folders["qwen3"], threads=1),
        HFBackend(folders["llama"], dtype="bfloat16", threads=1),
    ]
    prints = [first.fingerprint, *(o.describe_blocking().fingerprint for o in others)]
    for a, b in itertools.combinations(prints, 2):
        assert dict(a) != dict(b)


def test_the_fingerprint_changes_with_what_ends_a_text_and_with_code_that_is_run(tmp_path: Path) -> None:
    folder = save_tiny_model("llama", tmp_path)

    def identity(*, trusting: bool = False) -> object:
        return HFBackend(folder, trust_remote_code=trusting, threads=1).describe_blocking().fingerprint["files_sha256"]

    seen = [identity()]
    for text in ('{"eos_token_id": 1}', '{"eos_token_id": 2}'):
        (folder / "generation_config.json").write_text(text)
        seen.append(identity())
    assert len(set(seen)) == 3
    for code in ("one = 1\n", "one = 2\n"):
        (folder / "modeling_own.py").write_text(code)
        seen.append(identity(trusting=True))
        assert identity() == seen[2], "code that is not run changes nothing"
    assert len(set(seen)) == 5


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": "/no/such/model.gguf"}, "model"),
        ({"model": "x/y", "dtype": "int3"}, "dtype"),
        ({"model": "x/y", "device": "tpu"}, "device"),
        ({"model": "x/y", "threads": 0}, "threads"),
        ({"model": "x/y", "adapter": "./nowhere"}, "adapter"),
        ({"model": "tests", "revision": "main"}, "revision"),
        ({"model": "./tests"}, "model"),
        ({"model": "./pyproject.toml"}, "model"),
    ],
)
def test_bad_options_are_named_before_anything_is_loaded(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        HFBackend(**options).check()
    assert error.value.field == field


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_a_device_that_this_machine_lacks_is_refused_before_anything_is_loaded(
    device: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: device == "cuda:7")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device") as error:
        HFBackend(folders["llama"], device=device).check()
    assert error.value.field == "device"
    HFBackend(folders["llama"], device="cuda:0" if device == "cuda:7" else "auto").check()


@pytest.mark.parametrize("step", ["to", "forward"])
def test_a_model_that_does_not_fit_is_loaded_once_and_is_an_error_of_each_request(
    step: str, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights, or the first token beside them."""
    tried = []

    def full(model: Any, input_ids: Any = None, position_ids: Any = None, **_: Any) -> Any:
        tried.append(model)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(transformers.LlamaForCausalLM, step, full)
    backend = HFBackend(folders["llama"], threads=1)
    for _ in range(2):
        answers = backend.run_blocking([*REQUESTS, GenerateRequest("the man", Sampling(max_tokens=3))])
        assert [a.kind for a in answers if isinstance(a, BackendError)] == ["out_of_memory"] * (len(REQUESTS) + 1)
    assert all(model is tried[0] for model in tried)
    backend.close_blocking()
    monkeypatch.undo()
    assert len(scores(backend, REQUESTS[:1])) == 6


async def test_a_closed_backend_loads_again(folders: dict[str, Path]) -> None:
    backend = HFBackend(folders["llama"], threads=1)
    (first,) = await backend.run(REQUESTS[:1])
    await backend.close()
    await backend.close()
    (second,) = await backend.run(REQUESTS[:1])
    await backend.close()
    assert first == second
