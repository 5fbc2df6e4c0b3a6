"""What the batch route saves where it reads shared starts once: tokens read and CPU time, before and after.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.bench_starts --kind falcon_h1 --prompts 24

Recurrent models with random weights and SmolLM2's tokenizer. Prompts of OccuGender's explicit task, in the suite's
order; and the same behind one text of 350 words. Each is asked with every text read whole, then with starts shared.
The cost of a pass is what one over a single token takes, less a token's part of a pass over 256.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import torch
import transformers

from backends import HFBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.embedded import smollm2_path
from tests.benchmarks.bench_scoring import occugender

KINDS: dict[str, dict[str, Any]] = {
    "falcon_h1": {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8,
                  "num_key_value_heads": 2, "mamba_d_ssm": 1024, "mamba_n_heads": 16, "mamba_d_head": 64,
                  "mamba_d_state": 64},
    "mamba": {"hidden_size": 512, "num_hidden_layers": 8, "state_size": 16},
    "qwen3_5_text": {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8,
                     "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 8, "linear_num_value_heads": 8,
                     "linear_key_head_dim": 64, "linear_value_head_dim": 64},
}  # fmt: skip
WORDS = "The engineer said that the nurse and the doctor would meet after work on Monday. "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", nargs="*", choices=KINDS, default=[*KINDS])
    parser.add_argument("--prompts", type=int, default=24)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    every = occugender()
    quarter = len(every) // 4
    prompts = [request for at in range(4) for request in every[at * quarter :][: options.prompts // 4]]
    behind = [ScoreRequest(WORDS * 23 + str(r.prompt), r.continuations) for r in prompts[: options.prompts // 3]]
    for kind in options.kind:
        with tempfile.TemporaryDirectory() as folder:
            _compare(kind, _loaded(kind, folder), {"OccuGender explicit": prompts, "behind 350 words": behind})


def _loaded(kind: str, folder: str) -> HFBackend:
    """A model of this kind with random weights, behind the tokenizer of SmolLM2."""
    embedded = HFBackend(smollm2_path(), device="cpu")
    embedded.describe_blocking()
    tokenizer = embedded._tokenizer
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **KINDS[kind])
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    start = time.process_time()
    backend = HFBackend(folder, device="cpu", dtype="float32", threads=1)
    scorer: Any = backend.load().scorer
    size = sum(p.numel() for p in model.parameters()) // 10**6
    took = time.process_time() - start
    print(f"{kind}, {size}M weights, loaded and tried in {took:.1f} s: {scorer.route_reason}", flush=True)
    long, one = (_pass(backend.load().model, n) for n in (256, 1))
    print(f"  a pass costs {(one - long / 256) / (long / 256):.0f} tokens of {1000 * long / 256:.2f} ms", flush=True)
    return backend


def _pass(model: Any, tokens: int) -> float:
    """CPU seconds of a pass, the least of several."""
    ids = torch.arange(100, 100 + tokens)[None]
    found = []
    for _ in range(5):
        start = time.process_time()
        with torch.inference_mode():
            model(ids, use_cache=False, logits_to_keep=1)
        found.append(time.process_time() - start)
    return min(found)


def _compare(kind: str, backend: HFBackend, workloads: dict[str, list[ScoreRequest]]) -> None:
    scorer: Any = backend.load().scorer
    shared = scorer._batch.starts
    for name, requests in workloads.items():
        scores = []
        for starts, said in ((None, "whole"), (shared, "shared")):
            scorer._batch.starts = starts
            before, start = scorer.tokens_computed, time.process_time()
            answers = backend.run_blocking(requests)
            seconds, tokens = time.process_time() - start, scorer.tokens_computed - before
            scores.append([s.logprob for a in answers if isinstance(a, ScoreResponse) for s in a.scores])
            per = len(requests)
            print(f"  {name}, {said}: {tokens / per:.0f} tokens, {1000 * seconds / per:.0f} ms a prompt", flush=True)
        moved = np.abs(np.array(scores[0], dtype=float) - np.array(scores[1], dtype=float))
        print(f"  {name}: {len(moved)} scores, at most {moved.max():.1e} nats apart", flush=True)


if __name__ == "__main__":
    main()
