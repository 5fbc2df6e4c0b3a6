"""Trials: a server with faults, an audit that may be killed, and a checker that compares both sides."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from audit.store import Store, Stored, keyed
from backends.base import GenerateResponse
from backends.errors import ConfigError
from tests.audit.store.entries import answers_by_key
from tests.faults.child import FINGERPRINT, Spec, live
from tests.faults.faults import Fate

_ROOT = Path(__file__).parents[2]
processes = multiprocessing.get_context("forkserver")
#: What each process of an audit would import anew.
PRELOADED = ["tests.faults.child", "httpcore", "anyio._backends._asyncio", "certifi"]
processes.set_forkserver_preload(PRELOADED)


@dataclass
class Verdict:
    """What the two sides say. All counts are requests, but for the lost.

    lost        answers acknowledged by the audit as stored, and not in the store
    wrong       stored, and not the truth
    paid_twice  right answers delivered by the server beyond the first
    unresolved  neither an answer nor a failure in the store
    """

    lost: int = 0
    wrong: int = 0
    paid_twice: int = 0
    unresolved: int = 0
    failed: int = 0
    answered: int = 0

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class Lab:
    """A fault server in a process of its own, and a folder for the audits' stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Trials run in several threads; of a process's end, too, only one thread may take notice at a time.
        self._lock = threading.RLock()
        self._record = folder / "record.tsv"
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.server", str(self._record)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout is not None
        self.port = int(self._server.stdout.readline())

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.kill()
        self._server.wait()

    def spec(self, fault: str, trial: str, requests: int = 40, **options: object) -> Spec:
        """An audit of ``requests`` questions that share a fault, with a store of its own."""
        folder = self.folder / f"{fault}-{trial}".replace(":", "_")
        folder.mkdir(exist_ok=True)
        prompts = tuple(Fate(fault, trial, i).prompt for i in range(requests))
        return replace(Spec(self.port, folder / "audit.db", folder / "acks.tsv", prompts), **options)  # type: ignore[arg-type]

    def start(self, spec: Spec) -> BaseProcess:
        """Start an audit."""
        process = processes.Process(target=live, args=(spec,))
        with self._lock:
            process.start()
        return process

    def run(self, spec: Spec, timeout: float = 60.0) -> int:
        """Run an audit to its end; returns its exit code (-9: killed)."""
        return self.wait(self.start(spec), timeout)

    def wait(self, process: BaseProcess, timeout: float = 60.0) -> int:
        """The exit code. An audit that does not end is a failed trial."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with self._lock:
                code = process.exitcode
            if code is not None:
                return code
            time.sleep(0.005)
        process.kill()
        raise AssertionError(f"the audit did not end within {timeout:g} s")

    @staticmethod
    def signal(process: BaseProcess, number: signal.Signals) -> None:
        """Send a signal to an audit."""
        assert process.pid is not None
        os.kill(process.pid, number)

    def paid_twice(self, prompts: Sequence[str]) -> int:
        """How many right answers the server sent, the first to each prompt not counted."""
        delivered = Counter(prompt for prompt, what in self._record_lines() if what == "answered")
        return sum(max(0, delivered[p] - 1) for p in prompts)

    def asked(self, prompts: Sequence[str]) -> int:
        """How many requests the server saw for these prompts."""
        asked = Counter(prompt for prompt, _ in self._record_lines())
        return sum(asked[p] for p in prompts)

    def _record_lines(self) -> list[list[str]]:
        return [line.split("\t") for line in self._record.read_text().splitlines()]

    @staticmethod
    def lost(spec: Spec, keys: Iterable[str]) -> int:
        """How many of these keys have no answer in the store."""
        keys = set(keys)
        try:
            with Store.open(spec.db, read_only=True) as store:
                return len(keys - set(answers_by_key(store, keys)))
        except ConfigError:
            return len(keys)  # killed before the store was made

    def check(self, spec: Spec) -> Verdict:
        """Compare the server's record, the acknowledgements and the store."""
        asked = [keyed(request, FINGERPRINT) for request in spec.requests]
        with Store.open(spec.db, read_only=True) as store:
            found = store.answers.read(asked)
            failed = {key.key for key in asked if (store.answers.inspect(key.key) or {}).get("failures")}
        verdict = Verdict()
        for prompt, key, stored in zip(spec.prompts, asked, found, strict=True):
            if isinstance(stored, Stored):
                assert isinstance(stored.answer, GenerateResponse)
                verdict.answered += 1
                verdict.wrong += stored.answer.text != Fate.of(prompt).truth
            elif key.key in failed:
                verdict.failed += 1
            else:
                verdict.unresolved += 1
        kept = {key.key for key, stored in zip(asked, found, strict=True) if isinstance(stored, Stored)}
        verdict.lost = len(acknowledged(spec) - kept)
        verdict.paid_twice = self.paid_twice(spec.prompts)
        return verdict


def acknowledged(spec: Spec) -> set[str]:
    """Keys whose answers were acknowledged as stored."""
    if not spec.acks.exists():
        return set()
    lines = (line.split("\t") for line in spec.acks.read_text().splitlines())
    return {key for key, answer in lines if not answer.endswith("Error")}
