"""Who has a store open: one open store of one process, by a name that tells whether it still lives."""

from __future__ import annotations

import os
import uuid

import psutil

_START_TOLERANCE = 2.0  # seconds by which two readings of one process's start may differ


def new_owner() -> str:
    """A name for a store that this process has just opened."""
    return f"{_process_namespace()}:{os.getpid()}:{_start_since_boot(os.getpid())}:{uuid.uuid4().hex[:8]}"


def is_gone(owner: str) -> bool:
    """Whether the owner's process has surely ended: it could be seen from here, and is not there."""
    namespace, pid, start, *rest = owner.split(":")
    if len(rest) != 1 or namespace != _process_namespace():  # an earlier version, or another container
        return False
    found = _start_since_boot(int(pid))
    return found is None or abs(found - float(start)) > _START_TOLERANCE


def _process_namespace() -> str:
    """The process ids of two containers on one machine are unrelated; empty where there are none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _start_since_boot(pid: int) -> float | None:
    """Seconds from the machine's start to a process's, whatever the wall clock is set to. None if there is none."""
    try:
        return float(psutil.Process(pid).create_time() - psutil.boot_time())
    except psutil.Error:
        return None
