"""GGUF files on transformers: the embedded models' tokens are llama.cpp's, and files of other kinds are refused."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from backends import ConfigError, HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.embedded import gemma3_path, smollm2_path
from backends.transformers.gguf_files import check_compared
from suites import OccuGender

#: What pre-tokenizers treat differently: contractions, digits, scripts, marks, runs of spaces and breaks, signs.
PARTS = (
    "it's", "IT'S", "they'LL", "don’t", "'re", "nurse", "Nurse", "NURSE", "policeWoman", "naïve", "nai\u0308ve",
    "Straße", "1", "12", "123", "1234567", "3.14", "٣٤", "½", "²", "x2", "2x", "日本語", "中文字", "한국어",
    "русский", "العربية", "हिन्दी", "ไทย", "👩‍🚀", "🙂🙂", "!", "?!", "...", "«", "”", "—", "$5", "a+b", "<=>", "^~|",
    "#", "@she/her", "_id_", "\\n", "C:\\", "{}", "[0]", " ", "  ", "   ", "\t", "\n", "\n\n", " \n", "\n ",
    "\r\n", "\u00a0", "\u3000", "\u200b", "\u2028", "e\u0301", "\u0301",
)  # fmt: skip


def texts() -> list[str]:
    random = np.random.default_rng(5)
    made = [sep.join(random.choice(PARTS, random.integers(1, 9))) for sep in ("", "", " ") for _ in range(320)]
    asked = [item.request.prompt for item in islice(OccuGender().items(), 40) if isinstance(item.request, ScoreRequest)]
    return [*made, *map(str, asked)]


@pytest.mark.models
@pytest.mark.parametrize("path", [smollm2_path, gemma3_path])
def test_tokens_are_those_of_llamacpp(path) -> None:
    corpus = texts()
    theirs, close = LlamaCppBackend(path())._load_encoder()
    ours, _ = HFBackend(path())._load_encoder()
    wanted, found = (encoder.encode(corpus) for encoder in (theirs, ours))
    close()
    differ = [text for text, a, b in zip(corpus, wanted, found, strict=True) if a != b]
    assert not differ, f"{len(differ)} of {len(corpus)}: {differ[:5]}"


SMOLLM2 = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}


@pytest.mark.parametrize(
    ("fields", "tensors", "says"),
    [
        ({"general.architecture": "qwen2"}, (), r"of the kind qwen2 \(smollm\)"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, (), r"of the kind llama \(llama-bpe\)"),
        ({"tokenizer.ggml.add_bos_token": True}, (), "not compared"),
        ({"llama.rope.scaling.factor": 8.0}, (), "scaled rotation"),
        ({"llama.rope.scale_linear": 4.0}, (), "scaled rotation"),
        ({}, ("rope_freqs.weight",), "scaled rotation"),
    ],
)
def test_a_file_that_transformers_would_misread_is_refused(
    fields: dict[str, object], tensors: tuple[str, ...], says: str
) -> None:
    check_compared(Path("model.gguf"), SMOLLM2, ["token_embd.weight"])
    with pytest.raises(ConfigError, match=says) as error:
        check_compared(Path("model.gguf"), SMOLLM2 | fields, tensors)
    assert "LlamaCppBackend" in error.value.hint
