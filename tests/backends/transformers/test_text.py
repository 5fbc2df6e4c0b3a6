"""HFTextEncoder on real Rust tokenizers built here: what stands in front, prefix spaces, stored settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from backends import HFBackend
from backends.base import Message, Prompt, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.local.scoring import boundaries
from backends.transformers.text import HFTextEncoder
from tests.backends.local.tiny_models import (
    FAMILIES,
    bos_tokenizer,
    byte_level_tokenizer,
    log_probabilities,
    prefix_space_tokenizer,
    save_model_of,
)
from tests.rounding import float32_close

TEXTS = ["the man said that she", "the police said that the woman said that he she"]


def test_a_text_without_tokens_of_its_own_is_refused_not_scored_as_unknown() -> None:
    """Fillers that all become ``<unk>`` would be the same to the model, and their gap exactly 0."""
    rust = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "man": 2}, unk_token="<unk>"))
    rust.pre_tokenizer = pre_tokenizers.Whitespace()
    rust.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rust, unk_token="<unk>")
    encoder = HFTextEncoder.__new__(HFTextEncoder)
    encoder._tokenizer, encoder._rust, encoder._front = tokenizer, tokenizer.backend_tokenizer, []
    assert encoder.encode(["the man"]) == [[1, 2]]
    with pytest.raises(BackendError, match=r"no token for a part of this text, which becomes <unk>"):
        encoder.encode(["the nurse"])
    assert encoder.encode(["the <unk>"]), "written as such, it is meant"


@pytest.mark.parametrize(
    ("normalizer", "prompt", "told"),
    [
        (normalizers.Lowercase(), "The man said that", "altered"),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "the m\u00e1n said that", "altered"),
        (normalizers.Replace(Regex(" +"), " "), "the  man said that", "altered"),
        (normalizers.NFC(), "the ma\u0301n said that", "clean"),
        (normalizers.NFD(), "the m\u00e1n said that", "clean"),
    ],
)
def test_a_prompt_that_loses_case_accents_or_spaces_is_told(
    normalizer: normalizers.Normalizer, prompt: str, told: str
) -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizer
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    prompts: list[Prompt] = [prompt, (Message("user", prompt),), "the man said that"]
    requests = [ScoreRequest(text, (" she",)) for text in prompts]
    assert boundaries(requests, HFTextEncoder(tokenizer)) == [(told,), (told,), ("clean",)]


def test_a_users_control_token_is_refused_not_parsed() -> None:
    tokenizer = bos_tokenizer(1)
    tokenizer.chat_template = "{{ bos_token }}{{ messages[0]['content'] }}"
    encoder = HFTextEncoder(tokenizer)
    assert encoder.render((Message("user", "the man"),))[0] == tokenizer.bos_token_id
    with pytest.raises(BackendError, match="a user's text contains <s>"):
        encoder.render((Message("user", "the <s> man"),))


@pytest.mark.parametrize(("times", "eos"), [(1, False), (1, True), (2, False), (2, True)])
def test_bos_stands_in_front_once(times: int, eos: bool) -> None:
    """However often the post-processor puts it, written in the text or not, and without the EOS at its end."""
    tokenizer = bos_tokenizer(times, eos=eos)
    plain = HFTextEncoder(byte_level_tokenizer()).encode(["the man"])[0]
    encoder = HFTextEncoder(tokenizer)
    bos = tokenizer.bos_token_id
    assert encoder.encode(["the man", "<s>the man", ""]) == [[bos, *plain], [bos, *plain], [bos]]
    assert encoder.added([bos, *plain], "the man") == 1
    assert encoder.added([bos, *plain], "<s>the man") == 0


@pytest.mark.parametrize("bos", [False, True])
def test_texts_with_the_first_token_given_have_the_models_loss(bos: bool, tmp_path: Path) -> None:
    tokenizer = bos_tokenizer(1) if bos else byte_level_tokenizer()
    folder = save_model_of(FAMILIES["llama"], tmp_path, tokenizer)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    texts = ("the man said that she", "the police", "q")
    [found] = HFBackend(folder, threads=1).run_blocking([ScoreRequest("", texts, first_given=True)])
    assert isinstance(found, ScoreResponse)
    for text, score in zip(texts, found.scores, strict=True):
        ids = tokenizer(text, return_tensors="pt").input_ids
        assert len(score.tokens) == ids.shape[1] - 1
        if score.tokens:
            assert score.logprob is not None
            loss = model(ids, labels=ids).loss.item()
            assert -score.logprob / len(score.tokens) == float32_close(loss)
        else:
            assert score.logprob == 0


@pytest.mark.parametrize("scheme", ["normalizer", "first", "always"])
def test_prefix_space_is_no_part_of_the_text(scheme: str, tmp_path: Path) -> None:
    """Where each continuation's tokens stand, and that they are scored as plain transformers scores them."""
    tokenizer = prefix_space_tokenizer(scheme)
    folder = save_model_of(FAMILIES["llama"], tmp_path, tokenizer)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    expected = {
        ("", "the"): ("clean", [("▁the", -1, 3)]),
        ("the", " man"): ("clean", [("▁man", 0, 4)]),
        ("the", "man"): ("clean", [("man", 0, 3)]),
        ("the ", "man"): ("straddled", [("▁man", -1, 3)]),
        ("the", " é"): ("clean", [("▁", 0, 1), ("<0xC3>", 1, 2), ("<0xA9>", 1, 2)]),
    }
    backend = HFBackend(folder, threads=1)
    answers = backend.run_blocking([ScoreRequest(prompt, (continuation,)) for prompt, continuation in expected])
    for ((prompt, continuation), wanted), answer in zip(expected.items(), answers, strict=True):
        assert isinstance(answer, ScoreResponse), answer
        (score,) = answer.scores
        names = tokenizer.convert_ids_to_tokens([t.token_id for t in score.tokens])
        spans = [(t.start, t.end) for t in score.tokens]
        assert (score.boundary, [(n, *s) for n, s in zip(names, spans, strict=True)]) == wanted
        if score.boundary == "clean":
            plain = log_probabilities(model, tokenizer(prompt + continuation)["input_ids"])
            assert [t.logprob for t in score.tokens] == float32_close(plain[-len(spans) :])


