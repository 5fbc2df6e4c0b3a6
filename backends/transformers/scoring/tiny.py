"""A tiny model of a loaded model's own architecture: what holds for it in float32 holds for the architecture.

Its config is the loaded model's with small sizes: a layer of every kind, windows and choices of tokens shorter than the
texts of a trial, random weights large enough that a wrong mask or position moves a log-probability by tenths.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import torch

#: Tokens of the vocabulary.
VOCABULARY = 300
#: Sizes by the name of a config's field.
_SIZES = {
    32: "hidden_size d_model n_embd dim embed_dim embedding_size word_embed_proj_dim image_size lru_width",
    2: "decoder_layers encoder_layers num_key_value_heads num_kv_heads num_experts_per_tok moe_topk moe_k "
    "num_experts_per_token depth num_kv_shared_layers num_layers_per_stack n_mamba_heads linear_num_key_heads "
    "index_n_heads attn_layer_period expert_layer_period mamba_expand expand",
    4: "num_hidden_layers n_layer n_layers num_layers num_attention_heads n_head n_heads num_heads "
    "decoder_attention_heads encoder_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts "
    "laurel_rank state_size ssm_state_size mamba_d_state time_step_rank mamba_n_heads mamba_num_heads conv_kernel "
    "linear_num_value_heads rotary_dim",
    8: "head_dim global_head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim hidden_size_per_layer_input "
    "linear_key_head_dim linear_value_head_dim",
    48: "intermediate_size ffn_dim d_ff n_inner decoder_ffn_dim encoder_ffn_dim mlp_dim index_topk",
    16: "moe_intermediate_size shared_expert_intermediate_size patch_size q_lora_rank kv_lora_rank mamba_d_head "
    "mamba_head_dim index_head_dim",
    128: "max_position_embeddings n_positions n_ctx max_seq_len context_length floor_scale",
    6: "attention_chunk_size sliding_window attention_window_size window_size local_attention",
    1: "n_group topk_group n_shared_experts first_k_dense_replace attn_layer_offset expert_layer_offset mamba_n_groups "
    "n_groups mamba_ngroups",
    64: "mamba_d_ssm",
    VOCABULARY: "vocab_size vocab_size_per_layer_input",
}
_SIZE_OF = {name: size for size, names in _SIZES.items() for name in names.split()}
_WIDE = ("init_std", "initializer_range")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
#: Kinds whose places have three parts although not every config says so.
_SEES = re.compile("vl|4v|46v|glmga|ocr|omni")
_TOKENS = ("bos_token_id", "eos_token_id")
#: Small ones do not follow from the others.
_NEVER_NONE = (
    "head_dim", "num_key_value_heads", "n_routed_experts", "n_shared_experts", "num_experts", "num_experts_per_tok",
)  # fmt: skip
#: What one kind alone needs.
_OF_KINDS: dict[str, dict[str, Any]] = {
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "mamba2": {"head_dim": 16},
    # Released ones have this token; their classes have no default for it.
    "qwen2_5_omni_thinker": {"vision_start_token_id": 7},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 7},
    "qwen2_5_omni": {"enable_audio_output": False},
    "qwen3_omni_moe": {"enable_audio_output": False},
    "xlnet": {"d_head": 8},
    "zaya": {"num_experts_per_tok": 1},
}


def tiny_model(model: Any) -> Any:
    """A model of the same class in float32 on the CPU, with seeded weights. Raises whatever its class does."""
    config = tiny_config(model.config)
    for part in _configs(config):
        if getattr(part, "quantization_config", None) is not None:
            del part.quantization_config
    config._attn_implementation = model.config._attn_implementation
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(11)
        made = type(model)._from_config(config, dtype=torch.float32)
        for weight in made.parameters():
            if weight.dim() > 1 and weight.std() < 0.2:
                torch.nn.init.normal_(weight, std=0.2)
    return made.float().eval()


def tiny_config(config: Any) -> Any:
    """A config of the same class with small sizes, those of its parts included."""
    given = copy.deepcopy(config.to_dict())
    _shrink(given)
    try:
        return type(config)(**given)
    except Exception:  # some classes need a first token
        for part in _parts(given):
            part |= {name: 1 for name in _TOKENS if name in part}
        return type(config)(**given)


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for name in getattr(config, "sub_configs", {}):
        if (part := getattr(config, name, None)) is not None:
            yield from _configs(part)


def _parts(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield given
    for name, value in given.items():
        if name.endswith("_config") and isinstance(value, dict):
            yield from _parts(value)


def _shrink(given: dict[str, Any]) -> None:
    """Make the sizes of a config small, in place; each of its parts by itself."""
    for name, value in list(given.items()):
        if name.endswith("_config") and isinstance(value, dict) and "model_type" in value:
            _shrink(value)
        elif name in _SIZE_OF and (value is not None or name in _NEVER_NONE) and not isinstance(value, list | dict):
            is_count = name in _LAYERS and isinstance(value, int)  # lists of a small config have one entry a layer
            given[name] = min(value, _SIZE_OF[name]) if is_count else _SIZE_OF[name]
        elif name in _WIDE and value is not None:
            given[name] = 0.3
        elif name in _TOKENS:
            given[name] = None
    layers = next((given[name] for name in _LAYERS if given.get(name)), 4)
    if "pad_token_id" in given:
        given["pad_token_id"] = 0
    for name, value in given.items():
        if isinstance(value, list) and len(value) > layers:
            if name.endswith(("types", "_pattern", "layers", "_per_layer")):
                given[name] = _every_kind(value, layers, shared=bool(given.get("num_kv_shared_layers")))
            elif name in _SIZE_OF:
                given[name] = [_SIZE_OF[name]] * layers
    if isinstance(given.get("per_layer_config"), dict):
        given["per_layer_config"] = {at: one for at, one in given["per_layer_config"].items() if int(at) < layers}
    if given.get("kv_lora_rank"):  # keys of one rank, a head of its own for each query
        given["num_key_value_heads"] = given["num_attention_heads"]
    _shrink_rope(given)
    given |= _OF_KINDS.get(given.get("model_type", ""), {})
    for name in ("model_type", "dtype", "_name_or_path"):
        given.pop(name, None)


def _shrink_rope(given: dict[str, Any]) -> None:
    for name in ("rope_parameters", "rope_scaling"):
        settings = given.get(name)
        if not isinstance(settings, dict):
            continue
        if given.get("qk_rope_head_dim"):
            settings.pop("partial_rotary_factor", None)  # of the sizes before
        for rope in (settings, *(of_kind for of_kind in settings.values() if isinstance(of_kind, dict))):
            halves = int(4 * rope.get("partial_rotary_factor", given.get("partial_rotary_factor") or 1))  # of a head
            if "mrope_section" in rope or (name == "rope_parameters" and _SEES.search(str(given.get("model_type")))):
                # time, height and width
                rope["mrope_section"] = [halves - halves // 2, halves // 4, halves // 2 - halves // 4]
            for factors in ("long_factor", "short_factor"):
                if isinstance(rope.get(factors), list):
                    rope[factors] = rope[factors][:halves]


def _every_kind(values: list[Any], count: int, *, shared: bool) -> list[Any]:
    """The first of each kind, then the others, so that a small model has every kind of layer.

    Where later layers share the keys of earlier ones, the kinds take turns: each has one to share.
    """
    if shared:
        kinds = list(dict.fromkeys(values))
        return [kinds[at % len(kinds)] for at in range(count)]
    firsts = [values.index(kind) for kind in dict.fromkeys(map(str, values)) if kind in values]
    places = [*firsts, *(place for place in range(len(values)) if place not in firsts)][:count]
    return [values[place] for place in sorted(places)]
