"""Counted draws against known probabilities: ``python -m tests.backends.openai.counted [--model FILE] [--cells N]``.

A real server answers OccuGender's implicit prompts both ways: by lists of next tokens, which are the truth here, and by
drawn answers that are counted. A cell is a short word after a prompt whose true probability lies between 0.02 and 0.98
(few of the suite's own expressions are that likely).
Printed: the share of cells whose 95 % interval holds the truth, and its width over that of a plain binomial interval
made with the true probability.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import math
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from backends.base import ScoreRequest
from backends.openai import OpenAIBackend
from backends.openai.scoring.routes import Routes
from suites import OccuGender
from tests.backends.openai.direct_routes import direct_routes
from tests.servers import RunningServer, gemma3_gguf, smollm2_gguf, xllamacpp_server

#: Short words, as a draw must be long enough for the longest: whole ones, which nothing but another word follows.
_WORDS = "I It The He She A They We My In One That When This His Her What Can"
CONTINUATIONS = tuple(f" {word}" for word in _WORDS.split())
_BETWEEN = (0.02, 0.98)
#: Enough of a list for all that lies between, since at most 50 tokens have 0.02 or more, and quick to read.
_LISTED = 200
_AT_ONCE = 4
_MODELS = {"smollm2": smollm2_gguf, "gemma3": gemma3_gguf}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2", help=f"{', '.join(_MODELS)}, or a .gguf file")
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10.0, help="the most that are asked for")
    parser.add_argument("--results", type=Path, help="a file of JSON lines to append to")
    options = parser.parse_args()
    weights = _MODELS[options.model]() if options.model in _MODELS else Path(options.model)
    with xllamacpp_server(weights, slots=8, n_ctx=4096) as server:
        cells = asyncio.run(_cells(server, options.cells, options.samples, options.minutes))
    if options.results:
        with options.results.open("a") as file:
            file.writelines(json.dumps({"model": options.model, **cell}) + "\n" for cell in cells)
    held = sum(cell["low"] <= cell["truth"] <= cell["high"] for cell in cells) / len(cells)
    width = sum(cell["high"] - cell["low"] for cell in cells)
    plain = sum(2 * 1.959964 * math.sqrt(cell["truth"] * (1 - cell["truth"]) / options.samples) for cell in cells)
    print(f"{Path(options.model).stem}: {len(cells):,} cells of {options.samples} draws")
    print(f"{held:.1%} of the 95 % intervals hold the truth; width {width / plain:.3f} of the plain binomial's")


async def _cells(server: RunningServer, wanted: int, samples: int, minutes: float) -> list[dict[str, Any]]:
    prompts = list(dict.fromkeys(item.request.prompt for item in OccuGender(("implicit",)).items()))  # type: ignore[union-attr]
    random.Random(0).shuffle(prompts)
    with tempfile.TemporaryDirectory() as folder:
        backend = OpenAIBackend(server.base_url, model=server.model, api_key_env=None, probe_folder=Path(folder))
        lists = dataclasses.replace((await backend.probe()).capabilities, largest_k=_LISTED)
        await backend.close()
    drawn = dataclasses.replace(lists, text_route="sampled")
    cells: list[dict[str, Any]] = []
    start = time.monotonic()
    async with (
        direct_routes(server.base_url, server.model, lists) as known,
        direct_routes(server.base_url, server.model, drawn, samples) as counted,
    ):
        for at in range(0, len(prompts), _AT_ONCE):
            asked = prompts[at : at + _AT_ONCE]
            for found in await asyncio.gather(*(_of_prompt(prompt, known, counted) for prompt in asked)):
                cells += found
            print(f"{len(cells)} cells, {time.monotonic() - start:.0f} s", end="\r", flush=True)
            if len(cells) >= wanted or time.monotonic() - start > 60 * minutes:
                break
    return cells[:wanted]


async def _of_prompt(prompt: str, known: Routes, counted: Routes) -> list[dict[str, Any]]:
    truths = (await known.score(ScoreRequest(prompt, CONTINUATIONS))).scores
    shares = [0.0 if truth.logprob is None else math.exp(truth.logprob) for truth in truths]
    between = {word: p for word, p in zip(CONTINUATIONS, shares, strict=True) if _BETWEEN[0] <= p <= _BETWEEN[1]}
    if not between:
        return []
    found = (await counted.score(ScoreRequest(prompt, tuple(between)))).scores
    return [
        {
            "prompt": prompt,
            "continuation": word,
            "truth": truth,
            "low": 0.0 if one.low is None else math.exp(one.low),
            "high": math.exp(one.high),
        }
        for (word, truth), one in zip(between.items(), found, strict=True)
    ]


if __name__ == "__main__":
    main()