@pytest.mark.parametrize("scheme", ["normalizer", "first", "always"])
def test_a_written_text_is_the_bytes_of_its_tokens(scheme: str) -> None:
    """As llama.cpp gives it; tokenizers drop the space in front of what they decode, and bytes beside a broken one."""
    tokenizer = prefix_space_tokenizer(scheme)
    encoder = HFTextEncoder(tokenizer)
    for names, text in ((["▁she", "</s>"], b" she"), (["▁", "▁she"], b"  she"), (["<0xC3>", "<0x0A>"], b"\xc3\n")):
        assert b"".join(map(encoder.visible, tokenizer.convert_tokens_to_ids(names))) == text


@pytest.mark.parametrize("scheme", ["normalizer", "first", "always"])
def test_text_after_a_special_token_is_scored_whole(scheme: str, tmp_path: Path) -> None:
    """Of the tokens that come with a continuation none is left out, be it a space that the tokenizer puts there."""
    tokenizer = prefix_space_tokenizer(scheme)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|a|>"]})
    folder = save_model_of(FAMILIES["llama"], tmp_path, tokenizer)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    backend = HFBackend(folder, threads=1)
    for prompt in ("the man<|a|>", "<|a|>", "the<|a|>man", "<s>", ""):
        bos = not prompt.startswith("<s>")
        start = tokenizer(prompt, add_special_tokens=bos)["input_ids"]
        for continuation in ("she", "She said", " é"):
            (answer,) = backend.run_blocking([ScoreRequest(prompt, (continuation,))])
            assert isinstance(answer, ScoreResponse), (prompt, continuation, answer)
            (score,) = answer.scores
            whole = tokenizer(prompt + continuation, add_special_tokens=bos)["input_ids"]
            assert whole[: len(start)] == start
            assert (score.boundary, [t.token_id for t in score.tokens]) == ("clean", whole[len(start) :])
            assert [t.logprob for t in score.tokens] == float32_close(log_probabilities(model, whole)[len(start) - 1 :])


def test_bos_is_found_without_a_letter_a() -> None:
    """A vocabulary of other letters dropped the text by which BOS was looked for, and BOS with it."""
    rust = Tokenizer(models.BPE(vocab={"<s>": 0, "她": 1, "他": 2, "▁": 3}, merges=[]))
    rust.decoder = decoders.Metaspace(prepend_scheme="never")
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    encoder = HFTextEncoder(PreTrainedTokenizerFast(tokenizer_object=rust, bos_token="<s>"))
    assert encoder.encode(["她"]) == [[0, 1]]
