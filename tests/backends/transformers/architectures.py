"""Every causal architecture of the installed transformers, tiny and with random weights, against plain passes.

``python -m tests.backends.transformers.architectures [--only NAME …] [--results FILE] [--shard I/N]``: for each
architecture that can be made small, scores of twenty requests and the likeliest texts of five prompts, each compared
with one plain forward pass a token; on two threads, on which trees are read side by side. Printed as they come: wrong,
failed, and by which route; then the shares of all, and exit code 1 where they are not what the battery asks for. What
FILE has already is not examined again, so that a run that was cut off goes on. With OMP_WAIT_POLICY=passive it takes a
twentieth of the CPU time where other work runs: threads that wait for each other then leave the cores to it.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from backends import HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling, ScoreRequest, ScoreResponse
from backends.errors import AuditError
from backends.transformers.source import WRITING_PARTS, model_class
from tests.backends.local.tiny_models import byte_level_tokenizer

PROMPTS = ("the police said that", "a", "the man said that the woman", "the woman", "policeman the the the man")
SCORED = (*PROMPTS, *(f"{prompt} {end}" for prompt in PROMPTS for end in ("she said", "he and the man", "a")))
CONTINUATIONS = (" she", " he", " the policeman")
_CLOSE = 1e-3  # nats
_TOKENS = 8
_LARGEST = 25_000_000  # weights

#: Sizes by the name of a config's field, and by its end.
_SIZES = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "embedding_size": 32,
    "word_embed_proj_dim": 32, "num_hidden_layers": 4, "n_layer": 4, "n_layers": 4, "num_layers": 4,
    "decoder_layers": 2, "encoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "decoder_attention_heads": 4, "encoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "global_head_dim": 8, "intermediate_size": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "ffn_dim": 48, "d_ff": 48, "n_inner": 48, "decoder_ffn_dim": 48, "encoder_ffn_dim": 48, "mlp_dim": 48,
    "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128, "max_seq_len": 128, "context_length": 128,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "moe_topk": 2, "moe_k": 2, "num_experts_per_token": 2, "image_size": 32, "patch_size": 16, "depth": 2,

    "num_kv_shared_layers": 2, "num_layers_per_stack": 2, "attention_chunk_size": 6,
    "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "sliding_window": 6, "state_size": 4, "ssm_state_size": 4, "mamba_d_state": 4, "time_step_rank": 4,
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_mamba_heads": 2,
    "lru_width": 32, "hidden_size_per_layer_input": 8, "laurel_rank": 4, "vocab_size_per_layer_input": 300,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "index_n_heads": 2, "index_head_dim": 16, "index_topk": 48, "rotary_dim": 4, "attention_window_size": 6,
    "attn_layer_period": 2,
    "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_expand": 2, "expand": 2,
    "mamba_d_ssm": 64, "mamba_n_groups": 1, "n_groups": 1, "mamba_ngroups": 1, "conv_kernel": 4,
    "init_std": 0.3, "initializer_range": 0.3,
}  # fmt: skip
_NONE = ("bos_token_id", "eos_token_id")
#: Small ones do not follow from the others.
_NEVER_NONE = (
    "head_dim",
    "num_key_value_heads",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts",
    "num_experts_per_tok",
)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=(), help="model types; default: all")
    parser.add_argument("--multimodal", action="store_true", help="only those with a text decoder beside other parts")
    parser.add_argument("--causal", action="store_true", help="only those without other parts")
    parser.add_argument("--shard", default="1/1", help="I/N: each Nth of them, from the Ith on")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to go on from and to write")
    options = parser.parse_args()
    every = [] if options.multimodal else [*configs(options.only)]
    every += [] if options.causal else [*configs(options.only, multimodal=True)]
    part, parts = map(int, options.shard.split("/"))
    found = recorded(options.results)
    for kind, config in every[part - 1 :: parts]:
        if kind in found:
            continue
        start = time.monotonic()
        one = found[kind] = {"kind": kind, **examined(config)}
        print(f"{time.monotonic() - start:5.1f} s  {kind}: {one.get('unmade') or ''}", end="", flush=True)
        print("" if "unmade" in one else f"scores {one['scores']}, texts {one['texts']}; {one['route']}; {one['way']}")
        if options.results:
            with options.results.open("a") as file:
                file.write(json.dumps(one) + "\n")
    print(summary([*found.values()]))
    lacking = shortcomings([*found.values()])
    print(*lacking, sep="\n")
    return 1 if lacking else 0


def recorded(results: Path | None) -> dict[str, dict[str, Any]]:
    """What an earlier run has found, by model type. A last line that was cut off is removed from the file."""
    if results is None or not results.exists():
        return {}
    lines = [line for line in results.read_text().splitlines(keepends=True) if line.endswith("}\n")]
    results.write_text("".join(lines))
    return {one["kind"]: one for one in map(json.loads, lines)}


def configs(only: Any = (), *, multimodal: bool = False) -> Iterator[tuple[str, Any]]:
    """The name and class of each causal architecture's config; or of those loaded for images or sound as well."""
    causal = list(MODEL_FOR_CAUSAL_LM_MAPPING)
    others = [*transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, *transformers.MODEL_FOR_MULTIMODAL_LM_MAPPING]
    for config in dict.fromkeys(one for one in others if one not in causal) if multimodal else causal:
        if not only or config.model_type in only:
            yield config.model_type, config


