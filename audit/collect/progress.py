"""Progress on stderr: a bar for each model on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from audit.collect.jobs import Progress as JobProgress

_LINE_SECONDS = 10.0  # between two lines; the first ones come sooner
_LONG_WAIT = 2.0  # for an answer, from which on it is said
_FEW = 10  # first answers that say nothing of the speed
#: Loading can take minutes, in which nothing else changes.
_NO_ANSWER_YET = ", no answer yet (a local model is loaded and tried first)"


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def duration(seconds: float) -> str:
    """A time as a person writes it: 45 s, 7 min, 5 h 48 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


@dataclasses.dataclass
class _Job:
    """What is known of a job: when it began, from when and how many answers on its speed is counted, what was said."""

    began: float
    since: float = 0.0
    before: int = -1  # items asked then; -1: none yet
    asked: int = 0
    printed: float = -math.inf
    line: str = ""
    note: str = ""
    task: TaskID | None = None


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
        self._bars = (
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[items]}", style="progress.download"),
                TimeRemainingColumn(elapsed_when_finished=True),
                TextColumn("{task.fields[counts]}"),
                console=console,
            )
            if console.is_terminal and not as_json
            else None
        )
        self._jobs: dict[str, _Job] = {}

    def __enter__(self) -> Display:
        if self._bars:
            with contextlib.suppress(OSError):
                self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars:
            with contextlib.suppress(OSError):
                self._bars.stop()

    def __call__(self, event: JobProgress) -> None:
        """Show an event. A closed stderr (``2>&1 | head``) does not fail the run."""
        with contextlib.suppress(OSError):
            self._show(event, time.monotonic())

    def _show(self, event: JobProgress, now: float) -> None:
        job = self._jobs.setdefault(event.job, _Job(now))
        asked = event.done - event.cached
        if asked < job.asked:  # the questions that follow from its answers have begun
            job.began, job.before = now, -1
        job.asked = asked
        if job.before < 0 < asked:  # if few answers come first, they waited for a model to load
            job.since, job.before = (now, asked) if asked < _FEW else (job.began, 0)
        speed = (asked - job.before) / (now - job.since) if job.before >= 0 and now > job.since else 0.0
        counts = self._counts(event, speed)
        if self._bars:
            if job.task is None:
                job.task = self._bars.add_task(event.job, total=event.total, counts="", items="")
            items = f"{event.done}/{event.total or '?'}"
            self._bars.update(job.task, completed=event.done, total=event.total, counts=counts, items=items)
            return
        is_finished = event.total is not None and event.done >= event.total
        pause = min(_LINE_SECONDS, max(1.0, (now - job.began) / 2))  # the first lines follow at 1, 2, 4 and 8 seconds
        if not is_finished and event.note == job.note and not self._verbose and now - job.printed < pause:
            return
        job.printed, job.note = now, event.note
        if self._json:
            line = json.dumps({"progress": dataclasses.asdict(event)})
        else:
            left = (event.total or 0) - event.done
            eta = f", {duration(left / speed)} left" if speed and left > 0 else ""
            line = f"{event.job}: {event.done}/{event.total or '?'}{eta}, {counts}"
        if line != job.line:  # the end of a job is reported twice
            job.line = line
            print(line, file=sys.stderr, flush=True)

    def _counts(self, event: JobProgress, speed: float) -> str:
        """Items a second, those from the store apart, and what else is counted."""
        said = f"{_number(speed)} a second, " if speed else ""
        said += f"{event.cached} cached, {event.retried} retried, {event.failed} failed"
        if event.cost is not None:
            said += f", cost {event.cost:.4f}"
        if event.note:
            said += f" ({event.note})"
        elif event.total is not None and event.done == event.cached < event.total:
            said += _NO_ANSWER_YET
        if event.waited >= _LONG_WAIT:
            said += f", waiting for {duration(event.waited)}"
        return said
