"""How many tokens a transformers model may read without its results depending on other texts."""

from __future__ import annotations

from typing import Any


def context_length(config: Any) -> tuple[int | None, str]:
    """Most tokens of one text (None: no limit), and the reason where that is fewer than in the config.

    LongRoPE has one set of angles up to the length that the model was first trained on and another beyond it,
    and uses one of them for a whole forward pass: a long text would change its short neighbours. "Dynamic"
    RoPE changes its angles too, but only beyond the config's own limit.
    """
    config = config.get_text_config()
    most: int | None = getattr(config, "max_position_embeddings", None)
    if most is not None and most < 1:  # some write -1 for no limit
        most = None
    lengths = [length for rope in _ropes(config) if _is_longrope(rope) for length in _original_lengths(rope, config)]
    if not lengths or (most is not None and min(lengths) >= most):
        return most, ""
    return min(lengths), f"{min(lengths)} tokens: beyond them this model's LongRoPE changes the results of every text"


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
