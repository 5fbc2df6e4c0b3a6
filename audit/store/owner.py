"""Owners: each is one open store in one process, with a name that reveals whether the process is still alive."""

from __future__ import annotations

import os
import uuid

import psutil

_START_TOLERANCE = 2.0  # seconds by which two readings of a process's start time may differ


def new_owner() -> str:
    """A name for a store that this process has just opened."""
    return f"{_process_namespace()}:{os.getpid()}:{_start_since_boot(os.getpid())}:{uuid.uuid4().hex[:8]}"


def is_gone(owner: str) -> bool:
    """Whether the owner's process has certainly ended: it would be visible from here, and is not."""
    namespace, pid, start, *rest = owner.split(":")
    if len(rest) != 1 or namespace != _process_namespace():  # an earlier version, or another container
        return False
    found = _start_since_boot(int(pid))
    return found is None or abs(found - float(start)) > _START_TOLERANCE


def _process_namespace() -> str:
    """The namespace of process ids, which differs between containers; empty if the system has none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


def _start_since_boot(pid: int) -> float | None:
    """Seconds from boot to the start of a process, independent of the wall clock. None if there is no such process."""
    try:
        return float(psutil.Process(pid).create_time() - psutil.boot_time())
    except psutil.Error:
        return None
