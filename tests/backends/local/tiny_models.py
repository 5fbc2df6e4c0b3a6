"""Tiny models with random weights, and a tiny tokenizer: real architectures, made in milliseconds.

Weights are drawn widely (0.15 to 0.3 a weight) so that a wrong mask or position moves a log-probability
by far more than rounding does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from backends.transformers.text import _byte_level_table

#: Byte-level pieces besides the 256 bytes; "Ġ" is the space. Merges make each from two others.
MERGES = [
    ("t", "h"), ("th", "e"), ("Ġ", "the"), ("h", "e"), ("Ġ", "he"), ("Ġ", "s"), ("Ġs", "he"), ("m", "an"), ("a", "n"),
    ("w", "o"), ("wo", "man"), ("Ġ", "man"), ("Ġ", "woman"), ("p", "o"), ("l", "i"), ("c", "e"), ("po", "li"),
    ("poli", "ce"), ("Ġ", "police"), ("police", "man"), ("Ġ", "policeman"), ('"', "h"), ("Ġ", '"'), (")", "."),
]  # fmt: skip
MERGES = [("a", "n"), *[m for m in MERGES if m != ("a", "n")]]


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """256 bytes and a few merges, without BOS; text is split at no place, so that merges cross words' ends."""
    names = list(_byte_level_table())
    names += [a + b for a, b in MERGES]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys(names))}
    rust = Tokenizer(models.BPE(vocab=vocabulary, merges=MERGES))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    rust.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=rust)


def bos_tokenizer(times: int, *, eos: bool = False) -> PreTrainedTokenizerFast:
    """The byte-level one, with a post-processor that puts BOS in front ``times`` times, and perhaps EOS at the end."""
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=" ".join(["<s>"] * times + ["$A"] + ["</s>"] * eos),
        special_tokens=[("<s>", tokenizer.bos_token_id), ("</s>", tokenizer.eos_token_id)],
    )
    return tokenizer


def prefix_space_tokenizer(scheme: str) -> PreTrainedTokenizerFast:
    """As SentencePiece has it: BOS and a space in front of every text, spaces written ▁, bytes where nothing fits.

    The space comes from a normalizer (``normalizer``), or from Metaspace (``first``, ``always``).
    """
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁thesanmwo"]
    merges = [
        ("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "s"), ("▁s", "he"), ("a", "n"), ("m", "an"), ("▁", "man"),
        ("w", "o"), ("wo", "man"), ("▁", "woman"),
    ]  # fmt: skip
    names += [a + b for a, b in merges]
    vocabulary = {name: i for i, name in enumerate(names)}
    rust = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if scheme == "normalizer":
        rust.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        rust.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    else:
        rust.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
        rust.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme, split=False)
    rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=rust, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


BASE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 96, "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
GROUPED = {**BASE, "num_key_value_heads": 2, "head_dim": 8}
WINDOW = 6  # shorter than the prompts of the tests
LAYERS = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": WINDOW}

FAMILIES: dict[str, Any] = {
    "llama": lambda v: transformers.LlamaConfig(**GROUPED, vocab_size=v),
    "gemma2": lambda v: transformers.Gemma2Config(
        **GROUPED, **LAYERS, vocab_size=v, attn_logit_softcapping=2.0, final_logit_softcapping=5.0,
        query_pre_attn_scalar=8,
    ),
    "gemma3": lambda v: transformers.Gemma3TextConfig(**GROUPED, **LAYERS, vocab_size=v, query_pre_attn_scalar=8),
    "gpt2": lambda v: transformers.GPT2Config(
        vocab_size=v, n_embd=32, n_layer=3, n_head=4, n_positions=96, initializer_range=0.3, bos_token_id=None,
        eos_token_id=None,
    ),
    "falcon": lambda v: transformers.FalconConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, initializer_range=0.3,
        bos_token_id=None, eos_token_id=None, max_position_embeddings=96,
    ),
    "falcon_alibi": lambda v: transformers.FalconConfig(
        vocab_size=v, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, initializer_range=0.3, alibi=True,
        bos_token_id=None, eos_token_id=None, max_position_embeddings=96,
    ),
    "bloom": lambda v: transformers.BloomConfig(
        vocab_size=v, hidden_size=32, n_layer=3, n_head=4, initializer_range=0.3, bos_token_id=None, eos_token_id=None,
    ),
}  # fmt: skip


