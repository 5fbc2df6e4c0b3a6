"""Where a job's workers spend their time, and what of it limits the job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal

Stage = Literal["model", "rate", "store", "questions"]
"""What a worker does or waits for: a batch that is at the model; the rate at which a server may be asked; the store;
the next questions."""

#: From this share of its time on that a model's slots are taken, it is the model that limits.
_TAKEN = 0.9
#: Seconds over which the limit is found, at least.
_WINDOW = 2.0


class WorkerTimes:
    """Counts the seconds that workers are in each stage.

    Parameters
    ----------
    slots : int
        Batches that may be at the model at a time.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._now: dict[Stage, int] = {"model": 0, "rate": 0, "store": 0, "questions": 0}
        self._seconds: dict[Stage, float] = dict.fromkeys(self._now, 0.0)
        self._before = dict(self._seconds)
        self._until = self._began = time.monotonic()
        self._limit: Stage | None = None
        self._are_all_given = False

    @contextlib.contextmanager
    def spent(self, stage: Stage) -> Iterator[None]:
        """Count the time within as a worker's in this stage."""
        self._count()
        self._now[stage] += 1
        try:
            yield
        finally:
            self._count()
            self._now[stage] -= 1

    def no_more_questions(self) -> None:
        """From now on a worker without a batch waits for what others have at the model."""
        self._count()
        self._are_all_given = True

    def limit(self) -> Stage | None:
        """What limits the job lately: the model if its slots are taken, else where workers are most; None at first."""
        self._count()
        elapsed = self._until - self._began
        if elapsed >= _WINDOW:
            lately = {stage: seconds - self._before[stage] for stage, seconds in self._seconds.items()}
            is_taken = lately["model"] >= _TAKEN * self._slots * elapsed
            others = {stage: seconds for stage, seconds in lately.items() if stage != "model" or self._are_all_given}
            most = max(others, key=lambda stage: others[stage])
            self._limit = "model" if is_taken or not others[most] else most
            self._before, self._began = dict(self._seconds), self._until
        return self._limit

    def _count(self) -> None:
        now = time.monotonic()
        for stage, workers in self._now.items():
            spent_in: Stage = "model" if stage == "questions" and self._are_all_given else stage
            self._seconds[spent_in] += workers * (now - self._until)
        self._until = now
