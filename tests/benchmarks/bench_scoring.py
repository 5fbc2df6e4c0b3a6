"""Time scoring against the floor and against other tools, side by side in one run.

    python -m tests.benchmarks.bench_scoring --workload occugender

The floor is (distinct tokens that have to be read, over the whole workload) / (the machine's raw prefill
rate on the same model in the same run). A continuation's last token is predicted and never read: it counts
neither as a node nor as evaluated. The raw rate is that of the best of several shapes, with logits for the last
token only. It is measured for RATE_SECONDS before, after and between the engine's batches, since a shared
machine's speed moves by a fifth within a minute. Tools that are slow run on a sample of the prompts, spread
evenly; their milliseconds are by prompt. Log-probabilities are compared on the sample. Two further lines
say how far float32 itself can be trusted: one-by-one in float64, and one-by-one in float32 with tokens
after the end, which no earlier token may attend to: they change the rounding alone.

Each line is printed as soon as it is known, the table at a workload's end. Other tools get a model that transformers
loaded, not the engine's, whose weights are laid out for the CPU. Where other work runs on the machine, compare the
CPU time, which is that of all threads.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from backends import HFBackend, LlamaCppBackend
from backends.base import ScoreRequest, ScoreResponse
from backends.embedded import gemma3_path, smollm2_path
from backends.local.trie import Path as TokenPath
from backends.local.trie import Trie
from suites import MGBR, DebiasingPositions, OccuGender

FLOAT64 = "one-by-one, float64"
PADDED = "one-by-one, padded"
PADDING = 16  # tokens after the end
PEERS = ("one-by-one", "lm-eval", "minicons", "echo")
SHAPES = ((1, 512), (8, 64), (16, 32))
RATE_SECONDS = 1.5
LM_EVAL_BATCH = 32


# -- workloads -----------------------------------------------------------------------------------


def occugender() -> list[ScoreRequest]:
    """The explicit prompts: 25 templates x 40 occupations x the listed expressions."""
    return [i.request for i in OccuGender(bias=("explicit",)).items() if isinstance(i.request, ScoreRequest)]


def dialogue() -> list[ScoreRequest]:
    """Seven conditions x 40 occupations of the explicit task after a dialogue."""
    suite = DebiasingPositions(positions=["with_dialogue"])
    return [
        i.request
        for i in suite.items()
        if isinstance(i.request, ScoreRequest) and i.factors["bias"] == "explicit" and not i.factors["placebo"]
    ]


def few_shot(shots: int = 24, contexts: int = 5) -> list[ScoreRequest]:
    """Long contexts: answered examples of other occupations before each of 40 questions."""
    plain = [r for r in occugender()[:40] if isinstance(r.prompt, str)]
    found = []
    for number in range(contexts):
        order = np.random.default_rng(number).permutation(len(plain))[:shots]
        examples = "\n\n".join(f"{plain[i].prompt} {('Woman', 'Man')[i % 2]}" for i in order)
        found += [ScoreRequest(f"{examples}\n\n{r.prompt}", r.continuations) for r in plain]
    return found


def debiasing() -> list[ScoreRequest]:
    """The whole debiasing experiment: every task prompt, debiasing prompt, placebo and position."""
    return [i.request for i in DebiasingPositions().items() if isinstance(i.request, ScoreRequest)]


def counting() -> list[ScoreRequest]:
    """Lists to count women in, under all six conditions: few continuations, long prompts."""
    return [i.request for i in MGBR(n=20).items() if isinstance(i.request, ScoreRequest)]


WORKLOADS: dict[str, Callable[[], list[ScoreRequest]]] = {
    "occugender": occugender,
    "dialogue": dialogue,
    "few-shot": few_shot,
    "debiasing": debiasing,
    "counting": counting,
}
#: Those of ``--workload all``; the others are asked for by name.
COMPARED = ("occugender", "dialogue", "few-shot")


def spread(items: Sequence[ScoreRequest], count: int) -> list[ScoreRequest]:
    """``count`` of the items, evenly spread."""
    return [items[i] for i in np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)]


# -- measuring -----------------------------------------------------------------------------------


@dataclass
class Line:
    """One way of scoring: what it cost and what it gave."""

    name: str
    prompts: int
    seconds: float
    cpu: float
    tokens: int | None
    peak_mb: float
    scores: dict[tuple[str, str], float]
    nodes: int | None = None
    rate: float | None = None

    @property
    def ms(self) -> float:
        """Milliseconds a prompt."""
        return 1000 * self.seconds / self.prompts

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU time a prompt, of all threads."""
        return 1000 * self.cpu / self.prompts

    @property
    def share(self) -> float | None:
        """Share of the floor: the least possible time over the time taken."""
        if self.nodes is None or self.rate is None:
            return None
        return self.nodes / self.rate / self.seconds