def save_tiny_model(family: str, folder: Path) -> Path:
    """Write a tiny model of this family, with its tokenizer, into a folder."""
    return save_model_of(FAMILIES[family], folder)


def save_model_of(config: Callable[[int], Any], folder: Path, tokenizer: PreTrainedTokenizerFast | None = None) -> Path:
    """Write a tiny model with random weights, its config made for the size of the tokenizer, into a folder."""
    tokenizer = tokenizer or byte_level_tokenizer()
    torch.manual_seed(11)
    model = transformers.AutoModelForCausalLM.from_config(config(len(tokenizer)))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def log_probabilities(model: Any, tokens: list[int]) -> list[float]:
    """log P(token | earlier tokens) of each token but the first: one plain forward pass."""
    with torch.inference_mode():
        logits = model(torch.tensor([tokens])).logits[0].double()
    table = logits.log_softmax(-1)
    return [float(table[i - 1, token]) for i, token in enumerate(tokens) if i]


Fields = dict[str, int | float]


def save_tiny_phi3_gguf(file: Path, *, first: int, most: int, part_tensors: int = 0) -> Path:
    """A Phi-3 of one layer and random weights as a GGUF file: LongRoPE, with other angles beyond ``first`` cells."""
    width, heads = 64, 4
    size = len(_byte_level_table())
    fields: Fields = _fields(width, width, heads, most) | {"rope.scaling.original_context_length": first}
    fields |= {"rope.freq_base": 10_000.0, "attention.sliding_window": 0}
    shapes = {
        "token_embd": (size, width), "output": (size, width), "output_norm": (width,), "blk.0.attn_norm": (width,),
        "blk.0.attn_qkv": (3 * width, width), "blk.0.attn_output": (width, width), "blk.0.ffn_norm": (width,),
        "blk.0.ffn_up": (2 * width, width), "blk.0.ffn_down": (width, width),
    }  # fmt: skip
    tensors = _drawn(shapes, 0.5)
    angles = width // heads // 2
    tensors["rope_factors_short"] = np.ones(angles, dtype=np.float32)
    tensors["rope_factors_long"] = np.linspace(1, 8, angles, dtype=np.float32)
    return _save_gguf(file, "phi3", fields, tensors, part_tensors=part_tensors)


