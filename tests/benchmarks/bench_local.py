"""How fast local models score and write, beside their peers: random weights of any config, no download.

    python -m tests.benchmarks.bench_local --size small --device cpu --dtype float32
    python -m tests.benchmarks.bench_local --size 8b --tokenizer FOLDER --vllm-python .venv/vllm/bin/python

Workloads: OccuGender's explicit prompts, DebiasingPositions with a dialogue, the explicit prompts behind a start of
350 words and behind eight worked examples, GenderPair's texts. Ways: this engine; lm-evaluation-harness (where
installed) and vLLM on a sample of the same prompts; transformers' ``generate`` and ``generate_batch``. Bare prefill is
the model's own pass over rows of random tokens, without an output head: this engine's floor is the distinct tokens of a
workload at that rate. The share of the card is that of the best matrix product measured in the same dtype. Distances to
float32 are those of sums over a continuation, centred by prompt: what shifts all continuations of a prompt alike
changes no share.

Each line is printed as soon as it is known. A part that would begin after ``--seconds`` is left out, and said to be.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers

from backends import HFBackend
from backends.base import GenerateRequest, GenerateResponse, Sampling, ScoreRequest, ScoreResponse
from backends.embedded import smollm2_path
from backends.local.scoring import Known, prepare, score_batch
from backends.local.trie import Trie
from backends.transformers.backend import CUDA_BATCH, PACK_TOKENS
from backends.transformers.memory import PassSize, most_rows
from backends.transformers.scoring.attention import make_tree_pass
from backends.transformers.scoring.reader import LogitReader
from backends.transformers.scoring.rows import TIMES, RowRoute
from backends.transformers.source import ModelSource
from backends.transformers.text import HFTextEncoder
from suites import DebiasingPositions, GenderPair, OccuGender
from tests.backends.vllm.answers import ask_vllm

SIZES: dict[str, dict[str, int]] = {
    "small": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 4, "vocab_size": 49_152},
    "8b": {"hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32, "num_attention_heads": 32,
           "num_key_value_heads": 8, "vocab_size": 128_256},
}  # fmt: skip
START_WORDS = 350
SHAPE = {"cpu": (4, 128), "cuda": (16, 512)}  # rows and tokens of a bare pass
PARTS = ("planning", "scoring", "rows", "harness", "float32", "texts", "vllm")


def tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


class Clock:
    """Wall-clock time of work on a device."""

    def __init__(self, device: str, seconds: float) -> None:
        self._cuda, self._until = device.startswith("cuda"), time.perf_counter() + seconds

    def wait(self) -> None:
        """Until the device has done all it was asked."""
        if self._cuda:
            torch.cuda.synchronize()

    def time(self, work: Callable[[], Any]) -> tuple[float, Any]:
        """The seconds that work took, and what it returned."""
        self.wait()
        start = time.perf_counter()
        found = work()
        self.wait()
        return time.perf_counter() - start, found

    def has_time(self, part: str) -> bool:
        if time.perf_counter() < self._until:
            return True
        tell(f"{part}: left out, the time is up")
        return False


# -- workloads -----------------------------------------------------------------------------------


def explicit(count: int) -> list[ScoreRequest]:
    """Explicit prompts of OccuGender, each with 26 continuations."""
    return _scored(OccuGender(bias=("explicit",)).items(), count)


def dialogue(count: int) -> list[ScoreRequest]:
    """The explicit task after a dialogue, under seven conditions."""
    items = DebiasingPositions(positions=["with_dialogue"]).items()
    return _scored((i for i in items if i.factors["bias"] == "explicit" and not i.factors["placebo"]), count)


def long_start(count: int) -> list[ScoreRequest]:
    """Explicit prompts behind a start of 350 words that all share."""
    words = " ".join(str(request.prompt) for request in explicit(100)).split()
    return _behind(" ".join(words[:START_WORDS]), count)


def few_shot(count: int) -> list[ScoreRequest]:
    """Explicit prompts behind eight worked examples that all share."""
    return _behind("\n\n".join(f"{one.prompt}{one.continuations[0]}" for one in explicit(1000)[-8:]), count)


def _behind(start: str, count: int) -> list[ScoreRequest]:
    return [ScoreRequest(f"{start}\n\n{request.prompt}", request.continuations) for request in explicit(count)]


SCORED: dict[str, Callable[[int], list[ScoreRequest]]] = {
    "explicit": explicit,
    "dialogue": dialogue,
    "long start": long_start,
    "few-shot": few_shot,
}


def texts(count: int, tokens: int) -> list[GenerateRequest]:
    """GenderPair's prompts, sampled."""
    prompts = [i.request.prompt for i in islice(GenderPair().items(), count) if isinstance(i.request, GenerateRequest)]
    sampling = Sampling(temperature=0.8, top_p=0.95, max_tokens=tokens)
    return [GenerateRequest(prompt, sampling, seed=at) for at, prompt in enumerate(prompts)]


