"""Counted draws against known probabilities: ``python -m tests.backends.openai.counted [--model FILE] [--cells N]``.

A real server answers OccuGender's implicit prompts both ways: by lists of next tokens, which are the truth here, and by
drawn answers that are counted. A cell is a short word after a prompt whose true probability lies between 0.02 and 0.98
(few of the suite's own expressions are that likely). Each prompt is drawn as often as the largest of ``--samples``
says; the smaller numbers are the first of these draws.

Printed for each number of draws, and for each interval that might be computed from them: the share of cells whose 95 %
interval holds the truth, and its width over that of two plain binomial intervals, p ± 1.96 SE: one with the SE of the
true probability, which nobody knows who has only the draws, and one with that of the drawn share.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import norm
from statsmodels.stats.proportion import proportion_confint

from backends.base import ScoreRequest
from backends.openai import OpenAIBackend
from backends.openai.capabilities import ServerCapabilities
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.sampled import score_by_sampling
from backends.reading.words import begins_with_words
from suites import OccuGender
from tests.backends.openai.direct_routes import direct_routes
from tests.servers import RunningServer, gemma3_gguf, smollm2_gguf, xllamacpp_server

#: Short words, as a draw must be long enough for the longest: whole ones, which nothing but another word follows.
_WORDS = "I It The He She A We My In One His Her Can You If And But No"
CONTINUATIONS = tuple(f" {word}" for word in _WORDS.split())
_BETWEEN = (0.02, 0.98)
#: Enough of a list for all that lies between, since at most 50 tokens have 0.02 or more, and quick to read.
_LISTED = 200
_AT_ONCE = 4
_MODELS = {"smollm2": smollm2_gguf, "gemma3": gemma3_gguf}
_Z = float(norm.ppf(0.975))
#: (count, draws) → an interval, by another's code.
OTHERS: Mapping[str, Callable[[int, int], tuple[float, float]]] = {
    name: lambda count, draws, method=method: proportion_confint(count, draws, method=method)  # type: ignore[misc]
    for name, method in (
        ("Jeffreys", "jeffreys"),
        ("Wilson", "wilson"),
        ("Agresti-Coull", "agresti_coull"),
        ("Clopper-Pearson", "beta"),
        ("p ± 1.96 SE", "normal"),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help=f"{', '.join(_MODELS)}, or a .gguf file")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--samples", type=int, nargs="+", default=[10, 20, 40])
    parser.add_argument("--minutes", type=float, default=30.0, help="the most that are asked for")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to append to")
    options = parser.parse_args()
    weights = _MODELS[options.model]() if options.model in _MODELS else Path(options.model)
    with xllamacpp_server(weights, slots=8, n_ctx=4096) as server:
        cells = asyncio.run(_cells(server, options.cells, sorted(options.samples), options.minutes))
    if options.results:
        with options.results.open("a") as file:
            file.writelines(json.dumps({"model": Path(options.model).stem, **cell}) + "\n" for cell in cells)
    print(f"\n{Path(options.model).stem}: {len(cells):,} cells")
    for samples in sorted(options.samples):
        print("\n".join(_table(cells, samples)))


async def _cells(server: RunningServer, wanted: int, samples: Sequence[int], minutes: float) -> list[dict[str, Any]]:
    prompts = list(dict.fromkeys(item.request.prompt for item in OccuGender(("implicit",)).items()))  # type: ignore[union-attr]
    random.Random(0).shuffle(prompts)
    with tempfile.TemporaryDirectory() as folder:
        backend = OpenAIBackend(server.base_url, model=server.model, api_key_env=None, probe_folder=Path(folder))
        lists = (await backend.probe()).capabilities.model_copy(update={"largest_k": _LISTED})
        await backend.close()
    cells: list[dict[str, Any]] = []
    left, start = iter(prompts), time.monotonic()

    def is_enough() -> bool:
        print(f"{len(cells)} cells, {time.monotonic() - start:.0f} s", end="\r", flush=True)
        return len(cells) >= wanted or time.monotonic() - start > 60 * minutes

    await asyncio.gather(*(_worker(server, lists, left, samples, cells, is_enough) for _ in range(_AT_ONCE)))
    return cells[:wanted]


async def _worker(
    server: RunningServer,
    lists: ServerCapabilities,
    prompts: Iterator[Any],
    samples: Sequence[int],
    cells: list[dict[str, Any]],
    is_enough: Callable[[], bool],
) -> None:
    """Ask one prompt after another until there are enough cells."""
    drawn = lists.model_copy(update={"text_route": "sampled"})
    async with contextlib.AsyncExitStack() as stack:
        known = await stack.enter_async_context(direct_routes(server.base_url, server.model, lists))
        counted = await stack.enter_async_context(direct_routes(server.base_url, server.model, drawn, max(samples)))
        for prompt in prompts:
            cells += await _of_prompt(prompt, known, counted, samples)
            if is_enough():
                return


async def _of_prompt(prompt: str, known: Routes, counted: Routes, samples: Sequence[int]) -> list[dict[str, Any]]:
    truths = (await known.score(ScoreRequest(prompt, CONTINUATIONS))).scores
    shares = [0.0 if truth.logprob is None else math.exp(truth.logprob) for truth in truths]
    between = {word: p for word, p in zip(CONTINUATIONS, shares, strict=True) if _BETWEEN[0] <= p <= _BETWEEN[1]}
    if not between:
        return []
    await counted.score(ScoreRequest(prompt, tuple(between)))
    texts = [answer.text for answer in counted.drawn if answer is not None]
    cells: list[dict[str, Any]] = [
        {"prompt": prompt, "continuation": word, "truth": p, "counts": {}, "own": {}} for word, p in between.items()
    ]
    for size in samples:
        answers = counted.drawn[:size]

        async def first(_: int, __: int, answers: Any = answers) -> Any:
            return answers

        for cell, one in zip(cells, await score_by_sampling(first, tuple(between), size), strict=True):
            cell["counts"][size] = sum(begins_with_words(text, cell["continuation"]) for text in texts[:size])
            cell["own"][size] = [0.0 if one.low is None else math.exp(one.low), math.exp(one.high)]
    return cells


def _table(cells: Sequence[Mapping[str, Any]], samples: int) -> Iterator[str]:
    """A line for the backend's own interval and for each other one."""
    truths = [cell["truth"] for cell in cells]
    counts = [cell["counts"][samples] for cell in cells]
    of_truth = sum(2 * _Z * math.sqrt(p * (1 - p) / samples) for p in truths)
    of_share = sum(2 * _Z * math.sqrt(k / samples * (1 - k / samples) / samples) for k in counts)
    intervals = {"backend": [cell["own"][samples] for cell in cells]}
    for name, interval in OTHERS.items():
        intervals[name] = [[max(0.0, low), min(1.0, high)] for low, high in (interval(k, samples) for k in counts)]
    for name, found in intervals.items():
        held = sum(low <= p <= high for p, (low, high) in zip(truths, found, strict=True)) / len(cells)
        width = sum(high - low for low, high in found)
        yield (
            f"{samples:4d} draws, {name:15s}: {held:.1%} hold the truth; width {width / of_truth:.3f} of p ± 1.96 SE "
            f"of the truth, {width / of_share:.3f} of that of the draws"
        )


if __name__ == "__main__":
    main()
