"""How much of a device's matrix rate scoring uses, beside its peers: model flops utilisation, with random weights.

    python -m tests.benchmarks.bench_utilisation --device cuda --lm-eval --vllm-python .venv/vllm/bin/python
    python -m tests.benchmarks.bench_utilisation --device cpu --size small --dtype float32

Two workloads: prompts that share a start, each with many continuations, and one without anything to share between
prompts of very different lengths. Flops of the model are 2 x (its parameters that multiply, the head only where
logits are asked) a token; attention is left out, so the share is a little too low. The matrix rate is the best of
several square products in the same dtype on the same device. The attention kernel is the one that the profiler saw
most time spent in. Peers are asked about a sample of the same prompts, and how far their numbers are apart is told.
Each line is printed as soon as it is known.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as PathOfFile
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from backends.local.trie import Path, Trie
from backends.transformers.backend import PACK_TOKENS
from backends.transformers.scoring.scorer import SequenceScorer
from tests.benchmarks.vllm_peer import ask

SDPA = functional.scaled_dot_product_attention
SIZES: dict[str, dict[str, int]] = {
    "small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "num_attention_heads": 8,
              "num_key_value_heads": 4, "vocab_size": 32_000},
    "8b": {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip


def shared(vocabulary: int, prompts: int) -> list[list[Path]]:
    """Prompts of 30 tokens behind a common start of 100, each with 20 continuations of 1 to 4 tokens."""
    random = np.random.default_rng(0)
    common = random.integers(0, vocabulary, 100).tolist()
    return [_continued(random, vocabulary, common + _drawn(random, vocabulary, 30), 20) for _ in range(prompts)]


def separate(vocabulary: int, prompts: int) -> list[list[Path]]:
    """Prompts of 10 to 400 tokens that share nothing, each with 1 to 3 continuations of 1 to 4 tokens."""
    random = np.random.default_rng(1)
    lengths = random.integers(10, 401, prompts)
    return [
        _continued(random, vocabulary, _drawn(random, vocabulary, length), int(random.integers(1, 4)))
        for length in lengths
    ]


WORKLOADS = {"shared": shared, "separate": separate}


def _drawn(random: np.random.Generator, vocabulary: int, count: int) -> list[int]:
    return random.integers(0, vocabulary, count).tolist()


def _continued(random: np.random.Generator, vocabulary: int, prompt: list[int], count: int) -> list[Path]:
    ends = [_drawn(random, vocabulary, length) for length in random.integers(1, 5, count)]
    return [Path((*prompt, *end), len(prompt)) for end in ends]


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


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


@dataclass(frozen=True)
class Asked:
    """A workload, and what this engine made of it."""

    name: str
    prompts: list[list[Path]]
    ms: float  # a prompt
    sums: list[float]  # of each path of the sample

    def sample(self, count: int) -> list[Path]:
        return [path for prompt in self.prompts[:count] for path in prompt]

    def beside(self, peer: str, sums: Sequence[float], seconds: float, count: int) -> None:
        """Tell how a peer did on the first prompts."""
        ms = 1000 * seconds / min(count, len(self.prompts))
        apart = float(np.abs(np.subtract(sums, self.sums)).max())
        tell(
            f"{self.name}: {peer} {ms:.1f} ms a prompt, {ms / self.ms:.1f} times this engine's; "
            f"at most {apart:.2g} nats from it"
        )


def by_this_engine(
    name: str, prompts: list[list[Path]], model: Any, device: torch.device, rate: float, sample: int
) -> Asked:
    """Score a workload, and tell how much of the device's rate that used."""
    paths = [path for prompt in prompts for path in prompt]
    trie = Trie(paths)
    tell(
        f"{name}: {len(prompts)} prompts, {len(paths):,} continuations, {len(trie):,} distinct tokens "
        f"of {sum(len(path.computed) for path in paths):,}"
    )
    scorer = SequenceScorer(model, lambda _: np.arange(0), pack_tokens=PACK_TOKENS[device.type])
    kernel, why = attention_kernel(scorer, paths[:200], device)
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters()) - head - model.get_input_embeddings().weight.numel()
    flops = 2 * (body * len(trie) + head * len(set(trie.ask_nodes.tolist())))
    best, values = float("inf"), []
    for _ in range(3):
        scorer.forget()
        wait(device)
        start = time.perf_counter()
        values = scorer.logprobs(paths)
        wait(device)
        best = min(best, time.perf_counter() - start)
    ms = 1000 * best / len(prompts)
    tell(
        f"{name}: this engine ({scorer.route}) {ms:.1f} ms a prompt, {len(trie) / best:,.0f} tokens a second, "
        f"{flops / best / 1e12:.3f} Tflop/s: {flops / best / rate:.0%} of the matrix rate; attention {kernel}"
    )
    if why:
        tell(f"{name}: not the flash kernel: {why}")
    kept = sum(len(prompt) for prompt in prompts[:sample])
    return Asked(name, prompts, ms, [float(np.sum(value)) for value in values[:kept]])


def by_lm_eval(model: Any, paths: list[Path], device: torch.device, batch: int) -> tuple[list[float], float]:
    """lm-evaluation-harness on the same model, and the seconds that it took: each continuation a row of its own."""
    from lm_eval.models.huggingface import HFLM

    from tests.backends.local.tiny_models import byte_level_tokenizer

    harness = HFLM(pretrained=model, tokenizer=byte_level_tokenizer(), batch_size=batch, device=str(device))
    asked = [
        (("", str(at)), list(path.tokens[: path.scored_from]), list(path.tokens[path.scored_from :]))
        for at, path in enumerate(paths)
    ]
    wait(device)
    start = time.perf_counter()
    found = harness._loglikelihood_tokens(asked, disable_tqdm=True)
    wait(device)
    return [value for value, _ in found], time.perf_counter() - start


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--sample", type=int, default=32, help="prompts that the peers are asked about")
    parser.add_argument("--lm-eval", action="store_true", help="beside lm-evaluation-harness (pip install lm-eval)")
    parser.add_argument("--batch", type=int, default=32, help="rows of a pass of lm-evaluation-harness")
    parser.add_argument("--vllm-python", help="beside vLLM: the Python of its environment")
    return parser.parse_args(arguments)


def main() -> None:
    """All workloads, then vLLM, which needs the memory for itself."""
    options = options_of()
    device, dtype = torch.device(options.device), getattr(torch, options.dtype)
    config = transformers.LlamaConfig(**SIZES[options.size], max_position_embeddings=4096)
    torch.set_default_dtype(dtype)
    with device:
        model: Any = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    rate = matrix_rate(device, dtype)
    tell(
        f"{options.size}, {options.dtype}, {device}: {model.num_parameters():,} weights; "
        f"matrix rate {rate / 1e12:.3f} Tflop/s"
    )
    asked = []
    for name in options.workloads:
        prompts = WORKLOADS[name](config.vocab_size, options.prompts)
        asked.append(by_this_engine(name, prompts, model, device, rate, options.sample))
        if options.lm_eval:
            found = by_lm_eval(model, asked[-1].sample(options.sample), device, options.batch)
            asked[-1].beside("lm-evaluation-harness", *found, options.sample)
    if options.vllm_python:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            del model
            if device.type == "cuda":
                torch.cuda.empty_cache()
            tell("vLLM is loaded, in its own environment")
            lists = [[(path.tokens, path.scored_from) for path in one.sample(options.sample)] for one in asked]
            for one, found in zip(
                asked, ask(options.vllm_python, PathOfFile(folder), options.dtype, lists), strict=True
            ):
                one.beside("vLLM", *found, options.sample)


if __name__ == "__main__":
    main()
