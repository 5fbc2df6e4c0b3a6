"""Progress on stderr: a bar for each model on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TimeRemainingColumn

from audit.collect.job_run import Progress as JobProgress

_LINE_SECONDS = 10.0  # between two lines; the first ones come sooner
_LONG_WAIT = 2.0  # for an answer, from which on it is said


def duration(seconds: float) -> str:
    """A time as a person writes it: 45 s, 7 min, 5 h 48 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@dataclasses.dataclass
class _Job:
    """When a job began; when the first of its answers came, and how many; and what was last said."""

    began: float
    first_at: float = 0.0
    first: int = 0
    said_at: float = -math.inf
    line: str = ""
    note: str = ""


class Display:
    """Shows how far each model is. Call it with every progress event.

    Parameters
    ----------
    as_json : bool
        One JSON object per line instead of bars.
    verbose : bool
        Without a terminal: a line at every event, not every ten seconds.
    """

    def __init__(self, *, as_json: bool = False, verbose: bool = False) -> None:
        self._json, self._verbose = as_json, verbose
        console = Console(stderr=True)
        columns = (
            "{task.description}",
            BarColumn(),
            "{task.fields[items]}",
            TimeRemainingColumn(),
            "{task.fields[counts]}",
        )
        self._bars = Progress(*columns, console=console) if console.is_terminal and not as_json else None
        self._tasks: dict[str, TaskID] = {}
        self._said = self._bars.add_task("", total=None, visible=False, counts="", items="") if self._bars else None
        self._jobs: dict[str, _Job] = {}

    def __enter__(self) -> Display:
        if self._bars:
            with contextlib.suppress(OSError):
                self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars:
            with contextlib.suppress(OSError):
                self._bars.stop()

    def __call__(self, event: JobProgress) -> None:
        """Show an event. A closed stderr (``2>&1 | head``) does not fail the run."""
        job, now = self._jobs.setdefault(event.job, _Job(time.monotonic())), time.monotonic()
        asked = event.done - event.cached
        if asked < job.first or not job.first:  # a model is loaded first; and what follows from answers begins anew
            job.first_at, job.first = now, asked
        speed = (asked - job.first) / (now - job.first_at) if now > job.first_at else 0.0
        counts, items = _counts(event, speed), f"{event.done}/{event.total or '?'}"
        with contextlib.suppress(OSError):
            if self._bars:
                if event.job not in self._tasks:
                    self._tasks[event.job] = self._bars.add_task(event.job, total=event.total, counts="", items="")
                task = self._tasks[event.job]
                self._bars.update(task, completed=event.done, total=event.total, counts=counts, items=items)
            elif self._is_due(event, job, now):
                left = (event.total or 0) - event.done
                eta = f", {duration(left / speed)} left" if speed and left > 0 else ""
                line = json.dumps({"progress": dataclasses.asdict(event)})
                _say(line if self._json else f"{event.job}: {items}{eta}, {counts}", job)

    def tell(self, line: str) -> None:
        """Show what a backend says while it is waited for; a line that ends in a carriage return is replaced."""
        text = line.rstrip("\r")
        with contextlib.suppress(OSError):
            if self._bars is None or self._said is None:
                print(text, file=sys.stderr, flush=True)
                return
            self._bars.update(self._said, description=text, visible=line != text)
            if line == text:
                self._bars.console.print(text, markup=False, highlight=False)

    def _is_due(self, event: JobProgress, job: _Job, now: float) -> bool:
        """Whether a line is written: the first ones follow at 1, 2, 4 and 8 seconds."""
        is_finished = event.total is not None and event.done >= event.total
        pause = min(_LINE_SECONDS, max(1.0, (now - job.began) / 2))
        if not is_finished and event.note == job.note and not self._verbose and now - job.said_at < pause:
            return False
        job.said_at, job.note = now, event.note
        return True


def _say(line: str, job: _Job) -> None:
    if line != job.line:  # the end of a job is reported twice
        job.line = line
        print(line, file=sys.stderr, flush=True)


def _counts(event: JobProgress, speed: float) -> str:
    """Items a second, those from the store apart, and what else is counted."""
    said = f"{speed:,.0f} a second, " if speed >= 100 else f"{speed:.3g} a second, " if speed else ""
    said += f"{event.cached} cached, {event.retried} retried, {event.failed} failed"
    if event.cost is not None:
        said += f", cost {event.cost:.4f}"
    if event.note:
        said += f" ({event.note})"
    elif event.total is not None and event.done == event.cached < event.total and not event.failing:
        said += ", no answer yet (first a model is loaded, or a server looked at)"  # it can take minutes
    said += f", waiting for {duration(event.waited)}" * (event.waited >= _LONG_WAIT)
    return f"{said}: {event.failing:.80}" if event.failing else said
