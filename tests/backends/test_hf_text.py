"""HFTextEncoder on real Rust tokenizers built here: what stands in front, prefix spaces, stored settings."""

from __future__ import annotations

import pytest

from backends.hf_text import HFTextEncoder
from tests.backends.tiny_models import byte_level_tokenizer

TEXTS = ["the man said that she", "the police said that the woman said that he she"]


@pytest.mark.parametrize("direction", ["left", "right"])
def test_padding_stored_with_a_tokenizer_adds_no_token(direction: str) -> None:
    tokenizer = byte_level_tokenizer()
    plain = HFTextEncoder(byte_level_tokenizer()).encode(TEXTS, chat=False)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.backend_tokenizer.enable_padding(
        direction=direction, pad_id=tokenizer.pad_token_id, pad_token="<pad>", length=40
    )
    encoder = HFTextEncoder(tokenizer)
    assert encoder.encode(TEXTS, chat=False) == plain
    assert encoder._front == []


@pytest.mark.parametrize("direction", ["left", "right"])
def test_truncation_stored_with_a_tokenizer_takes_no_token(direction: str) -> None:
    tokenizer = byte_level_tokenizer()
    plain = HFTextEncoder(byte_level_tokenizer()).encode(TEXTS, chat=False)
    tokenizer.backend_tokenizer.enable_truncation(4, direction=direction)
    assert HFTextEncoder(tokenizer).encode(TEXTS, chat=False) == plain
