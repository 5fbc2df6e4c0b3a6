"""Bytes and arrays that are put aside: in memory while they are few, in a temporary file once they are many."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import threading
import weakref
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np

from backends.errors import ConfigError

#: A run has one spool for each model and suite, so that many of them may be in use.
_MOST_IN_MEMORY = 4 * 2**20

#: Arrays of fewer elements stay in memory.
_LEAST_MAPPED = 2**17
#: Bytes of a file for several arrays, and what each of them begins at a multiple of.
_FILE, _ALIGNED = 2**26, 64
#: The same where arrays are needed for a while: a small file goes soon.
_BRIEF_FILE = 2**22
#: Rows of an array that are copied at a time.
_AT_ONCE = 2**16

Array = TypeVar("Array", bound="np.ndarray[Any, Any]")


class Slot(NamedTuple):
    """Where bytes lie in a spool."""

    start: int
    length: int


class Spool:
    """Bytes by the slot that they were given. The file has no name, and goes with the spool or the process."""

    def __init__(self, most_in_memory: int = _MOST_IN_MEMORY) -> None:
        self._most_in_memory, self._memory = most_in_memory, bytearray()
        self._file: IO[bytes] | None = None
        self._end = 0
        self._lock = threading.Lock()  # answers are recorded by several threads

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
                if self._file is None and self._end + len(data) > self._most_in_memory:
                    self._file = self._written_out()
                    self._memory = bytearray()
                if self._file is None:
                    self._memory += data
                else:
                    _write(self._file, data, self._end)
            except OSError as error:
                raise _without_room(error) from None
            self._end += len(data)
        return slot

    def get(self, slot: Slot) -> bytes:
        """The bytes of a slot."""
        with self._lock:
            if self._file is None:
                return bytes(self._memory[slot.start : slot.start + slot.length])
            self._file.seek(slot.start)
            data = b""
            while len(data) < slot.length and (piece := self._file.read(slot.length - len(data))):
                data += piece
        if len(data) != slot.length:  # never a shorter row in place of the one that was written
            raise OSError(f"{slot.length - len(data)} bytes of a temporary file are gone")
        return data

    def _written_out(self) -> IO[bytes]:
        """A file with what was in memory so far, which stays there if that fails."""
        # Without a buffer: what does not fit is to fail here, not when something else is read.
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed by the finalizer
        try:
            _write(file, self._memory, 0)
        except OSError:
            file.close()
            raise
        weakref.finalize(self, file.close)
        return file


def _write(file: IO[bytes], data: bytes | bytearray, start: int) -> None:
    file.seek(start)
    left = memoryview(data)
    while left:  # the system may take a part
        left = left[file.write(left) :]


class Room:
    """Room in temporary files without a name, each for several arrays: a process may open a thousand files or so.

    A file goes once none of its arrays is left. ``size``: its bytes, at least.
    """

    def __init__(self, size: int = _FILE) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._free: memoryview = memoryview(bytearray())

    def take(self, data: memoryview) -> memoryview:
        """The bytes in a file."""
        taken = self.empty(len(data))
        taken[:] = data
        return taken

    def empty(self, size: int) -> memoryview:
        """Room for so many bytes."""
        with self._lock:
            if len(self._free) < size:
                self._free = _new_file(max(size, self._size))
            taken, self._free = self._free[:size], self._free[-(-size // _ALIGNED) * _ALIGNED :]
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


_room, _brief = Room(), Room(_BRIEF_FILE)  # of arrays that stay, and of those that are used for a while


def mapped(array: Array, room: Room | None = None) -> Array:
    """The array in a temporary file, which the system reads and writes as it has memory; itself if it is small.

    ``room``: what is put there together goes together; by default with arrays that stay.

    Raises
    ------
    ConfigError
        As `Spool.add`.
    """
    if array.size < _LEAST_MAPPED:
        return array
    try:
        view = (room or _room).take(np.ascontiguousarray(array).data.cast("B"))
    except OSError as error:
        raise _without_room(error) from None
    return np.frombuffer(view, array.dtype).reshape(array.shape)  # type: ignore[return-value]


def scratch(shape: int | tuple[int, ...], dtype: Any, *, stays: bool = False) -> np.ndarray[Any, Any]:
    """An array to be filled, in a temporary file if it is large. Its values are arbitrary.

    ``stays``: with arrays that are needed for long; a file goes with the last array in it.

    Raises
    ------
    ConfigError
        As `Spool.add`.
    """
    size = math.prod(shape if isinstance(shape, tuple) else (shape,))
    if size < _LEAST_MAPPED:
        return np.empty(shape, dtype)
    try:
        view = (_room if stays else _brief).empty(size * np.dtype(dtype).itemsize)
    except OSError as error:
        raise _without_room(error) from None
    return np.frombuffer(view, dtype).reshape(shape)


def selected(array: Array, used: np.ndarray[Any, np.dtype[np.bool_]]) -> Array:
    """The rows of an array that are used: the array itself if all are, else as `scratch`."""
    number = int(used.sum())
    if number == len(array):
        return array
    found, end = scratch((number, *array.shape[1:]), array.dtype), 0
    for start in range(0, len(array), _AT_ONCE):
        some = array[start : start + _AT_ONCE][used[start : start + _AT_ONCE]]
        found[end : end + len(some)] = some
        end += len(some)
    return found  # type: ignore[return-value]


def _without_room(error: OSError) -> ConfigError:
    problem = f"the run's rows cannot be put aside there: {error.strerror}"
    hint = "Set TMPDIR to a folder with room, about 1 KB a prompt and model"
    return ConfigError("TMPDIR", tempfile.gettempdir(), problem, hint)
