"""Stopping: the first signal lets requests in flight finish, the second exits immediately.

No answer needs to be saved at the second signal: it counts only once it is on the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator

INTERRUPTED = 130  # exit code


class ShutdownRequest(asyncio.Event):
    """A request to stop, which can be made once and awaited.

    ``grace``: seconds that requests in flight are given to finish; ``reason``: who asked first.
    """

    def __init__(self, grace: float = 30.0) -> None:
        super().__init__()
        self.grace = grace
        self.reason: str | None = None

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self.is_set()

    def request(self, reason: str) -> None:
        """Request a stop. Call it on the event loop's thread."""
        self.reason = self.reason or reason
        self.set()


@contextlib.contextmanager
def stop_on_signals(stop: ShutdownRequest, resume_hint: str) -> Iterator[None]:
    """Within this block SIGINT, SIGTERM and SIGHUP request ``stop``; a second signal exits immediately with 130.

    A closing terminal may send SIGHUP twice, from the kernel and from the shell, so SIGHUP never counts as the second
    signal; under ``nohup`` it stays ignored.

    ``resume_hint`` is printed on stderr after the second signal and says how to resume later; after the first, the
    run's end says so. Use it in the main thread, inside a running loop.
    """
    loop = asyncio.get_running_loop()
    received = 0

    def handle(number: int, _frame: object) -> None:
        nonlocal received
        received += 1
        name = signal.Signals(number).name
        if received > 1:
            if name == "SIGHUP":
                return
            _write_to_stderr(f"\n{name} again: exiting. {resume_hint}\n")
            os._exit(INTERRUPTED)
        _write_to_stderr(f"\nStopping after what is being asked ({name}). Press Ctrl-C again to exit immediately.\n")
        loop.call_soon_threadsafe(stop.request, name)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_to_stderr(text: str) -> None:
    """Write with `os.write`: the signal may have interrupted a print in this thread. A closed terminal is ignored."""
    with contextlib.suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
