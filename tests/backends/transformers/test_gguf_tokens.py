"""Tokens of GGUF files on transformers and on llama.cpp, over a thousand texts for each pre-tokenizer."""

from __future__ import annotations

from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from backends import BackendError, HFBackend, LlamaCppBackend
from backends.base import ScoreRequest
from backends.embedded import smollm2_path
from backends.transformers.gguf_tokens import COMPARED
from suites import OccuGender

pytestmark = pytest.mark.models

#: One of each way of splitting; the others take minutes together (`make battery`).
_OFTEN = ("default", "gpt-2", "llama-bpe", "qwen2")

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
    made = ["".join(random.choice(PARTS, random.integers(1, 9))) for _ in range(700)]
    spaced = [" ".join(random.choice(PARTS, random.integers(1, 9))) for _ in range(260)]
    asked = [item.request.prompt for item in islice(OccuGender().items(), 40) if isinstance(item.request, ScoreRequest)]
    return [*made, *spaced, *map(str, asked)]


@cache
def own_fields() -> list[tuple[str, Any, Any, Any]]:
    """Of SmolLM2's file: each field's name, value, type, and the type of its parts."""
    fields = gguf.GGUFReader(str(smollm2_path())).fields.values()
    array = gguf.GGUFValueType.ARRAY
    return [(f.name, f.contents(), f.types[0], f.types[-1] if f.types[0] == array else None) for f in fields]


def renamed(pre: str, file: Path, *, without: str = "") -> Path:
    """SmolLM2's vocabulary and merges under another pre-tokenizer's name, without a field, and no weights."""
    writer = gguf.GGUFWriter(file, "llama")
    for name, value, kind, inner in own_fields():
        if not name.startswith("GGUF.") and name not in ("general.architecture", without):
            writer.add_key_value(name, pre if name == "tokenizer.ggml.pre" else value, kind, sub_type=inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return texts()


@pytest.mark.parametrize(
    "pre", [pre if pre in _OFTEN else pytest.param(pre, marks=pytest.mark.battery) for pre in COMPARED]
)
def test_tokens_are_those_of_llamacpp(pre: str, corpus: list[str], tmp_path: Path) -> None:
    """BOS too, in a file that does not say whether there is one: llama.cpp then goes by the pre-tokenizer."""
    file = renamed(pre, tmp_path / "renamed.gguf", without="tokenizer.ggml.add_bos_token")
    theirs, close = LlamaCppBackend(file)._load_encoder()
    ours, _ = HFBackend(file)._load_encoder()
    wanted, found = (encoder.encode(corpus, chat=False) for encoder in (theirs, ours))
    close()
    differ = [text for text, a, b in zip(corpus, wanted, found, strict=True) if a != b]
    assert not differ, f"{len(differ)} of {len(corpus)}: {differ[:5]}"


@pytest.mark.parametrize("pre", ["llama-bpe", "falcon3"])
def test_a_file_that_says_no_to_bos_has_none(pre: str, tmp_path: Path) -> None:
    ours, _ = HFBackend(renamed(pre, tmp_path / "renamed.gguf"))._load_encoder()
    theirs, close = LlamaCppBackend(tmp_path / "renamed.gguf")._load_encoder()
    assert ours.encode(["The nurse"], chat=False) == theirs.encode(["The nurse"], chat=False)
    close()


def test_an_unknown_pre_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    file = renamed("viking", tmp_path / "renamed.gguf")
    with pytest.raises(BackendError, match="pre-tokenizer 'viking' was not compared"):
        HFBackend(file)._load_encoder()
