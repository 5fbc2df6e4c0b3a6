"""How much of a device's matrix rate scoring uses: model flops utilisation, with random weights.

    python -m tests.benchmarks.bench_utilisation --device cuda
    python -m tests.benchmarks.bench_utilisation --device cpu --size small --dtype float32

Flops of the model are 2 x (its parameters that multiply, the head only where logits are asked) a token; attention
is left out, so the share is a little too low. The matrix rate is the best of several square products in the
same dtype on the same device. The attention kernel is the one that the profiler saw most time spent in.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from rich.console import Console
from rich.table import Table
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from backends.local.trie import Path, Trie
from backends.transformers.backend import PACK_TOKENS
from backends.transformers.scoring.scorer import SequenceScorer

SDPA = functional.scaled_dot_product_attention
SIZES: dict[str, dict[str, int]] = {
    "small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8,
              "num_key_value_heads": 4, "vocab_size": 32_000},
    "8b": {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip


def workload(vocabulary: int, prompts: int) -> list[Path]:
    """Prompts of 30 tokens behind a common start of 100, each with 20 continuations of 1 to 4 tokens."""
    random = np.random.default_rng(0)
    common = random.integers(0, vocabulary, 100).tolist()
    paths = []
    for _ in range(prompts):
        prompt = common + random.integers(0, vocabulary, 30).tolist()
        for length in random.integers(1, 5, 20):
            paths.append(Path((*prompt, *random.integers(0, vocabulary, length).tolist()), len(prompt)))
    return paths


def wait(device: torch.device) -> None:
    """Until the device has done all it was asked."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Best rate of a square matrix product, flops a second."""
    best = 0.0
    for size in (1024, 2048) if device.type == "cpu" else (4096, 8192, 16_384):
        a = torch.randn(size, size, device=device).to(dtype)
        for _ in range(5):
            wait(device)
            start = time.perf_counter()
            a @ a
            wait(device)
            best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def attention_kernel(scorer: SequenceScorer, paths: list[Path], device: torch.device) -> tuple[str, str]:
    """The kernel that the tree's attention spends most time in, and why it is not the flash kernel."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with mock.patch.object(functional, "scaled_dot_product_attention", wraps=SDPA) as calls:
        with profile(activities=activities) as profiled:
            scorer.logprobs(paths)
        scorer.forget()
    if not calls.called:
        return "none: written out", "float32 on the processor sums in an order of its own"
    time_of = "device_time_total" if device.type == "cuda" else "cpu_time_total"
    kernels = [event for event in profiled.key_averages() if event.key.startswith("aten::_scaled_dot_product")]
    chosen = str(max(kernels, key=lambda event: getattr(event, time_of)).key)
    return chosen, "" if "flash" in chosen else why_not_flash(
        *calls.call_args.args, calls.call_args.kwargs["attn_mask"]
    )


def why_not_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> str:
    """What torch says of its flash kernel when it is asked for it with these tensors."""
    if q.device.type != "cuda":
        return f"mask {tuple(mask.shape)} of {mask.dtype}, queries of {q.dtype}"
    asked = torch.backends.cuda.SDPAParams(q, k, v, mask, 0.0, False, False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.backends.cuda.can_use_flash_attention(asked, debug=True)
    return "; ".join(str(warning.message).split("(Triggered")[0].strip() for warning in said)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--prompts", type=int, default=256)
    options = parser.parse_args()
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    config = transformers.LlamaConfig(**SIZES[options.size], max_position_embeddings=4096)
    torch.set_default_dtype(dtype)
    with device:
        model: Any = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    paths = workload(config.vocab_size, options.prompts)
    scorer = SequenceScorer(model, lambda _: np.arange(0), pack_tokens=PACK_TOKENS[device.type])
    kernel, why = attention_kernel(scorer, paths[:200], device)
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - head - model.get_input_embeddings().weight.numel()
    trie = Trie(paths)
    flops = 2 * (body * len(trie) + head * len(set(trie.ask_nodes.tolist())))
    best = float("inf")
    for _ in range(3):
        scorer.forget()
        wait(device)
        start = time.perf_counter()
        scorer.logprobs(paths)
        wait(device)
        best = min(best, time.perf_counter() - start)
    rate = matrix_rate(device, dtype)
    table = Table(title=f"{options.size}, {options.dtype}, {device}: {options.prompts} prompts of 20 continuations")
    for column in ("route", "nodes", "tokens/s", "model Tflop/s", "matrix Tflop/s", "utilisation", "attention kernel"):
        table.add_column(column)
    table.add_row(
        scorer.route, f"{len(trie):,}", f"{len(trie) / best:,.0f}", f"{flops / best / 1e12:.3f}", f"{rate / 1e12:.3f}",
        f"{flops / best / rate:.0%}", kernel,
    )  # fmt: skip
    console = Console(width=160)
    console.print(table)
    if why:
        console.print(f"Not the flash kernel: {why}.")


if __name__ == "__main__":
    main()
