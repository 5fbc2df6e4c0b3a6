"""Probes of real, honest servers: ``python -m tests.backends.openai.honest SERVER [--model FILE] [--probes 30]``.

Each probe is made afresh, at the servers' own defaults (flash attention, batching). A line of JSON is printed for each
and kept in ``--results FILE``; then how many of all in that file were refused. An honest server should be in none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from backends.openai import OpenAIBackend
from tests.servers import (
    RunningServer,
    gemma3_gguf,
    llama_cpp_python_server,
    smollm2_gguf,
    vllm_server,
    xllamacpp_server,
)

_MODELS: Mapping[str, Callable[[], Path]] = {"smollm2": smollm2_gguf, "gemma3": gemma3_gguf}
#: Seconds for one answer: on a busy machine a text with its lists takes long.
_TIMEOUT = 600.0
SERVERS = ("xllamacpp", "llama-cpp-python", "vllm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--model", default="smollm2", help=f"{', '.join(_MODELS)}, or a .gguf file")
    parser.add_argument("--probes", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=3600.0, help="no probe begins later")
    parser.add_argument("--results", type=Path, help="a file of JSON lines; probes in it count")
    options = parser.parse_args()
    name = f"{options.server}, {Path(options.model).stem}"
    lines = options.results.read_text().splitlines() if options.results and options.results.exists() else []
    found = [line for line in map(json.loads, lines) if line["server"] == name]
    if len(found) < options.probes:
        with _running(options.server, options.model) as server:
            end = time.monotonic() + options.seconds
            while len(found) < options.probes and time.monotonic() < end:
                found.append({"server": name, **asyncio.run(_probed(server))})
                print(json.dumps(found[-1]), flush=True)
                if options.results:
                    with options.results.open("a") as file:
                        file.write(json.dumps(found[-1]) + "\n")
    refused = [one for one in found if one["refused"]]
    print(f"{name}: refused in {len(refused)} of {len(found)} probes, of {_range(found, 'requests')} requests", end="")
    print(f" and {_range(found, 'seconds')} s")


@contextlib.contextmanager
def _running(server: str, model: str) -> Iterator[RunningServer]:
    if server == "vllm":
        # An environment of its own, made by `make test-vllm`.
        with vllm_server(os.environ["VLLM_PYTHON"], Path(os.environ["VLLM_MODEL"])) as running:
            yield running
        return
    weights = _MODELS[model]() if model in _MODELS else Path(model)
    start = xllamacpp_server(weights, slots=2) if server == "xllamacpp" else llama_cpp_python_server(weights)
    with start as running:
        yield running


async def _probed(server: RunningServer) -> dict[str, Any]:
    """One probe: its routes, what failed, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        backend = OpenAIBackend(
            server.base_url, model=server.model, api_key_env=None, probe_folder=Path(folder), timeout=_TIMEOUT
        )
        start = time.monotonic()
        try:
            report = await backend.probe()
        finally:
            await backend.close()
    return {
        "text": report.capabilities.text_route,
        "chat": report.capabilities.chat_route,
        "draws_with_lists": report.capabilities.draws_with_lists,
        "noise": report.capabilities.repeat_noise,
        "requests": report.requests,
        "seconds": round(time.monotonic() - start, 1),
        "refused": [said for said in report.statements if said.startswith("no score")],
        "failed": [f"{check.name}: {check.message}" for check in report.checks if check.passed is False],
        "draws": [check.message for check in report.checks if check.name.startswith("draws of")],
    }


def _range(found: list[dict[str, Any]], name: str) -> str:
    values = [one[name] for one in found] or [0]
    return f"{min(values):,.0f} to {max(values):,.0f}"


if __name__ == "__main__":
    main()