def summary(found: list[dict[str, Any]]) -> str:
    """How many were made, scored and wrote, by which route."""
    made = [one for one in found if "unmade" not in one]
    scored = [one for one in made if one["scores"] == "true"]
    tree = sum(one["route"].startswith("tree") for one in scored)
    both = sum(one.get("lanes", 1) > 1 for one in scored)
    counts = {of: dict(collections.Counter(one[of] for one in made)) for of in ("scores", "texts")}
    writing = sum(one["texts"] == "true" for one in scored)
    return (
        f"{len(found)} architectures, {len(made)} made small; scores {counts['scores']}; texts {counts['texts']}; "
        f"{writing} of {len(scored)} that score write true texts; {tree} of {len(scored)} score by the tree, "
        f"{both} of them in two passes side by side"
    )


def shortcomings(found: list[dict[str, Any]]) -> list[str]:
    """What keeps these from passing: anything wrong, a crash, too few that write or that the tree scores."""
    made = [one for one in found if "unmade" not in one]
    scored = [one for one in made if one["scores"] == "true"]
    bad = ("wrong", "crash")
    lacking = [f"{one['kind']}: {one[of]}" for one in made for of in ("scores", "texts") if one[of].startswith(bad)]
    if sum(one["texts"] == "true" for one in scored) < 0.95 * len(scored):
        lacking.append("too few of those that score write true texts")
    if sum(one["route"].startswith("tree") for one in scored) < 0.75 * len(scored):
        lacking.append("too few score by the tree")
    return lacking


