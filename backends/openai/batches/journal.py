"""A record on disk of what was sent in batches: enough to resume after a kill at any moment."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.files import atomic_lines, atomic_write

#: Days after which a provider has deleted a batch's files (OpenAI: 30).
_KEPT_DAYS = 30


@dataclass
class Job:
    """One batch. ``name`` is chosen here, and sent to the provider in the batch's metadata.

    Attributes
    ----------
    endpoint : str
        Path of the requests: ``chat/completions``.
    ids : tuple of str
        Ids of its lines.
    file_id, batch_id : str
        The provider's; empty until known.
    asked : bool
        Whether the provider may have been asked to start it. If so, it is searched for before it is started again.
    """

    name: str
    endpoint: str
    ids: tuple[str, ...]
    at: float
    file_id: str = ""
    batch_id: str = ""
    asked: bool = False


class Journal:
    """The jobs of one backend in a folder: each has ``NAME.json``, its lines ``NAME.sent``, and ``NAME.results``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self, endpoint: str, lines: Mapping[str, Mapping[str, Any]]) -> Job:
        """Create a job of these lines, given by id."""
        job = Job(f"bias-audit-{uuid.uuid4().hex}", endpoint, tuple(lines), time.time())
        atomic_lines(self._file(job, "sent"), (json.dumps(line) for line in lines.values()))
        self.write(job)
        return job

    def write(self, job: Job) -> None:
        """Save a job's state."""
        atomic_write(self._file(job, "json"), json.dumps(asdict(job)))

    def sent(self, job: Job) -> bytes:
        """The content of the file with a job's lines."""
        return self._file(job, "sent").read_bytes()

    def keep_results(self, job: Job, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Save the answers, by line."""
        atomic_write(self._file(job, "results"), json.dumps(results))

    def results(self, job: Job) -> dict[str, dict[str, Any]] | None:
        """The answers, by line; None if there are none yet."""
        try:
            return dict(json.loads(self._file(job, "results").read_text("utf-8")))
        except (OSError, ValueError):
            return None

    def jobs(self) -> Iterator[Job]:
        """All jobs. Those too old for any provider to keep are removed."""
        for file in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                fields = json.loads(file.read_text("utf-8"))
                job = Job(**{**fields, "ids": tuple(fields["ids"])})
                if time.time() - job.at > _KEPT_DAYS * 86400:
                    self.remove(job)
                else:
                    yield job

    def remove(self, job: Job) -> None:
        """Delete a job whose answers are stored."""
        for kind in ("json", "sent", "results"):
            self._file(job, kind).unlink(missing_ok=True)

    def _file(self, job: Job, kind: str) -> Path:
        return self.folder / f"{job.name}.{kind}"