def save_tiny_llama_gguf(
    file: Path,
    *,
    part_tensors: int = 0,
    prefix_space: bool = False,
    also: Callable[[gguf.GGUFWriter], None] | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """A Llama of one layer and random weights as a GGUF file; returns its first part.

    ``part_tensors`` writes parts of that many tensors; ``prefix_space`` gives it a SentencePiece tokenizer that puts a
    space in front; ``also`` adds fields, ``change`` alters tensors in place.
    """
    width, size = 32, len(_PREFIX_SPACE_NAMES if prefix_space else _byte_level_table())
    shapes = {
        "token_embd": (size, width), "output": (size, width), "output_norm": (width,), "blk.0.attn_norm": (width,),
        "blk.0.attn_q": (width, width), "blk.0.attn_k": (width, width), "blk.0.attn_v": (width, width),
        "blk.0.attn_output": (width, width), "blk.0.ffn_norm": (width,), "blk.0.ffn_gate": (width, width),
        "blk.0.ffn_up": (width, width), "blk.0.ffn_down": (width, width),
    }  # fmt: skip
    tensors = _drawn(shapes, 0.3)
    if change is not None:
        change(tensors)
    tokenizer = _add_prefix_space_tokenizer if prefix_space else _add_tokenizer
    fields = _fields(width, width, 2, 128)
    return _save_gguf(file, "llama", fields, tensors, tokenizer, also, part_tensors=part_tensors)


def save_tiny_mamba_gguf(file: Path) -> Path:
    """A Mamba of one layer and random weights as a GGUF file: every layer is recurrent."""
    width, inner, state, rank, convolution = 16, 32, 16, 1, 4
    size = len(_byte_level_table())
    fields: Fields = {
        "context_length": 64, "embedding_length": width, "feed_forward_length": 0, "attention.head_count": 0,
        "block_count": 1, "attention.layer_norm_rms_epsilon": 1e-5, "ssm.conv_kernel": convolution,
        "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank,
    }  # fmt: skip
    shapes = {
        "token_embd": (size, width), "output_norm": (width,), "blk.0.attn_norm": (width,),
        "blk.0.ssm_in": (2 * inner, width), "blk.0.ssm_conv1d": (inner, convolution),
        "blk.0.ssm_x": (rank + 2 * state, inner), "blk.0.ssm_dt": (inner, rank), "blk.0.ssm_out": (width, inner),
    }  # fmt: skip
    tensors = _drawn(shapes, 1.0)
    tensors |= {f"blk.0.{name}.bias": np.zeros(inner, dtype=np.float32) for name in ("ssm_conv1d", "ssm_dt")}
    tensors |= {"blk.0.ssm_a.": -np.ones((inner, state), dtype=np.float32), "blk.0.ssm_d.": np.ones(inner, np.float32)}
    return _save_gguf(file, "mamba", fields, tensors)


def save_tiny_chat_gguf(file: Path, template: str, adds_bos: bool) -> Path:
    """A Llama of one layer with a chat template; its third token is BOS, its fourth ends a turn."""

    def chat(writer: gguf.GGUFWriter) -> None:
        writer.add_token_types([1, 1, 3, 3] + [1] * 252)
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(3)
        writer.add_add_bos_token(adds_bos)
        writer.add_chat_template(template)

    return save_tiny_llama_gguf(file, also=chat)


def save_gguf_without_tensors(file: Path, architecture: str) -> Path:
    """A GGUF file of a tokenizer alone, marked as of this architecture."""
    return _save_gguf(file, architecture, {}, {})


def _fields(width: int, inner: int, heads: int, context: int) -> Fields:
    return {
        "context_length": context, "embedding_length": width, "feed_forward_length": inner, "block_count": 1,
        "attention.head_count": heads, "attention.head_count_kv": heads, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": width // heads,
    }  # fmt: skip


def _drawn(shapes: dict[str, tuple[int, ...]], scale: float) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape, scale=scale).astype(np.float32) for name, shape in shapes.items()}


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(list(_byte_level_table()))
    writer.add_token_merges(["a b"])


def _save_gguf(
    file: Path,
    architecture: str,
    fields: Fields,
    tensors: dict[str, Any],
    tokenizer: Callable[[gguf.GGUFWriter], None] = _add_tokenizer,
    also: Callable[[gguf.GGUFWriter], None] | None = None,
    *,
    part_tensors: int = 0,
) -> Path:
    """Write the file; returns it, or the first of its parts. A name of a tensor with a dot at its end is whole."""
    writer = gguf.GGUFWriter(file, architecture, split_max_tensors=part_tensors)
    for name, value in fields.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{architecture}.{name}", value)
    tokenizer(writer)
    if also is not None:
        also(writer)
    for name, tensor in tensors.items():
        is_whole = name.endswith((".bias", "."))
        writer.add_tensor(name.rstrip(".") if is_whole else f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file if file.exists() else min(file.parent.glob(f"{file.stem}-*-of-*.gguf"))


_PREFIX_SPACE_NAMES = [
    "<unk>", "<s>", "</s>", "<|a|>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁thesanmwo",
    "▁t", "he", "▁the", "▁s", "▁she", "an", "man", "▁man",
]  # fmt: skip


def _add_prefix_space_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(_PREFIX_SPACE_NAMES)
    # Later pieces are made of earlier ones, and win where several fit.
    writer.add_token_scores([float(i) for i in range(len(_PREFIX_SPACE_NAMES))])
    plain = len(_PREFIX_SPACE_NAMES) - 4 - 256
    writer.add_token_types([2, 3, 3, 3] + [6] * 256 + [1] * plain)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
