"""What a transformers model can read: which tokens, and how many before results depend on other texts of the batch."""

from __future__ import annotations

from typing import Any

_PLACES_AFTER_PADDING = frozenset(
    {
        "camembert", "data2vec-text", "ibert", "longformer", "mpnet", "roberta", "roberta-prelayernorm", "xlm-roberta",
        "xlm-roberta-xl", "xmod",
    }
)  # fmt: skip


def context_length(config: Any) -> tuple[int | None, str]:
    """Maximum tokens of one text (None: no limit), and the reason if that is fewer than the config says.

    LongRoPE has one set of frequencies up to the original training length and another beyond it, and uses one
    of them for a whole forward pass: a long text would change the results of short ones beside it. "Dynamic" RoPE
    changes its frequencies too, but only beyond the config's own limit.
    """
    config = config.get_text_config()
    most = _most_places(config)
    lengths = [length for rope in _ropes(config) if _is_longrope(rope) for length in _original_lengths(rope, config)]
    reasons = dict.fromkeys(lengths, "LongRoPE changes the results of every text")
    if (alike := alike_places(config)) is not None:
        reasons[alike] = "attention counts places along a whole pass"
    if not reasons or (most is not None and min(reasons) >= most):
        return most, ""
    return min(reasons), f"{min(reasons)} tokens: beyond them this model's {reasons[min(reasons)]}"


def _most_places(config: Any) -> int | None:
    """How many places a model has, by whichever name; MPT's biases end there although it embeds no places."""
    named = [getattr(config, name, None) for name in ("max_position_embeddings", "max_seq_len", "max_target_positions")]
    most = next((length for length in named if isinstance(length, int)), None)
    if most is None or most < 1:  # some configs write -1 for no limit
        return None
    # RoBERTa and its kin count places from the padding token on.
    first = getattr(config, "pad_token_id", None) if config.model_type in _PLACES_AFTER_PADDING else None
    return most if first is None else most - first - 1


def alike_places(config: Any) -> int | None:
    """How many tokens of a row a model treats alike that counts places along the row of a pass; None: it does not.

    Llama 4 scales the queries of its layers without RoPE by their place, in steps of ``floor_scale`` tokens. It counts
    by itself, whatever ``position_ids`` say: wrong for a tree or for padded rows. A pass may have no more tokens.
    """
    config = config.get_text_config()
    step: int | None = getattr(config, "floor_scale", None)
    return step - 1 if step is not None and getattr(config, "attn_temperature_tuning", False) else None


def vocabulary_size(model: Any) -> int:
    """How many tokens the loaded model knows: those with a row in its embedding and a logit.

    On CUDA a token beyond the embedding does not fail alone: the whole process cannot compute any more.
    """
    sizes = [model.config.get_text_config().vocab_size]
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    sizes += [getattr(embedding, "num_embeddings", None), getattr(head, "out_features", None)]
    return int(min(size for size in sizes if isinstance(size, int)))


def _ropes(config: Any) -> list[dict[str, Any]]:
    """The RoPE settings of the model, or of each kind of layer."""
    ropes = []
    for name in ("rope_parameters", "rope_scaling"):
        settings = getattr(config, name, None)
        if isinstance(settings, dict):
            ropes += [settings, *(of_layers for of_layers in settings.values() if isinstance(of_layers, dict))]
    return ropes


def _is_longrope(rope: dict[str, Any]) -> bool:
    return "long_factor" in rope or rope.get("rope_type") == "longrope"  # older Phi-3 files call it "su" or "yarn"


def _original_lengths(rope: dict[str, Any], config: Any) -> list[int]:
    name = "original_max_position_embeddings"
    return [length for length in (rope.get(name), getattr(config, name, None)) if length is not None]
