"""Progress on stderr: a bar for each model on a terminal, plain lines elsewhere, or JSON lines."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from audit.collect.jobs import Progress as JobProgress
from audit.collect.worker_times import Stage

_LINE_SECONDS = 10.0  # between two lines; the first ones come sooner
_FEW = 10  # first answers that say nothing of the speed

#: Loading can take minutes, in which nothing else changes.
_NO_ANSWER_YET = ", no answer yet (a local model is loaded and tried first)"
_NO_ACTOR_YET = ", no answer yet ({} of {} actors ready: each loads the model first)"
#: What limits a job, by the stage in which its workers wait.
_LIMITS: Mapping[Stage, str] = {
    "model": "the model",
    "rate": "the server's rate",
    "store": "the store",
    "questions": "looking questions up",
}


def _number(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def duration(seconds: float) -> str:
    """A time as a person writes it: 45 s, 7 min, 5 h 48 min."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


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
        self._tasks: dict[tuple[str, int | None], TaskID] = {}
        self._printed: dict[str, float] = {}
        self._began: dict[tuple[str, int | None], float] = {}
        self._first: dict[tuple[str, int | None], tuple[float, int, float]] = {}
        self._last: dict[str, str] = {}

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
            self._show(event)

    def _show(self, event: JobProgress) -> None:
        now = time.monotonic()
        self._began.setdefault((event.job, event.total), now)  # follow-up questions are timed on their own
        counts = f"{self._rate(event, now)}{event.cached} cached, {event.retried} retried, {event.failed} failed"
        if event.cost is not None:
            counts += f", cost {event.cost:.4f}"
        if event.note:
            counts += f" ({event.note})"
        elif event.total is not None and event.done == event.cached < event.total:
            counts += _NO_ANSWER_YET if event.actors is None else _NO_ACTOR_YET.format(*event.actors)
        elif event.limit is not None:  # of a model that is still being loaded it would name what waits for it
            counts += f", limited by {_LIMITS[event.limit]}"
        if self._bars:
            task = self._tasks.get((event.job, event.total))
            if task is None:
                follows = any(job == event.job for job, _ in self._tasks)
                name = f"{event.job}, follow-up questions" if follows else event.job
                task = self._bars.add_task(name, total=event.total, counts="", items="")
                self._tasks[event.job, event.total] = task
            items = f"{event.done}/{event.total or '?'}"
            self._bars.update(task, completed=_completed(event), total=event.total, counts=counts, items=items)
            return
        finished = event.total is not None and event.done >= event.total
        is_told = event.note in self._last.get(event.job, "")
        if (
            not finished
            and is_told
            and not self._verbose
            and now - self._printed.get(event.job, -math.inf) < self._pause(event, now)
        ):
            return
        self._printed[event.job] = now
        if self._json:
            fields = ("job", "done", "total", "cached", "retried", "failed", "note", "cost", "actors", "limit")
            line = json.dumps({"progress": {name: getattr(event, name) for name in fields}})
        else:
            line = f"{event.job}: {event.done}/{event.total or '?'}{self._eta(event, now)}, {counts}"
        if line != self._last.get(event.job):  # the end of a job is reported twice
            self._last[event.job] = line
            print(line, file=sys.stderr, flush=True)

    def _since(self, event: JobProgress, now: float) -> tuple[float, int, float]:
        """Seconds, items asked and their work, from which the speed is computed.

        If few answers come first they waited for a model to load: time then counts from there.
        """
        job, asked = (event.job, event.total), event.done - event.cached
        if job not in self._first and asked > 0:
            few = asked < _FEW
            self._first[job] = (now, asked, event.work_asked) if few else (self._began[job], 0, 0)
        began, before, work = self._first.get(job, (now, 0, 0))
        return now - began, asked - before, event.work_asked - work

    def _rate(self, event: JobProgress, now: float) -> str:
        """Items a second, those from the store apart; nothing before the first answers."""
        seconds, asked, _ = self._since(event, now)
        if asked <= 0 or seconds <= 0:
            return ""
        rate = asked / seconds
        if event.actors is None:
            return f"{_number(rate)} a second, "
        living, wanted = event.actors
        each = f", {_number(rate / living)} each" if living > 1 else ""
        return f"{_number(rate)} a second by {living} of {wanted} actors{each}, "

    def _eta(self, event: JobProgress, now: float) -> str:
        seconds, asked, work = self._since(event, now)
        if event.total is None or asked <= 0 or seconds <= 0:
            return ""
        left: float = event.total - event.done
        if event.work_asked and work > 0:
            return f", {duration(event.work_left * seconds / work)} left"
        return f", {duration(left * seconds / asked)} left"

    def _pause(self, event: JobProgress, now: float) -> float:
        """Seconds between two lines: a job's first ones follow at 1, 2, 4 and 8 seconds."""
        return min(_LINE_SECONDS, max(1.0, (now - self._began[event.job, event.total]) / 2))


def _completed(event: JobProgress) -> float:
    """Items done, weighted by their work if it is known. Cached items took no time."""
    asked_and_left = event.work_asked + event.work_left
    if event.total is None or not asked_and_left:
        return event.done
    return event.cached + (event.total - event.cached) * event.work_asked / asked_and_left