def examined(config: Any) -> dict[str, Any]:
    """One architecture: ``true``, ``wrong`` or the error for its scores and its texts."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers.logging.disable_progress_bar()
        try:
            model = saved_model(config, Path(folder))
        except Exception as error:  # any of a hundred classes, with sizes that may not fit together
            return {"unmade": f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"}
        backend = HFBackend(folder, threads=2)
        try:
            backend.check()
            decoder = backend.describe_blocking().notes.get("decoder", "")
            backend.load()
        except AuditError as error:
            said = str(error)[:160].replace(folder, "FOLDER")
            return {"scores": f"refused: {said}", "texts": "refused", "route": "", "way": ""}
        except Exception as error:
            return {"scores": f"crash {type(error).__name__}: {error}"[:160], "texts": "crash", "route": "", "way": ""}
        scores, texts = _scores(backend, model), _texts(backend, model)
        notes, lanes = backend.notes_of_run(), len(getattr(backend.load().scorer, "lanes", (None,)))
        backend.close_blocking()
        return {
            "scores": scores,
            "texts": texts,
            "route": notes.get("route", ""),
            "way": notes.get("texts", ""),
            "decoder": decoder,
            "lanes": lanes,
        }


def saved_model(config: Any, folder: Path) -> Any:
    """A tiny model of this architecture, saved with a tokenizer; as transformers loads it."""
    tokenizer = byte_level_tokenizer()
    plain = _small(config, len(tokenizer))
    loader = model_class(plain) or transformers.AutoModelForCausalLM
    # Of a kind with a part that writes, the whole is saved, as it is released.
    whole = transformers.AutoModelForMultimodalLM if plain.model_type in WRITING_PARTS else loader
    torch.manual_seed(11)
    with torch.device("meta"):
        size = sum(p.numel() for p in whole.from_config(plain).parameters())
    if size > _LARGEST:
        raise ValueError(f"still {size:,} weights")
    model = whole.from_config(plain)
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter.std() < 0.2:
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    loaded = loader.from_pretrained(folder).eval()
    _plain(loaded, [5, 6, 7, 8], 1)  # sizes that do not fit together show here
    return loaded


def _small(config: Any, tokens: int) -> Any:
    """A config of this class with small sizes, those of its parts included."""
    given = config().to_dict()
    _shrink(given, tokens)
    try:
        return config(**given)
    except Exception:  # some classes need a first token
        for part in _parts(given):
            part |= {name: 1 for name in _NONE if name in part}
        return config(**given)


def _parts(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield given
    for name, value in given.items():
        if name.endswith("_config") and isinstance(value, dict):
            yield from _parts(value)


def _shrink(given: dict[str, Any], tokens: int) -> None:
    """Make the sizes of a config small, in place; each of its parts by itself."""
    for name, value in list(given.items()):
        if name.endswith("_config") and isinstance(value, dict) and "model_type" in value:
            _shrink(value, tokens)
        elif name in _SIZES and (value is not None or name in _NEVER_NONE) and not isinstance(value, list | dict):
            given[name] = _SIZES[name]
        elif name in _NONE:
            given[name] = None
    layers = next((given[n] for n in ("num_hidden_layers", "n_layer", "n_layers", "num_layers") if given.get(n)), 4)
    if "vocab_size" in given:
        given["vocab_size"] = tokens
    if "pad_token_id" in given:
        given["pad_token_id"] = 0
    for name, value in given.items():
        if isinstance(value, list) and len(value) > layers:
            if name.endswith(("types", "_pattern", "layers", "_per_layer")):
                given[name] = _both_kinds(value, layers, shared=bool(given.get("num_kv_shared_layers")))
            elif name in _SIZES:
                given[name] = [_SIZES[name]] * layers
    if isinstance(given.get("per_layer_config"), dict):
        given["per_layer_config"] = {at: one for at, one in given["per_layer_config"].items() if int(at) < layers}
    if given.get("qk_rope_head_dim") and isinstance(given.get("rope_parameters"), dict):
        given["rope_parameters"].pop("partial_rotary_factor", None)  # of the sizes before
    rope = given.get("rope_parameters")
    if isinstance(rope, dict) and re.search("vl|4v|46v|glmga|ocr|omni", str(given.get("model_type"))):
        halves = int(4 * rope.get("partial_rotary_factor", 1))  # of a head: time, height and width
        rope["mrope_section"] = [halves - halves // 2, halves // 4, halves // 2 - halves // 4]
    if given.get("kv_lora_rank"):  # keys of one rank, a head of its own for each query
        given["num_key_value_heads"] = given["num_attention_heads"]
    given |= _OF_KINDS.get(given.get("model_type", ""), {})
    given.pop("model_type", None)


def _both_kinds(values: list[Any], count: int, *, shared: bool = False) -> list[Any]:
    """The first of each kind, then the others, so that a small model has every kind of layer.

    Where later layers share the keys of earlier ones, the kinds take turns: each has one to share.
    """
    if shared:
        kinds = list(dict.fromkeys(values))
        return [kinds[at % len(kinds)] for at in range(count)]
    firsts = [values.index(kind) for kind in dict.fromkeys(map(str, values)) if kind in values]
    places = [*firsts, *(place for place in range(len(values)) if place not in firsts)][:count]
    return [values[place] for place in sorted(places)]


def _scores(backend: HFBackend, model: Any) -> str:
    requests = [ScoreRequest(prompt, CONTINUATIONS[: 1 + i % 3]) for i, prompt in enumerate(SCORED)]
    try:
        answers = backend.run_blocking(requests)
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"[:160]
    tokenizer, furthest = byte_level_tokenizer(), 0.0
    for request, answer in zip(requests, answers, strict=True):
        if not isinstance(answer, ScoreResponse):
            return f"refused: {answer}"[:160]
        for continuation, score in zip(request.continuations, answer.scores, strict=True):
            count = len(tokenizer(request.prompt)["input_ids"])
            expected = _plain(model, tokenizer(request.prompt + continuation)["input_ids"], count)
            if score.logprob is None or not torch.isfinite(torch.tensor(expected)):
                return "no finite number"
            furthest = max(furthest, abs(score.logprob - expected))
    return "true" if furthest < _CLOSE else f"wrong by {furthest:.2g}"


def _plain(model: Any, ids: list[int], start: int) -> float:
    """log P of the tokens from ``start`` on: one forward pass, without a cache."""
    with torch.inference_mode():
        table = model(torch.tensor([ids]), use_cache=False).logits[0].double().log_softmax(-1)
    return sum(float(table[at - 1, ids[at]]) for at in range(start, len(ids)))


def _texts(backend: HFBackend, model: Any) -> str:
    try:
        answers = backend.run_blocking([GenerateRequest(p, Sampling(max_tokens=_TOKENS)) for p in PROMPTS])
    except Exception as error:
        return f"crash {type(error).__name__}: {error}"[:160]
    tokenizer = byte_level_tokenizer()
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        if not isinstance(answer, GenerateResponse):
            return f"refused: {answer}"[:160]
        ids = tokenizer(prompt)["input_ids"]
        start = len(ids)
        with torch.inference_mode():
            for _ in range(_TOKENS):
                logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
                best, other = logits.topk(2).values.tolist()
                if best - other < 10 * _CLOSE:  # a near tie, which rounding may decide
                    break
                ids.append(int(logits.argmax()))
            else:
                if tokenizer.decode(ids[start:]) != answer.text:
                    return "wrong"
    return "true"


if __name__ == "__main__":
    sys.exit(main())
