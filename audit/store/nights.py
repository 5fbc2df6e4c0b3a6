"""Nights of a gate: which data were compared with a baseline, how often, and the outcome."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit.store.database import Database, chunked, placeholders
from audit.store.keys import from_bytes, to_bytes

#: The data of a look: figure id → hash of the answers behind the figure.
FigureData = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Night:
    """A run that was gated against a baseline: ``facts`` is the outcome as JSON-ready data."""

    baseline: str
    run_id: str
    facts: Mapping[str, Any]


class Nights:
    """The nights of one open store. Baselines and runs are identified by run ids."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def looks(self, baseline: str, data: FigureData) -> dict[str, int]:
        """The number of the look at each figure's data, 1 for the first since the baseline. Records nothing.

        Data seen before keep their number: a repeated run is not a new look.
        """
        with self._database.read() as db:
            return _look_numbers(db, baseline, data)

    def record_looks(self, baseline: str, data: FigureData) -> dict[str, int]:
        """Like `looks`, but record them, in one transaction: concurrent gates never share a number by mistake."""

        def record(db: sqlite3.Connection) -> dict[str, int]:
            numbers = _look_numbers(db, baseline, data)
            db.executemany(
                "INSERT OR IGNORE INTO gate_looks (baseline, figure, look, data) VALUES (?, ?, ?, ?)",
                [(baseline, figure, numbers[figure], content) for figure, content in data.items()],
            )
            return numbers

        return self._database.submit(record).result()

    def write(self, night: Night) -> None:
        """Record the outcome of a night; replaces an earlier entry of the same run, which keeps its position."""
        body = zlib.compress(to_bytes(json.dumps(night.facts, ensure_ascii=False)))
        self._database.write(
            "INSERT INTO gate_nights (baseline, run, body) VALUES (?, ?, ?) "
            "ON CONFLICT (baseline, run) DO UPDATE SET body = excluded.body",
            (night.baseline, night.run_id, body),
        )

    def all(self, baseline: str | None = None) -> list[Night]:
        """The nights of one or all baselines, in the order in which they were first gated."""
        of_one = "WHERE baseline = ? " if baseline is not None else ""
        with self._database.read() as db:
            rows = db.execute(
                f"SELECT baseline, run, body FROM gate_nights {of_one}ORDER BY id",
                () if baseline is None else (baseline,),
            ).fetchall()
        return [Night(of, run, json.loads(from_bytes(zlib.decompress(body)))) for of, run, body in rows]


def _look_numbers(db: sqlite3.Connection, baseline: str, data: FigureData) -> dict[str, int]:
    recorded: dict[str, dict[str, int]] = {}
    for some in chunked(data):
        sql = f"SELECT figure, data, look FROM gate_looks WHERE baseline = ? AND figure IN ({placeholders(some)})"
        for figure, content, look in db.execute(sql, (baseline, *some)):
            recorded.setdefault(figure, {})[content] = look
    return {
        figure: recorded.get(figure, {}).get(content, max(recorded.get(figure, {}).values(), default=0) + 1)
        for figure, content in data.items()
    }
