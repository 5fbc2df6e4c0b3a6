"""Bytes that are put aside: in memory while they are few, in a temporary file once they are many."""

from __future__ import annotations

import tempfile
import threading
import weakref
from typing import NamedTuple

from backends.errors import ConfigError

#: A run has one spool for each model and suite, so that many of them may be in use.
_MOST_IN_MEMORY = 4 * 2**20


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
                problem = f"the run's rows cannot be put aside there: {error.strerror}"
                hint = "Set TMPDIR to a folder with room, about 1 KB a prompt and model"
                raise ConfigError("TMPDIR", tempfile.gettempdir(), problem, hint) from None
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
