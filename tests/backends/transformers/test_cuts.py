"""Texts cut in two have the tokens of the whole, for every tokenizer of which that is said; others are left whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from backends.base import ScoreRequest
from backends.embedded import gemma3_path, smollm2_path
from backends.local import plans
from backends.local.plans import Plan, make_plans
from backends.local.trie import Trie
from backends.transformers.source import ModelSource
from backends.transformers.text import CUT, LONG_START, HFTextEncoder
from tests.backends.local.tiny_models import bos_tokenizer, byte_level_tokenizer, prefix_space_tokenizer

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
CORPUS = (
    Path(__file__).read_text(encoding="utf-8").split("\n")
    + ["The nurse said that she's late, he'll wait; 12345 of 678.  Don't!\t\tthe café naïve 她是护士。 3.14\n\n  x"]
    * 20
)


def _split(*patterns: str) -> list[Any]:
    return [pre_tokenizers.Split(Regex(pattern), "isolated", invert=False) for pattern in patterns]


def _plain_bytes() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


#: Pre-tokenizer and normalizer of each kind.
KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "gpt2": lambda: ([pre_tokenizers.ByteLevel(add_prefix_space=False)], None),
    "llama3": lambda: ([*_split(LLAMA3), _plain_bytes()], None),
    "qwen2": lambda: ([*_split(LLAMA3.replace("{1,3}", "")), _plain_bytes()], normalizers.NFC()),
    "gemma": lambda: ([pre_tokenizers.Split(" ", "merged_with_previous")], normalizers.Replace(" ", "▁")),
    "llama2": lambda: ([], normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])),
    "metaspace": lambda: ([pre_tokenizers.Metaspace("▁", "first", split=False)], None),
}


def _is_byte_level(kind: str) -> bool:
    return kind not in ("gemma", "llama2", "metaspace")


#: Tokenizers of other tests, which split texts at no place.
UNSPLIT: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "bytes": byte_level_tokenizer,
    "bos": lambda: bos_tokenizer(1),
    **{scheme: partial(prefix_space_tokenizer, scheme) for scheme in ("normalizer", "first", "always")},
}


@cache
def encoder_of(kind: str) -> HFTextEncoder:
    """A tokenizer of a kind, with merges learnt on this file."""
    if kind in UNSPLIT:
        return HFTextEncoder(UNSPLIT[kind]())
    steps, normalizer = KINDS[kind]()
    learner = Tokenizer(models.BPE(byte_fallback=not _is_byte_level(kind)))
    # Words are learnt apart, as SentencePiece does, also where texts are not split into words later.
    apart = steps if _is_byte_level(kind) else [pre_tokenizers.Metaspace("▁", "never", split=True)]
    learner.pre_tokenizer = pre_tokenizers.Sequence(apart)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if _is_byte_level(kind) else []
    learner.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet))
    learnt = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) for merge in learnt["merges"]]
    vocabulary = learnt["vocab"]
    if not _is_byte_level(kind):
        for name in (*(f"<0x{byte:02X}>" for byte in range(256)), "▁"):
            vocabulary.setdefault(name, len(vocabulary))
    rust = Tokenizer(
        models.BPE(vocabulary, merges, ignore_merges=kind == "llama3", byte_fallback=not _is_byte_level(kind))
    )
    rust.pre_tokenizer = pre_tokenizers.Sequence(steps) if steps else None
    if normalizer is not None:
        rust.normalizer = normalizer
    rust.decoder = decoders.ByteLevel() if _is_byte_level(kind) else decoders.Metaspace("▁", "never")
    rust.add_special_tokens(["<|im_start|>", "<|im_end|>", AddedToken("<|strips|>", lstrip=True, rstrip=True)])
    rust.add_tokens(["<think>", AddedToken("</s>", normalized=False), "  "])
    return HFTextEncoder(PreTrainedTokenizerFast(tokenizer_object=rust))


SCRAPS = st.sampled_from([
    "a", "the", " The", "nurse", "'s", "'", "'LL", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "1", "23", "4567", ".", ",",
    "?", "é", "e\u0301", "\u0301", "她", "ﷺ", "\u200d", "👩", "▁", "Ġ", "_", "<|im_start|>", "<|im_end|>", "<think>",
    "</s>", "<|strips|>", "<", "|>", "ſ", "İ", "ǅ", "ß", "\u3000", "x y", " she said", "\ufb01", "½", "²",
])  # fmt: skip
TEXTS = st.one_of(st.lists(SCRAPS, max_size=8).map("".join), st.text(max_size=6))
LETTERS = st.sampled_from("aestzATS")


@st.composite
def cut_prompts(draw: st.DrawFn) -> str:
    """A prompt with a place to cut, which may have more of them."""
    return draw(TEXTS) + draw(LETTERS) + " " + draw(LETTERS) + draw(TEXTS)


def _same_tokens(encoder: HFTextEncoder, prompt: str, continuation: str) -> None:
    """Cut at the last place and at the first, as parts and as a whole."""
    whole = encoder.encode([prompt + continuation, prompt])
    first = next(i for i in range(1, len(prompt)) if CUT.match(prompt[: i + 2]))
    for cut in (encoder.cut(prompt), first):
        [head] = encoder.encode([prompt[:cut]])
        ends = encoder.encode_endings([prompt[cut:] + continuation, prompt[cut:]])
        assert [head + end for end in ends] == whole


@pytest.mark.parametrize("kind", [*KINDS, *UNSPLIT])
@settings(max_examples=100, deadline=None)
@given(prompt=cut_prompts(), continuation=TEXTS)
@example(prompt="a b  ", continuation="  c")
@example(prompt="<|strips|>a b", continuation=" <|strips|> c")
def test_the_parts_of_a_cut_text_have_its_tokens(kind: str, prompt: str, continuation: str) -> None:
    encoder = encoder_of(kind)
    assert encoder.cut(prompt)
    _same_tokens(encoder, prompt, continuation)


@pytest.mark.parametrize("kind", [*KINDS, *UNSPLIT])
@settings(max_examples=40, deadline=None)
@given(start=cut_prompts(), ends=st.lists(TEXTS, min_size=3, max_size=5))
def test_texts_that_begin_alike_have_the_tokens_of_each(kind: str, start: str, ends: list[str]) -> None:
    encoder = encoder_of(kind)
    texts = ["the man said " * (LONG_START // 10) + start + end for end in ends]
    assert encoder.encode_alike(texts) == encoder.encode(texts)


def _plan_of(plan: Plan) -> Any:
    """What is wrong with it; or its tokens, and after which text each of their asks asks for what."""
    if plan.ending is None:
        return repr(plan.error)
    trie, scores = Trie([(plan.head, plan.ending.branches)]), plan.ending.scores
    lines = {node: trie.tokens[[*trie.ancestors(node), node]].tolist() for node in set(trie.ask_nodes.tolist())}
    asks = []
    for ask in trie.asks_of(0):
        target = int(trie.ask_targets[ask])
        asks.append((lines[trie.ask_nodes[ask]], target if target >= 0 else trie.sets[-1 - target]))
    scored = [asks[ask] for ask in scores.asks]
    parts = [(first, sorted(repr([asks[ask] for ask in path]) for path in paths)) for first, paths in scores.straddled]
    rest = (scores.texts, scores.starts, scores.ends, scores.ids, scores.stops, scores.boundaries)
    return plan.prompt_tokens, rest, scored, repr(parts)


class _Limits:
    def __init__(self, context: int | None, vocabulary: int) -> None:
        self.context, self.vocabulary = context, vocabulary


CONTINUATIONS = st.lists(TEXTS.filter(bool), min_size=1, max_size=3, unique=True).map(tuple)


@pytest.mark.parametrize("kind", [*KINDS, *UNSPLIT])
@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(cut_prompts() | TEXTS, min_size=1, max_size=3),
    end=TEXTS,
    continuations=CONTINUATIONS,
    context=st.sampled_from([None, 12, 25]),
    share=st.sampled_from([1.0, 0.9, 0.3]),
)
def test_plans_of_cut_prompts_are_those_of_whole_texts(
    kind: str, prompts: list[str], end: str, continuations: tuple[str, ...], context: int | None, share: float
) -> None:
    """Also what is wrong with a request: its length, a token that the model lacks, a text that is rewritten."""
    encoder = encoder_of(kind)
    requests = [ScoreRequest(prompt + end, continuations) for prompt in prompts]
    limits = _Limits(context, round(share * len(encoder.vocabulary.pieces)))
    assert encoder._cuts
    # Tokenizers that drop a part of a prompt are not cut, but for tokens that take the spaces around them.
    with mock.patch.object(plans, "_is_altered", return_value=False):
        short = [_plan_of(plan) for plan in make_plans(requests, encoder, limits)]
        with mock.patch.object(encoder, "_cuts", False):
            assert short == [_plan_of(plan) for plan in make_plans(requests, encoder, limits)]


def test_an_end_that_reads_across_the_cut_is_planned_whole() -> None:
    """An expression that takes the letter before a space: the first whole texts with each end show it."""
    tokenizer = byte_level_tokenizer()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    # "he said" is one word before "that" alone: what stands before the cut goes by what is after it.
    pattern = r"he(?= she)|h|e| ?[^ he]+| "
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, state["pre_tokenizer"]]}
    encoder = HFTextEncoder(PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state))))
    assert encoder.cut("the she") == 3
    requests = [ScoreRequest(f"{name} the she", (" man",)) for name in ("a", "po")]
    found = [_plan_of(plan) for plan in make_plans(requests, encoder, _Limits(None, 10**6))]
    encoder._cuts = False
    assert found == [_plan_of(plan) for plan in make_plans(requests, encoder, _Limits(None, 10**6))]


@pytest.mark.models
@pytest.mark.parametrize("path", [smollm2_path, gemma3_path])
def test_real_tokenizers_keep_their_tokens_at_cuts(path: Callable[[], Path]) -> None:
    source = ModelSource(model=str(path()), revision=None, adapter=None, trust_remote_code=False)
    encoder = HFTextEncoder(source.tokenizer())

    @settings(max_examples=400, deadline=None)
    @given(prompt=cut_prompts(), continuation=TEXTS)
    def check(prompt: str, continuation: str) -> None:
        _same_tokens(encoder, prompt, continuation)

    check()
