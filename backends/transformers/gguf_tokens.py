"""Tokenizers of GGUF files: texts split where llama.cpp splits them.

A GGUF file names its pre-tokenizer and holds no rule of it. Those here were compared with llama.cpp's on the texts of
tests/backends/transformers/test_gguf_tokens.py; another is refused by its name, since wrong tokens silently give wrong
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.errors import BackendError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTED = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}"
_QWEN2 = rf"{_CONTRACTED}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_SIGNS}"

#: Split as GPT-2 does, which is how transformers reads every byte-level file; the latter, after each digit.
_GPT2_NAMES = ("gpt-2", "phi-2", "mpt", "olmo")
_DIGITS_APART = ("smollm", "starcoder", "refact", "command-r")
#: Name in the file → the patterns by which a text is split, one after the other.
_SPLITS: Mapping[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "pixtral", "falcon3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), (_QWEN2,)),
}
COMPARED = (*_GPT2_NAMES, *_DIGITS_APART, *_SPLITS)
#: A whole piece that is a token is that token, whatever the merges make of it; and BOS unless the file says otherwise.
_WHOLE_PIECES = {"llama-bpe", "llama3", "llama-v3", "pixtral", "falcon3"}


def as_in_llamacpp(tokenizer: Any, header: Mapping[str, Any]) -> None:
    """Make a tokenizer that transformers converted from a GGUF file split text as llama.cpp does.

    Raises
    ------
    BackendError
        ``unsupported``, for a pre-tokenizer that is not known to split alike.
    """
    if header.get("tokenizer.ggml.model") == "llama":
        _space_in_front(tokenizer.backend_tokenizer, bool(header.get("tokenizer.ggml.add_space_prefix", True)))
    if header.get("tokenizer.ggml.model") != "gpt2":  # SentencePiece models have no pre-tokenizer
        return
    name = str(header.get("tokenizer.ggml.pre", "default"))
    if name not in COMPARED:
        raise BackendError(
            "unsupported",
            f"this GGUF file's pre-tokenizer {name!r} was not compared with llama.cpp's",
            hint="use LlamaCppBackend, or the model's safetensors",
        )
    from tokenizers import Regex, pre_tokenizers

    rust = tokenizer.backend_tokenizer
    if name in _DIGITS_APART:
        digits = pre_tokenizers.Digits(individual_digits=True)
        rust.pre_tokenizer = pre_tokenizers.Sequence([digits, rust.pre_tokenizer])
    elif name in _SPLITS:
        rust.normalizer = None  # llama.cpp has none
        patterns = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _SPLITS[name]]
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        rust.pre_tokenizer = pre_tokenizers.Sequence([*patterns, plain])
        rust.model.ignore_merges = name in _WHOLE_PIECES
    _put_bos_in_front(tokenizer, bool(header.get("tokenizer.ggml.add_bos_token", name in _WHOLE_PIECES)))


def _space_in_front(rust: Any, wanted: bool) -> None:
    """Make a SentencePiece model put a space in front of the text, and behind each special token, or none.

    transformers puts one in front of the text alone, unless there is a space already, and whatever the file says.
    """
    from tokenizers import normalizers, pre_tokenizers

    written = normalizers.Replace(" ", "▁")
    rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), written]) if wanted else written
    if not isinstance(rust.pre_tokenizer, pre_tokenizers.Split):  # Gemma's, at spaces that are written ▁ by then
        rust.pre_tokenizer = None  # merges may cross the ends of words


def _put_bos_in_front(tokenizer: Any, wanted: bool) -> None:
    """Make the tokenizer put BOS in front of a text, or not, if it does otherwise."""
    rust, bos = tokenizer.backend_tokenizer, tokenizer.bos_token
    if bos is None or (rust.encode("a", add_special_tokens=True).ids[0] == tokenizer.bos_token_id) == wanted:
        return
    from tokenizers import processors

    rust.post_processor = (
        processors.TemplateProcessing(single=[bos, "$A"], special_tokens=[(bos, tokenizer.bos_token_id)])
        if wanted
        else processors.ByteLevel(trim_offsets=False)
    )
