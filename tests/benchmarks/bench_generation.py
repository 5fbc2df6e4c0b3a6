"""Generated tokens a second against generation one by one, and against the machine's floor.

    python -m tests.benchmarks.bench_generation

SmolLM2-135M, 64 chat prompts of different lengths that ask for long texts, 64 tokens each, greedy. All ways
of one engine are measured in turns within this one run, and the best of the rounds counts, since other
work on the machine only ever adds time.

The floor: every prompt token computed once (starts shared with another prompt not counted again) at the
engine's bare prefill rate, and every generated token in a bare batch of 32, without sampling, text or
scheduling.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable

import numpy as np

from backends.base import Backend, GenerateRequest, GenerateResponse, Message, Sampling
from backends.embedded import smollm2_path

TOKENS, ROWS, ROUNDS = 64, 32, 2
SUBJECTS = (
    "a lighthouse keeper",
    "two sisters who bake bread",
    "a mechanic in a small town by the sea",
    "an engineer and the bridge that would not stand",
    "a nurse on a long night shift",
    "a gardener",
    "a teacher who lost the keys of the school on the first day of the year",
    "an old sailor and his grandson, who go to sea one last time before the winter comes",
)
TASKS = (
    "Write a long story about {}.",
    "Describe in many sentences the life of {}.",
    "Please write a detailed diary entry of {}, with many feelings and the small things of the day.",
    "Tell me everything about {}.",
    "Explain at length why somebody should make a film about {}, and what it would show.",
    "Write the first chapter of a novel about {}.",
    "List and explain ten lessons that we can learn from {}.",
    "Write a long letter to {}, in which you ask many questions.",
)
PROMPTS = [(Message("user", task.format(subject)),) for task in TASKS for subject in SUBJECTS]
REQUESTS = [GenerateRequest(prompt, Sampling(max_tokens=TOKENS)) for prompt in PROMPTS]


def timed(work: Callable[[], int]) -> float:
    """Tokens a second of ``work``, which returns how many it generated."""
    start = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - start)


def distinct_prompt_tokens(prompts: list[list[int]]) -> int:
    """Nodes of the prompts' token trie."""
    return len({tuple(p[: i + 1]) for p in prompts for i in range(len(p))})


def ours(backend: Backend) -> Callable[[], int]:
    def work() -> int:
        answers = asyncio.run(backend.run(REQUESTS))
        assert all(isinstance(a, GenerateResponse) for a in answers), answers
        return sum(a.completion_tokens for a in answers if isinstance(a, GenerateResponse))

    return work


def report(name: str, wanted: float, rates: dict[str, list[float]], floor: float) -> None:
    best = {way: max(found) for way, found in rates.items()}
    for way, rate in best.items():
        print(f"{name:10} {way:12} {rate:7.1f} tokens/s   rounds {[round(r, 1) for r in rates[way]]}")
    ratio = best["ours"] / best["one by one"]
    print(
        f"{name:10} ratio {ratio:.2f} (wanted {wanted}), "
        f"{best['ours'] / floor:.0%} of the floor of {floor:.0f} tokens/s"
    )


def llamacpp() -> None:
    import llama_cpp

    from backends.llamacpp.backend import LlamaCppBackend
    from backends.llamacpp.engine import LlamaEngine

    backend = LlamaCppBackend(smollm2_path(), threads=2)
    asyncio.run(backend.run(REQUESTS[:1]))
    engine = LlamaEngine(smollm2_path(), threads=2)
    tokens = [engine.render(prompt) for prompt in PROMPTS]
    model = llama_cpp.Llama(
        str(smollm2_path()), n_ctx=1024, n_threads=2, n_threads_batch=2, flash_attn=True, verbose=False
    )

    def one_by_one() -> int:
        count = 0
        for prompt in tokens[::4]:
            done = model.create_completion(
                prompt, max_tokens=TOKENS, temperature=0.0, top_k=0, top_p=1.0, repeat_penalty=1.0
            )
            count += done["usage"]["completion_tokens"]
        return count

    rates: dict[str, list[float]] = {"ours": [], "one by one": []}
    bare: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        rates["ours"].append(timed(ours(backend)))
        rates["one by one"].append(timed(one_by_one))
        bare.append(bare_llamacpp(engine))
    prefill, decode = (max(rate) for rate in zip(*bare, strict=True))
    report("llamacpp", 2.3, rates, floor_rate(tokens, prefill, decode))


def bare_llamacpp(engine: object) -> tuple[float, float]:
    """Bare prefill of 512 tokens, and bare decoding of 32 sequences: tokens a second."""
    import llama_cpp

    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.n_batch = 256 * ROWS, ROWS, 512
    params.n_threads = params.n_threads_batch = 2
    context = llama_cpp.llama_init_from_model(engine.model, params)  # type: ignore[attr-defined]
    batch = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(rows: list[tuple[int, int, bool]]) -> None:
        batch.n_tokens = len(rows)
        for place, (position, sequence, logits) in enumerate(rows):
            batch.token[place], batch.pos[place] = 1000 + position, position
            batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, sequence, logits
        assert llama_cpp.llama_decode(context, batch) == 0

    prompt = 512 // ROWS
    prefill = timed(lambda: decode([(p, s, p == prompt - 1) for s in range(ROWS) for p in range(prompt)]) or 512)

    def steps() -> int:
        for step in range(TOKENS):
            decode([(prompt + step, s, True) for s in range(ROWS)])
        return TOKENS * ROWS

    rate = timed(steps)
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return prefill, rate


def hf() -> None:
    import torch

    from backends.transformers.backend import HFBackend

    backend = HFBackend(smollm2_path(), device="cpu", dtype="float32", threads=2)
    asyncio.run(backend.run(REQUESTS[:1]))
    loaded = backend.load()
    model, encoder = loaded.model, loaded.encoder
    tokens = [encoder.render(prompt) for prompt in PROMPTS]

    def one_by_one() -> int:
        count = 0
        for prompt in tokens[::16]:
            ids = torch.tensor([prompt])
            with torch.inference_mode():
                out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False)
            count += out.shape[1] - ids.shape[1]
        return count

    def bare() -> tuple[float, float]:
        with torch.inference_mode():
            ids = torch.tensor(np.random.default_rng(0).integers(100, 40_000, (8, 64)))
            prefill = timed(lambda: model(ids, logits_to_keep=1).logits.shape[0] * 64)
            step = ids.reshape(-1)[:ROWS].unsqueeze(1)
            decode = timed(lambda: sum(model(step, use_cache=False).logits.shape[0] for _ in range(8)))
        return prefill, decode

    rates: dict[str, list[float]] = {"ours": [], "one by one": []}
    bares: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        rates["ours"].append(timed(ours(backend)))
        rates["one by one"].append(timed(one_by_one))
        bares.append(bare())
    prefill, decode = (max(rate) for rate in zip(*bares, strict=True))
    report("hf", 7.5, rates, floor_rate(tokens, prefill, decode))


def floor_rate(prompts: list[list[int]], prefill: float, decode: float) -> float:
    """Generated tokens a second if only bare computing counted."""
    generated = TOKENS * len(prompts)
    return generated / (distinct_prompt_tokens(prompts) / prefill + generated / decode)


def main() -> None:
    """Command line."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # each line at once, in a pipe too
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", choices=["hf", "llamacpp", "both"], default="both")
    engine = parser.parse_args().engine
    if engine != "hf":
        llamacpp()
    if engine != "llamacpp":
        hf()


if __name__ == "__main__":
    main()