def _scored(items: Iterator[Any], count: int) -> list[ScoreRequest]:
    """The first requests of items in an order that mixes them."""
    found = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    order = np.random.default_rng(0).permutation(len(found))[:count]
    return [found[at] for at in order]


# -- the model -----------------------------------------------------------------------------------


class InMemory(HFBackend):
    """`HFBackend` over a model that was made here."""

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        super().__init__("made-here", **options)
        if self.device.startswith("cuda"):
            self.batch_size = CUDA_BATCH
        source = {"tokenizer": lambda: tokenizer, "load": lambda *_: model, "forget": lambda: None, "path": Path()}
        self.source: Any = SimpleNamespace(**source)


def make_model(options: argparse.Namespace) -> Any:
    """A model with random weights on its device. The head is scaled as large models' are: logits of some units."""
    if options.config:
        config = transformers.AutoConfig.from_pretrained(options.config)
    else:
        config = transformers.LlamaConfig(**SIZES[options.size], max_position_embeddings=4096)
    torch.manual_seed(0)
    dtype = getattr(torch, options.dtype)
    torch.set_default_dtype(dtype)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    torch.set_default_dtype(torch.float32)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(options.head)
    return model


def matrix_rate(clock: Clock, device: str, dtype: torch.dtype) -> float:
    """Best rate of a square matrix product, flops a second."""
    size = 1024 if device == "cpu" else 8192
    a = torch.randn(size, size, device=device).to(dtype)
    return 2 * size**3 / min(clock.time(lambda: a @ a)[0] for _ in range(5))


def prefill_rate(clock: Clock, model: Any, device: str) -> float:
    """Tokens a second of bare passes."""
    rows, length = SHAPE[device.partition(":")[0]]
    ids = torch.randint(0, 1000, (rows, length), device=device)

    def read() -> None:
        with torch.inference_mode():
            model.base_model(ids, use_cache=False)

    return rows * length / min(clock.time(read)[0] for _ in range(4))


# -- parts ---------------------------------------------------------------------------------------


class NoTime:
    """A scorer whose model takes no time: each log-probability is -1."""

    route, context = "none", 8192

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def passes(self, trie: Trie) -> Iterator[Known]:
        start = 0
        while start < len(trie):
            pack = trie.pack(start, nodes=8192, rows=8192)
            make_tree_pass(trie, pack, trie.ancestors(start), {})
            start = pack.stop
            yield Known(np.arange(pack.first_ask, pack.last_ask), np.full(pack.last_ask - pack.first_ask, -1.0))


def planning(encoder: HFTextEncoder, count: int) -> None:
    """Everything but the model, masks included, on one core."""
    scorer: Any = NoTime(len(encoder.vocabulary.pieces))
    for name, make in SCORED.items():
        requests = make(count)
        best, planned = float("inf"), float("inf")
        for _ in range(3):
            start = time.process_time()
            batch = prepare(requests, encoder, scorer)
            planned = min(planned, time.process_time() - start)
            score_batch(batch, scorer)
            best = min(best, time.process_time() - start)
        tell(
            f"{name}: a model that takes no time {len(requests) / best:,.0f} prompts a second of one core's time; "
            f"{1000 * planned / len(requests):.3f} ms a prompt planning, {1000 * best / len(requests):.3f} in all"
        )


def scoring(backend: InMemory, clock: Clock, options: argparse.Namespace, bare: float, rate: float) -> dict[str, float]:
    """This engine. Returns ms a prompt of each workload."""
    loaded = backend.load()
    head = loaded.model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in loaded.model.parameters()) - head - loaded.model.get_input_embeddings().weight.numel()
    took = {}
    for name, make in SCORED.items():
        if not clock.has_time(name):
            continue
        requests = make(options.prompts)
        backend.run_blocking(requests[:8])
        trie = prepare(requests, loaded.encoder, loaded.scorer).trie
        answers: list[Any] = []

        def work(requests: Any = requests, answers: Any = answers) -> None:
            answers.clear()
            for at in range(0, len(requests), backend.batch_size):
                answers += backend.run_blocking(requests[at : at + backend.batch_size])

        before = loaded.scorer.tokens_computed  # type: ignore[attr-defined]
        seconds = min(clock.time(work)[0] for _ in range(options.rounds))
        read = (loaded.scorer.tokens_computed - before) // options.rounds  # type: ignore[attr-defined]
        assert all(isinstance(answer, ScoreResponse) for answer in answers), answers
        took[name] = 1000 * seconds / len(requests)
        flops = 2 * (body * len(trie) + head * len(np.unique(trie.ask_nodes)))
        tell(
            f"{name}: this engine ({loaded.scorer.route}) {took[name]:.2f} ms a prompt, {len(requests)} prompts, "
            f"{len(trie):,} distinct tokens ({read:,} read); {len(trie) / bare / seconds:.0%} of bare prefill, "
            f"{flops / seconds / rate:.0%} of the card"
        )
    return took


