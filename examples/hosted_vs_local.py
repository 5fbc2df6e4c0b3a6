"""Is a hosted model the one you think it is? The same weights, behind a server and in process.

    audit run examples/hosted_vs_local.py

Starts llama.cpp's own server (package `xllamacpp`) on loopback with the embedded SmolLM2, and asks the server and
the same file in process the same questions. Only the route differs, not the model. For a server that is already
running, give its URL to OpenAIBackend instead.
"""

import os
import subprocess
import sys
import time

import httpx

from audit import Audit
from backends import LlamaCppBackend, OpenAIBackend
from backends.embedded import smollm2_path
from suites import OccuGender

PORT = 8917  # fixed: the answers of a server are stored under its address
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.n_parallel, params.n_ctx, params.ui = 1, 2048, False
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)
sys.stdin.read()  # until the audit's process ends
"""


def serve(model: str) -> str:
    """Start a server in a process of its own, wait until it answers, and return its address."""
    command = [sys.executable, "-c", SERVER, model, str(PORT)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"OMP_WAIT_POLICY": "passive"}, **quiet)
    for _ in range(150):
        try:
            if httpx.get(f"http://127.0.0.1:{PORT}/health", timeout=1).status_code == 200:
                return f"http://127.0.0.1:{PORT}"
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"The server did not start. Is xllamacpp installed (pip install xllamacpp) and port {PORT} free?")


model = smollm2_path()
audit = Audit(
    title="The same weights, hosted and local",
    models={
        # One thread each: the server and the model in process share the cores.
        "in process": LlamaCppBackend(model, threads=1),
        "hosted": OpenAIBackend(f"{serve(str(model))}/v1", model="smollm2"),
    },
    suites=[OccuGender()],
    same_weights=[("in process", "hosted")],
    limit=100,
    db="audit-out/hosted.db",
    out="audit-out/hosted",
)
