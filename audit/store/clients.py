"""Clients: each is one open store in one process, with a name that reveals whether the process is still alive."""

from __future__ import annotations

import functools
import os
import uuid
from pathlib import Path

import psutil

_START_TOLERANCE = 2.0  # seconds by which two readings of a process's start time may differ


def new_client() -> str:
    """A name for a store that this process has just opened."""
    started = _start_since_boot(os.getpid())
    return f"{_boot()}/{_process_namespace()}:{os.getpid()}:{started}:{uuid.uuid4().hex[:8]}"


def is_gone(client: str) -> bool:
    """Whether the client's process has certainly ended: it would be visible from here, and is not."""
    namespace, pid, start, *rest = client.split(":")
    boot, _, namespace = namespace.rpartition("/")
    if len(rest) != 1 or boot != _boot() or namespace != _process_namespace():
        return False
    found = _start_since_boot(int(pid))
    return found is None or abs(found - float(start)) > _START_TOLERANCE


@functools.cache
def _boot() -> str:
    """An id of this machine's last start; empty if the system has none.

    Namespaces of processes have the same name on all machines, so that a process of another one would seem gone.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_namespace() -> str:
    """The namespace of process ids, which differs between containers; empty if the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _start_since_boot(pid: int) -> float | None:
    """Seconds from boot to the start of a process, independent of the wall clock. None if it has ended."""
    try:
        boot = psutil.boot_time()  # first: psutil 6 adds the one read last, perhaps before the clock was set
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:  # ended, and its parent has not asked how: in a container, never
            return None
        return float(process.create_time() - boot)
    except psutil.Error:
        return None
