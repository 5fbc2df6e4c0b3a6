"""What may have been meant by a model that is not there: a folder within, a hub id written in another way."""

from __future__ import annotations

import re
from pathlib import Path

#: Files of which any may hold a tokenizer.
_TOKENIZERS = ("*token*", "vocab*", "merges*", "spiece*", "*.model", "*tekken*")
#: A hub id as an address.
_OF_HUB = re.compile(r"(?:hf:(?://)?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)([\w.-]+/[\w.-]+)")


def model_within(folder: Path) -> str:
    """A model's folder within this one, as a hint: a folder above it was given, or the hub's cache."""
    try:
        below = [*folder.glob("snapshots/*/config.json"), *folder.glob("*/config.json")]
        newest = max((file for file in below if file.is_file()), key=lambda file: file.stat().st_mtime, default=None)
    except OSError:
        newest = None
    return "Give a transformers model's folder" if newest is None else f"Did you mean {str(newest.parent)!r}?"


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has any file that may hold a tokenizer."""
    return any(True for pattern in _TOKENIZERS for _ in folder.glob(pattern))


def of_id(name: str) -> str:
    """What to write in place of a hub id with something more; empty if this is none."""
    if found := re.fullmatch(r"([\w.-]+/[\w.-]+)@([\w./-]+)", name):
        return f'Give {found[1]!r} and revision="{found[2]}"'
    if found := re.fullmatch(r"([\w.-]+/[\w.-]+)(?::[\w.-]+|/[\w./-]+\.gguf)", name):
        return f"Give {found[1]!r}; or fetch a GGUF file of it (`hf download {found[1]} FILE`), and give its path"
    if found := _OF_HUB.match(name):
        return f"Give {found[1]!r} for a model of the hub"
    return ""
