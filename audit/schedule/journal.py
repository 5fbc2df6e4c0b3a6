"""The journal of a schedule: every run and its outcome."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from audit.analysis.history import Absence
from audit.report.phrases.gate import gate_outcome
from audit.store import Store
from backends.files import private, private_folder


class Journal:
    """Entries as JSON lines, each flushed to the disk.

    An entry has ``slot`` (ISO time), ``event`` (``started``, ``ended``, ``busy``, ``killed``) and, for ``ended``,
    ``status``, ``run_id``, ``gate`` (counts of verdicts), ``exit_code``, ``error`` and ``notified``. ``on_entry`` is
    called with each entry after it is written.
    """

    def __init__(self, path: Path, on_entry: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.path, self._on_entry = path, on_entry

    @classmethod
    def path_beside(cls, db: Path) -> Path:
        """The path of the journal of a store's schedule. A store has one schedule."""
        return db.with_name(f"{db.stem}-schedule.jsonl")

    def lock(self) -> FileLock:
        """The lock that one run at a time holds, a file beside the journal. Creates the folder."""
        private_folder(self.path.parent)  # the lock itself would create it for all to read
        return FileLock(self.path.with_suffix(".lock"), mode=0o600)

    def write(self, event: str, slot: datetime, **details: Any) -> dict[str, Any]:
        """Append an entry, and return it."""
        entry = {"at": now().isoformat(), "slot": slot.isoformat(), "event": event, **details}
        private_folder(self.path.parent)
        with open(self.path, "ab+", opener=private) as file:
            # A kill may have truncated the last line: start a new one.
            if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) and file.read(1) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if self._on_entry is not None:
            self._on_entry(entry)
        return entry

    def entries(self) -> list[dict[str, Any]]:
        """All entries, oldest first. Truncated lines are skipped."""
        if not self.path.exists():
            return []
        return list(_complete_lines(self.path.read_text("utf-8")))

    def unfinished(self) -> list[datetime]:
        """Slots that started but never ended, because their process was killed."""
        started: dict[str, None] = {}
        for entry in self.entries():
            if entry["event"] == "started":
                started[entry["slot"]] = None
            elif entry["event"] in ("ended", "killed"):
                started.pop(entry["slot"], None)
        return [datetime.fromisoformat(slot) for slot in started]


def _complete_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def absences(store: Store, journal: Iterable[Mapping[str, Any]], title: str | None = None) -> list[Absence]:
    """Runs that ended without a result, and scheduled slots without a run, oldest first, by a journal's entries."""
    found: list[Absence] = []
    in_journal: list[tuple[datetime, datetime]] = []  # to avoid listing runs in the journal twice
    for entry in journal:
        slot = datetime.fromisoformat(entry["slot"])
        match entry["event"]:
            case "missed":
                slots = entry["slots"]
                why = f"{slots} slot{'s' if slots != 1 else ''} missed, {entry['action']}"
                found.append(Absence(at=_utc(entry.get("first", entry["slot"])), why=why))
            case "busy":
                found.append(Absence(at=_utc(entry["slot"]), why=entry["error"]))
            case "killed" | "ended" if "run_id" not in entry:
                found.append(Absence(at=_utc(entry["slot"]), why=f"{entry.get('status', 'killed')}: {entry['error']}"))
                in_journal.append((slot, datetime.fromisoformat(entry["at"])))
    for run in reversed(store.runs.all()):  # oldest first
        ended = run.finished is not None and not run.status.startswith("failed")
        if ended or title not in (None, run.title):
            continue
        # A kill may be noticed some nights later: it concerns only the first run after its slot.
        started = datetime.fromisoformat(run.started)
        if of_journal := [span for span in in_journal if span[0] <= started <= span[1]]:
            in_journal.remove(of_journal[0])
            continue
        found.append(Absence(at=run.started, why=run.status if run.finished else f"no result: {run.status}"))
    return sorted(found, key=lambda absence: datetime.fromisoformat(absence.at))


def _utc(iso: str) -> str:
    """A time in UTC: the journal has slots in local time."""
    return datetime.fromisoformat(iso).astimezone(UTC).isoformat()


def outcome_line(entry: dict[str, Any]) -> str:
    """A journal entry as one line of text."""
    parts = [entry["at"][:19].replace("T", " ") + " UTC", entry["event"]]
    if entry["event"] == "ended":
        parts[1] = f"run {entry['run_id']}: {entry['status']}" if "run_id" in entry else "run failed"
    if entry.get("error"):
        parts.append(entry["error"])
    if entry.get("gate") is not None:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in entry["gate"].items()) or "nothing to check"
        parts.append(f"gate {gate_outcome(bool(entry['exit_code']), entry['gate'])}: {counts}")
    parts += entry.get("notified", [])
    return " · ".join(parts).replace("\n", " ")


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)
