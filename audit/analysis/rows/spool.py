"""Bytes and arrays that are put aside: in memory while they are few, in a temporary file once they are many."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from typing import Any, NamedTuple, TypeVar

import numpy as np

from backends.errors import ConfigError

#: A run has one spool for each model and suite, so that many of them may be in use.
_MOST_IN_MEMORY = 4 * 2**20

#: Arrays of fewer bytes stay in memory.
_LEAST_MAPPED = 2**20
#: Bytes of a file for several arrays, and what each of them begins at a multiple of.
_FILE, _ALIGNED = 2**26, 64

Array = TypeVar("Array", bound="np.ndarray[Any, Any]")


class Slot(NamedTuple):
    """Where bytes lie in a spool."""

    start: int
    length: int


class Spool:
    """Bytes by the slot that they were given. The file has no name, and goes with the spool or the process."""

    def __init__(self, most_in_memory: int = _MOST_IN_MEMORY) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=most_in_memory)  # noqa: SIM115  closed by the finalizer
        self._end = 0
        self._lock = threading.Lock()  # answers are recorded by several threads
        weakref.finalize(self, self._file.close)

    def add(self, data: bytes) -> Slot:
        """Put bytes aside.

        Raises
        ------
        ConfigError
            If the folder for temporary files has no room.
        """
        with self._lock:
            slot = Slot(self._end, len(data))
            try:
                self._file.seek(self._end)
                self._file.write(data)
            except OSError as error:
                raise _without_room(error) from None
            self._end += len(data)
        return slot

    def get(self, slot: Slot) -> bytes:
        """The bytes of a slot."""
        with self._lock:
            self._file.seek(slot.start)
            data = self._file.read(slot.length)
        if len(data) != slot.length:  # never a shorter row in place of the one that was written
            raise OSError(f"{slot.length - len(data)} bytes of a temporary file are gone")
        return data


class Room:
    """Room in temporary files without a name, each for several arrays: a process may open a thousand files or so.

    A file goes once none of its arrays is left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: memoryview = memoryview(bytearray())

    def take(self, data: memoryview) -> memoryview:
        """The bytes in a file."""
        with self._lock:
            if len(self._free) < len(data):
                self._free = _new_file(max(len(data), _FILE))
            taken, free = self._free[: len(data)], self._free[-(-len(data) // _ALIGNED) * _ALIGNED :]
            self._free = free
        taken[:] = data
        return taken


def _new_file(size: int) -> memoryview:
    """A mapped file whose room is there: one that is only found full when it is written to would kill the process."""
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:  # macOS
            file.write(bytes(size))
            file.flush()
        return memoryview(mmap.mmap(file.fileno(), size))


_room = Room()


def mapped(array: Array, room: Room | None = None) -> Array:
    """The array in a temporary file, which the system reads and writes as it has memory; itself if it is small.

    ``room``: what is put there together goes together; by default with arrays that stay.

    Raises
    ------
    ConfigError
        As `Spool.add`.
    """
    if array.nbytes < _LEAST_MAPPED:
        return array
    try:
        view = (room or _room).take(np.ascontiguousarray(array).data.cast("B"))
    except OSError as error:
        raise _without_room(error) from None
    return np.frombuffer(view, array.dtype).reshape(array.shape)  # type: ignore[return-value]


def _without_room(error: OSError) -> ConfigError:
    problem = f"the run's rows cannot be put aside there: {error.strerror}"
    hint = "Set TMPDIR to a folder with room, about 1 KB a prompt and model"
    return ConfigError("TMPDIR", tempfile.gettempdir(), problem, hint)