def tell(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def cpu_time() -> float:
    """CPU seconds that this process has taken, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Most resident memory of this process meanwhile, in MB, read every 20 ms."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.is_set():
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            peak[0] = max(peak[0], pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
            done.wait(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """Tokens that go through a transformers model, padding included, whoever calls it."""
    count = [0]

    def add(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        ids = options.get("input_ids", arguments[0] if arguments else None)
        count[0] += ids.numel()

    handle = model.register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield count
    finally:
        handle.remove()


def by_pair(requests: Sequence[ScoreRequest], values: Sequence[float]) -> dict[tuple[str, str], float]:
    """Values under (prompt, continuation), in the order the requests list them."""
    pairs = [(str(r.prompt), c) for r in requests for c in r.continuations]
    return dict(zip(pairs, values, strict=True))


def engine_line(name: str, backend: Any, requests: list[ScoreRequest], raw: RawPrefill) -> Line:
    """Score everything through a backend, in batches as an audit does."""
    backend.run_blocking(spread(requests, 4))
    loaded = backend.load()
    encoder, scorer = loaded.encoder, loaded.scorer
    scorer.forget()
    tokens = scorer.tokens_computed
    values: list[float] = []
    raw.sample()
    with peak_memory() as peak:
        seconds = cpu = 0.0
        for at in range(0, len(requests), backend.batch_size):
            tell(f"  {name}: {at:,} of {len(requests):,} prompts")
            start, used = time.perf_counter(), cpu_time()
            answers = backend.run_blocking(requests[at : at + backend.batch_size])
            seconds, cpu = seconds + time.perf_counter() - start, cpu + cpu_time() - used
            raw.sample()
            for answer in answers:
                assert isinstance(answer, ScoreResponse), answer
                values += [float(s.logprob) for s in answer.scores if s.logprob is not None]
    tokens = scorer.tokens_computed - tokens
    texts = [str(r.prompt) + c for r in requests for c in r.continuations]
    nodes = len(Trie([TokenPath(tuple(t), len(t)) for t in encoder.encode(texts, chat=False)]))
    return told(Line(name, len(requests), seconds, cpu, tokens, peak[0], by_pair(requests, values), nodes, raw.rate))


def told(line: Line) -> Line:
    """The line, printed."""
    tell(f"  {line.name}: {line.ms:.1f} ms a prompt, {line.cpu_ms:.1f} of CPU time, {line.prompts:,} prompts")
    return line


class RawPrefill:
    """The rate at which a model reads tokens and does nothing else, tokens a second.

    Parameters
    ----------
    read : callable
        Reads ``sequences x length`` tokens once.
    """

    def __init__(self, read: Callable[[int, int], None]) -> None:
        self._read, self._tokens, self._seconds = read, 0, 0.0
        times = {shape: self._time(shape) for shape in (*SHAPES, *SHAPES)}  # the first round warms up
        self.shape = min(times, key=lambda shape: times[shape] / (shape[0] * shape[1]))

    def _time(self, shape: tuple[int, int]) -> float:
        start = time.perf_counter()
        self._read(*shape)
        return time.perf_counter() - start

    def sample(self) -> None:
        """Read the best shape again and again for a while."""
        spent = 0.0
        while spent < RATE_SECONDS:
            spent += self._time(self.shape)
            self._tokens += self.shape[0] * self.shape[1]
        self._seconds += spent

    @property
    def rate(self) -> float:
        """Mean over all samples so far."""
        return self._tokens / self._seconds


def hf_prefill(model: Any) -> RawPrefill:
    """Raw prefill of a transformers model."""

    def read(sequences: int, length: int) -> None:
        with torch.inference_mode():
            model(torch.randint(0, 1000, (sequences, length)), logits_to_keep=1, use_cache=False)

    return RawPrefill(read)


def llama_prefill(engine: Any) -> RawPrefill:
    """Raw prefill of a llama.cpp model with its default cache."""
    import llama_cpp

    most = max(sequences * length for sequences, length in SHAPES)
    params = llama_cpp.llama_context_default_params()
    params.n_seq_max = max(sequences for sequences, _ in SHAPES)
    params.n_ctx = params.n_seq_max * max(length for _, length in SHAPES)
    params.n_batch = params.n_ubatch = most
    params.n_threads, params.n_threads_batch = engine.threads, engine.threads
    params.n_outputs_max_per_seq = 0
    context = llama_cpp.llama_init_from_model(engine.model, params)
    batch = llama_cpp.llama_batch_init(most, 0, 1)

    def read(sequences: int, length: int) -> None:
        count = batch.n_tokens = sequences * length
        for i in range(count):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = 1000 + i, i % length, 1
            batch.seq_id[i][0], batch.logits[i] = i // length, int(i == count - 1)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_synchronize(context)

    return RawPrefill(read)


# -- other ways ----------------------------------------------------------------------------------


def one_by_one(model: Any, tokenizer: Any, requests: Sequence[ScoreRequest], padding: int = 0) -> list[float]:
    """One forward pass a (prompt, continuation): the papers' procedure, in the model's dtype."""
    found = []
    after = torch.zeros((1, padding), dtype=torch.long)
    for request in requests:
        prompt = len(tokenizer(request.prompt)["input_ids"])
        for continuation in request.continuations:
            ids = tokenizer(str(request.prompt) + continuation, return_tensors="pt")["input_ids"]
            with torch.inference_mode():
                table = model(torch.cat([ids, after], 1)).logits[0].log_softmax(-1)
            found.append(sum(float(table[i - 1, ids[0, i]]) for i in range(prompt, ids.shape[1])))
    return found


def lm_eval(model: Any, tokenizer: Any, requests: Sequence[ScoreRequest]) -> list[float]:
    """lm-evaluation-harness, HFLM.loglikelihood."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=LM_EVAL_BATCH, device="cpu")
    pairs = [(str(r.prompt), c) for r in requests for c in r.continuations]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    return [value for value, _ in harness.loglikelihood(asked, disable_tqdm=True)]


def minicons(model: Any, tokenizer: Any, requests: Sequence[ScoreRequest]) -> list[float]:
    """minicons, conditional_score, all continuations of a prompt in one call."""
    from minicons.scorer import IncrementalLMScorer

    scorer = IncrementalLMScorer(model, "cpu", tokenizer=tokenizer)
    found = []
    for request in requests:
        words = [c.removeprefix(" ") for c in request.continuations]
        prompts = [str(request.prompt)] * len(words)
        found += scorer.conditional_score(prompts, words, separator=" ", reduction=lambda x: x.sum(0).item())
    return found


def echo(path: Path, threads: int, requests: Sequence[ScoreRequest]) -> list[float]:
    """llama-cpp-python's completion with echoed log-probabilities, a request a continuation."""
    from llama_cpp import Llama

    model = Llama(str(path), logits_all=True, n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False)
    found = []
    for request in requests:
        for continuation in request.continuations:
            text = str(request.prompt) + continuation
            reply: Any = model.create_completion(text, echo=True, logprobs=1, max_tokens=1, temperature=0)
            logprobs = reply["choices"][0]["logprobs"]
            inside = [i for i, at in enumerate(logprobs["text_offset"]) if len(str(request.prompt)) <= at < len(text)]
            found.append(sum(logprobs["token_logprobs"][i] for i in inside))
    model.close()
    return found


def peer_line(name: str, model: Any, requests: list[ScoreRequest], score: Callable[[], list[float]]) -> Line:
    """Time another way on its sample."""
    tell(f"  {name}: {len(requests):,} prompts")
    with counted(model) as count, peak_memory() as peak:
        start, used = time.perf_counter(), cpu_time()
        values = score()
        seconds, cpu = time.perf_counter() - start, cpu_time() - used
    return told(Line(name, len(requests), seconds, cpu, count[0] or None, peak[0], by_pair(requests, values)))


# -- the table -----------------------------------------------------------------------------------


def apart(line: Line, reference: Line) -> float:
    """Largest difference of a log-probability on the pairs both have."""
    shared = line.scores.keys() & reference.scores.keys()
    return max((abs(line.scores[k] - reference.scores[k]) for k in shared), default=float("nan"))


def _difference(line: Line, reference: Line | None) -> str:
    return "-" if reference is None or reference is line else f"{apart(line, reference):.1e}"


def show(console: Console, title: str, lines: list[Line], reference: str, ours: str) -> None:
    """Print one workload's table."""
    table = Table(title=title)
    for column in (
        "way", "prompts", "ms/prompt", "x slower than ours", "CPU ms/prompt", "x CPU",
        "tokens evaluated", "trie nodes", "raw tokens/s", "share of floor",
        "peak MB", f"max |diff| to {reference}", "to float64",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "way" else "right")
    named = {line.name: line for line in lines}
    for line in lines:
        table.add_row(
            line.name,
            str(line.prompts),
            f"{line.ms:.1f}",
            f"{line.ms / named[ours].ms:.1f}",
            f"{line.cpu_ms:.1f}",
            f"{line.cpu_ms / named[ours].cpu_ms:.1f}",
            "-" if line.tokens is None else f"{line.tokens:,}",
            "-" if line.nodes is None else f"{line.nodes:,}",
            "-" if line.rate is None else f"{line.rate:.0f}",
            "-" if line.share is None else f"{line.share:.0%}",
            f"{line.peak_mb:.0f}",
            _difference(line, named.get(reference)),
            _difference(line, named.get(FLOAT64)),
        )
    console.print(table)


def bench_hf(
    console: Console, name: str, path: Path, requests: list[ScoreRequest], options: argparse.Namespace
) -> None:
    """transformers, in one dtype: the engine and the tools that use transformers."""
    title = f"{name}: transformers, {path.name}, {options.dtype}, {options.threads} threads"
    tell(title)
    backend = HFBackend(path, dtype=options.dtype, device="cpu", threads=options.threads)
    loaded = backend.load()
    lines = [engine_line(f"this engine, {loaded.scorer.route}", backend, requests, hf_prefill(loaded.model))]
    model = backend.source.load(options.dtype, "cpu")  # as other tools would have it
    tokenizer = backend._tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    for peer, run in (("one-by-one", one_by_one), ("lm-eval", lm_eval), ("minicons", minicons)):
        if peer in options.peers:
            # lm-evaluation-harness batches over prompts and needs more of them to show its speed.
            sample = spread(requests, options.sample * (4 if peer == "lm-eval" else 1))
            lines.append(peer_line(peer, model, sample, lambda run=run, s=sample: run(model, tokenizer, s)))  # type: ignore[misc]
    if "one-by-one" in options.peers:
        sample = spread(requests, options.sample)
        lines.append(peer_line(PADDED, model, sample, lambda: one_by_one(model, tokenizer, sample, PADDING)))
        exact = copy.deepcopy(model).double()
        lines.append(peer_line(FLOAT64, exact, sample, lambda: one_by_one(exact, tokenizer, sample)))
    show(console, title, lines, "one-by-one", lines[0].name)
    backend.close_blocking()


def bench_llama(
    console: Console, name: str, path: Path, requests: list[ScoreRequest], options: argparse.Namespace
) -> None:
    """llama.cpp: the engine, one request at a time, and llama-cpp-python's echo."""
    title = f"{name}: llama.cpp, {path.name}, {options.threads} threads"
    tell(title)
    backend = LlamaCppBackend(path, threads=options.threads)
    engine = backend.load().model
    ours = "this engine, shared cells"
    lines = [engine_line(ours, backend, requests, llama_prefill(engine))]
    sample = spread(requests, options.sample)
    start, used = time.perf_counter(), cpu_time()
    values: list[float] = []
    with peak_memory() as peak:
        for request in sample:
            for continuation in request.continuations:
                backend.load().scorer.forget()
                (answer,) = backend.run_blocking([ScoreRequest(request.prompt, (continuation,))])
                values += [float(s.logprob) for s in answer.scores]  # type: ignore[union-attr, arg-type]
    seconds, cpu = time.perf_counter() - start, cpu_time() - used
    alone = Line("one sequence at a time", len(sample), seconds, cpu, None, peak[0], by_pair(sample, values))
    lines.append(told(alone))
    backend.close_blocking()
    if "echo" in options.peers:
        sample = [ScoreRequest(r.prompt, r.continuations[:3]) for r in spread(requests, 2)]
        with peak_memory() as peak:
            start, used = time.perf_counter(), cpu_time()
            values = echo(path, options.threads, sample)
            # Three of a prompt's continuations are asked: each is a request of its own, so all cost in proportion.
            times = len(requests[0].continuations) / 3
            seconds, cpu = (time.perf_counter() - start) * times, (cpu_time() - used) * times
        echoed = Line("llama-cpp-python echo", len(sample), seconds, cpu, None, peak[0], by_pair(sample, values))
        lines.append(told(echoed))
    show(console, title, lines, "one sequence at a time", ours)


def bench_dtypes(console: Console, path: Path, requests: list[ScoreRequest], options: argparse.Namespace) -> None:
    """How far 16-bit weights and arithmetic move log-probabilities from float32."""
    table = Table(title=f"dtype: {path.name}, {len(requests)} prompts")
    for column in ("dtype", "ms/prompt", "mean |diff| to float32", "max |diff| to float32"):
        table.add_column(column, justify="left" if column == "dtype" else "right")
    exact: list[float] = []
    for dtype in ("float32", "bfloat16", "float16"):
        backend = HFBackend(path, dtype=dtype, device="cpu", threads=options.threads)  # type: ignore[arg-type]
        backend.run_blocking(requests[:1])
        start = time.perf_counter()
        answers = backend.run_blocking(requests)
        ms = 1000 * (time.perf_counter() - start) / len(requests)
        values = [float(s.logprob) for a in answers for s in a.scores]  # type: ignore[union-attr, arg-type]
        exact = exact or values
        differences = np.abs(np.array(values) - np.array(exact))
        tell(f"  {dtype}: {ms:.1f} ms a prompt")
        table.add_row(dtype, f"{ms:.1f}", f"{differences.mean():.1e}", f"{differences.max():.1e}")
        backend.close_blocking()
    console.print(table)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="all")
    parser.add_argument("--engine", choices=["hf", "llamacpp", "both"], default="both")
    parser.add_argument("--model", choices=["smollm2", "gemma3"], default="smollm2")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="on transformers")
    parser.add_argument("--prompts", type=int, help="most prompts of a workload, its first ones (default: all)")
    parser.add_argument("--sample", type=int, default=5, help="prompts that slow tools are timed on")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", action="store_true", help="also the deviation of 16-bit dtypes")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    path = {"smollm2": smollm2_path, "gemma3": gemma3_path}[options.model]()
    console = Console(width=180 if not sys.stdout.isatty() else None)
    for name in COMPARED if options.workload == "all" else [options.workload]:
        requests = list(itertools.islice(WORKLOADS[name](), options.prompts))
        if options.engine in ("hf", "both"):
            bench_hf(console, name, path, requests, options)
        if options.engine in ("llamacpp", "both"):
            bench_llama(console, name, path, requests, options)
    if options.dtypes:
        bench_dtypes(console, path, spread(occugender(), 10), options)


if __name__ == "__main__":
    main()