def by_rows(backend: InMemory, clock: Clock, options: argparse.Namespace) -> None:
    """The route of models that do not take the tree, on a sample."""
    loaded = backend.load()
    batch = prepare(explicit(options.sample), loaded.encoder, loaded.scorer)
    reader = LogitReader(loaded.model, loaded.encoder.vocabulary.beginning_with)
    kind = reader.device.type
    size = PassSize(PACK_TOKENS[kind] * TIMES[kind], most_rows(reader.vocabulary, options.device), options.device)
    seconds, _ = clock.time(lambda: [*RowRoute(reader, size).passes(batch.trie)])
    read = reader.tokens_computed / seconds
    ms = 1000 * seconds / options.sample
    tell(f"explicit: rows {ms:.1f} ms a prompt, {read:,.0f} tokens a second without padding")


def harness(model: Any, tokenizer: Any, clock: Clock, options: argparse.Namespace, took: dict[str, float]) -> None:
    """lm-evaluation-harness on a sample."""
    if importlib.util.find_spec("lm_eval") is None:
        tell("lm-evaluation-harness: not installed (pip install lm-eval)")
        return
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    for name, make in SCORED.items():
        count = options.sample if name == "explicit" else max(1, options.sample // 5)  # of longer prompts
        pairs = [(str(r.prompt), c) for r in make(count) for c in r.continuations]
        asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        for size in options.harness_batches if name == "explicit" else options.harness_batches[-1:]:
            if not clock.has_time(f"{name}: lm-evaluation-harness"):
                return
            lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=size, device=options.device)
            seconds, _ = clock.time(lambda: lm.loglikelihood(asked, disable_tqdm=True))  # noqa: B023
            ms = 1000 * seconds / count
            ratio = f", {ms / took[name]:.1f} times this engine's" if name in took else ""
            tell(f"{name}: lm-evaluation-harness, batch {size}: {ms:.1f} ms a prompt{ratio}")


def one_by_one(model: Any, encoder: HFTextEncoder, requests: Sequence[ScoreRequest]) -> list[list[float]]:
    """Sums over each continuation, each text a pass of its own."""
    found = []
    for request in requests:
        prompt = len(encoder.encode([encoder.text(request.prompt)])[0])
        sums = []
        for ids in encoder.encode([str(request.prompt) + c for c in request.continuations]):
            with torch.inference_mode():
                given = torch.tensor([ids], device=model.device)
                table = model(given, use_cache=False).logits[0, prompt - 1 : -1].float().log_softmax(-1)
                sums.append(float(table.gather(1, given[0, prompt:, None]).sum()))
        found.append(sums)
    return found


def to_float32(backend: InMemory, plain: Any, options: argparse.Namespace) -> None:
    """How far this engine, rows of it and one pass a text are from float32."""
    loaded = backend.load()
    requests = explicit(options.prompts)[:10]
    answers = backend.run_blocking(requests)
    encoder: Any = loaded.encoder
    ways = {
        "this engine": [[s.logprob for s in a.scores] for a in answers if isinstance(a, ScoreResponse)],
        "one by one": one_by_one(loaded.model, encoder, requests),
    }
    exact = np.array(one_by_one(copy.deepcopy(plain).float(), encoder, requests))
    for name, values in ways.items():
        apart = np.array(values) - exact
        apart = np.abs(apart - apart.mean(1, keepdims=True))
        tell(
            f"explicit: {name} in {options.dtype} from float32: mean {apart.mean():.3g}, largest {apart.max():.3g} nats"
        )


