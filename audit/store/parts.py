"""Which parts of an audit a store's runs asked: a run with ``--shard 2/3`` asked the second of three."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from audit.store.keys import canonical_json, from_bytes

#: How the status of a run begins that asked a part, once it has ended.
PART = "part "
_DONE = "done"
#: What of a run's config decides which questions there are.
_ASKS = ("models", "suites", "until")
_COLUMNS = "id, title, config, status, started, finished"

#: For each audit, each number of parts that it was divided into, and each of these: how it ended, None if it did not.
Parts = Mapping[str, Mapping[int, Mapping[int, str | None]]]


def read_parts(db: sqlite3.Connection) -> Parts:
    """The parts that runs of this store asked, or that were merged into it. One that was done once is done."""
    found: dict[str, dict[int, dict[int, str | None]]] = {}
    for body, status in db.execute("SELECT config, status FROM runs ORDER BY started, rowid"):
        match json.loads(from_bytes(body)):
            case {"shard": [int(number), int(of)], **config}:
                audit = canonical_json({name: config.get(name) for name in _ASKS})
                known = found.setdefault(audit, {}).setdefault(of, {})
                if known.get(number) != _DONE:
                    known[number] = status.partition(": ")[2] if status.startswith(PART) else None
    return found


def ended_parts(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """The rows of ended runs that asked a part."""
    return db.execute(f"SELECT {_COLUMNS} FROM runs WHERE status LIKE ?", (f"{PART}%",)).fetchall()


def add_parts(db: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add such rows of another store: they have no result, and say what was merged."""
    db.executemany(f"INSERT OR IGNORE INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", rows)


def lacking_parts(sources: Iterable[Parts], target: Parts) -> list[tuple[int, int, str | None]]:
    """Parts of the sources' audits that are not done, as (number, of, how it ended); "missing" if no run asked it.

    ``target``: what is known where the sources were merged. An audit that is complete by some division lacks nothing.
    """
    sources = list(sources)
    found = []
    for audit in dict.fromkeys(audit for parts in sources for audit in parts):
        divided: dict[int, dict[int, str | None]] = {}
        for parts in (*sources, target):
            for of, own in parts.get(audit, {}).items():
                known = divided.setdefault(of, {})
                known.update({number: status for number, status in own.items() if known.get(number) != _DONE})
        lacking = [
            [(number, of, known.get(number, "missing")) for number in range(1, of + 1) if known.get(number) != _DONE]
            for of, known in divided.items()
        ]
        if all(lacking):
            found += [one for of_division in lacking for one in of_division]
    return found