def written(backend: InMemory, clock: Clock, options: argparse.Namespace) -> None:
    """Texts by this engine, and by transformers' own two ways."""
    loaded, model = backend.load(), backend.load().model
    requests = texts(options.texts, options.text_tokens)
    prompts = [loaded.encoder.render(request.prompt) for request in requests]
    model.generation_config.eos_token_id = None  # texts of equal length
    config = transformers.GenerationConfig(
        do_sample=True, temperature=0.8, top_p=0.95, top_k=0, max_new_tokens=options.text_tokens, pad_token_id=0
    )  # fmt: skip

    small_cache = transformers.ContinuousBatchingConfig(max_memory_percent=0.05)

    def generate() -> int:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=options.device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=options.device)
        return int(model.generate(ids, attention_mask=mask, generation_config=config)[:, longest:].numel())

    def generate_batch() -> int:
        # On a CPU it would take nine tenths of the free memory for its cache.
        memory: dict[str, Any] = (
            {} if options.device.startswith("cuda") else {"continuous_batching_config": small_cache}
        )
        found = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False, **memory)
        return sum(len(one.generated_tokens) for one in found.values())

    def ours() -> int:
        found = backend.run_blocking(requests)
        assert all(isinstance(answer, GenerateResponse) for answer in found), found
        return sum(answer.completion_tokens for answer in found if isinstance(answer, GenerateResponse))

    for name, way in (("this engine", ours), ("generate", generate), ("generate_batch", generate_batch)):
        if not clock.has_time(f"texts: {name}"):
            continue
        try:
            way()  # kernels are compiled, caches made
            seconds, count = clock.time(way)
            tell(f"texts: {name} {count / seconds:,.0f} tokens a second, {len(prompts)} x {options.text_tokens}")
        except Exception as error:  # a peer that cannot run here is no failure of the others
            tell(f"texts: {name} failed: {type(error).__name__}: {str(error)[:200]}")


def by_vllm(model: Any, tokenizer: Any, options: argparse.Namespace, took: dict[str, float]) -> None:
    """`VLLMBackend` in vLLM's own environment."""
    if options.vllm_python is None:
        tell("vLLM: left out (--vllm-python names the Python of its environment)")
        return
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        requests = explicit(options.sample)
        run = ask_vllm(options.vllm_python, Path(folder), [requests[:8], requests], dtype=options.dtype)
    ms = 1000 * run.seconds[1] / options.sample
    tell(f"explicit: vLLM {ms:.1f} ms a prompt, {ms / took.get('explicit', float('nan')):.1f} times this engine's")


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, default="8b")
    parser.add_argument("--config", help="a folder or hub id whose config.json is used instead")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--tokenizer", help="a folder with a tokenizer.json; default: SmolLM2's, of its package")
    parser.add_argument("--head", type=float, default=4.0, help="what the output head's weights are multiplied with")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=100, help="prompts that the peers are asked about")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--texts", type=int, default=96)
    parser.add_argument("--text-tokens", type=int, default=48)
    parser.add_argument("--harness-batches", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=200.0, help="no part begins later than this")
    parser.add_argument("--vllm-python", help="beside vLLM: the Python of its environment")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """All parts, the quick ones first."""
    options = options_of(arguments)
    gc.set_threshold(50_000, 20, 100)  # as the command line does
    clock = Clock(options.device, options.seconds)
    if options.tokenizer:
        tokenizer = transformers.AutoTokenizer.from_pretrained(options.tokenizer)
    else:
        tokenizer = ModelSource(str(smollm2_path()), None, None, False).tokenizer()
    if "planning" in options.parts:
        planning(HFTextEncoder(tokenizer), options.prompts)
    model = make_model(options)
    rate = matrix_rate(clock, options.device, getattr(torch, options.dtype))
    bare = prefill_rate(clock, model, options.device)
    weights = model.num_parameters()
    tell(
        f"{model.config.model_type}, {weights:,} weights, {options.dtype}, {options.device}: best matrix product "
        f"{rate / 1e12:.2f} Tflop/s; bare prefill {bare:,.0f} tokens a second, {2 * weights * bare / rate:.0%} of it"
    )
    plain = copy.deepcopy(model) if options.device == "cpu" else model  # the engine changes layers on a CPU
    backend = InMemory(model, tokenizer, device=options.device, dtype=options.dtype)
    seconds, loaded = clock.time(backend.load)
    tell(f"scorer made in {seconds:.1f} s: {loaded.route}")
    took = scoring(backend, clock, options, bare, rate) if "scoring" in options.parts else {}
    if "rows" in options.parts and clock.has_time("rows"):
        by_rows(backend, clock, options)
    if "harness" in options.parts and clock.has_time("lm-evaluation-harness"):
        harness(plain, tokenizer, clock, options, took)
    if "float32" in options.parts and clock.has_time("distance to float32"):
        to_float32(backend, plain, options)
    if "texts" in options.parts and clock.has_time("texts"):
        written(backend, clock, options)
    if "vllm" in options.parts and clock.has_time("vLLM"):
        by_vllm(model, tokenizer, options, took)


if __name__ == "__main__":
    main()
