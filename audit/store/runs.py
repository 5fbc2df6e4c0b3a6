"""Runs: their results, the numeric rows behind them, baselines, and the nights on which they were compared with one."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from audit.results import AuditResult
from audit.store.database import Database, StoreError
from audit.store.keys import PART_BYTES, PROMPT_BYTES, from_bytes, from_json_bytes, key_text, to_bytes, to_json_bytes
from audit.store.leases import is_gone, new_client
from backends.errors import ConfigError
from suites.base import Row

if TYPE_CHECKING:
    import polars as pl

    from audit.analysis.table import Table

#: The status of a run in progress, followed by its owner.
_RUNNING = "running"
_KILLED = "killed"
#: How the status of a run begins that asked a part, once it has ended.
_PART = "part "
_KEY = PROMPT_BYTES + PART_BYTES
#: In place of the key of a row that is computed from others.
_NO_KEY = bytes(_KEY)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A stored run.

    ``status``: running, done, incomplete, interrupted, failed, or killed; ``part 2 of 3: done`` if it asked a part.
    """

    id: str
    title: str
    config: str
    status: str
    started: str
    finished: str | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run that later runs are compared with. ``earlier`` are the runs it replaced, newest first."""

    name: str
    run_id: str
    since: str
    earlier: tuple[str, ...]


class StoredRow(NamedTuple):
    """A row, the keys of the answers that it was read from, and whether it is computed from items that have rows."""

    row: Row
    keys: tuple[str, ...]
    derived: bool = False


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The rows of one model and suite in a run, and the keys of the answers behind them.

    ``keys`` has a key for each row, then as JSON those of items without a row of their own.
    """

    table: Table
    keys: bytes
    others: Mapping[str, str]

    def key(self, item_id: str) -> str | None:
        """The key of an item's answer; None for a row that is computed from others."""
        at = self.table.index.get(item_id)
        if at is None:
            return self.others.get(item_id)
        key = self.keys[at * _KEY : (at + 1) * _KEY]
        return None if key == _NO_KEY else key_text(key)

    @classmethod
    def of(cls, table: Table, keys: Mapping[str, bytes]) -> StoredTable:
        """A table with the keys of its items' answers."""
        of_rows = [keys.get(item, _NO_KEY) for item in table.data["item_id"]]
        others: dict[str, str] = {}
        if len(of_rows) - of_rows.count(_NO_KEY) < len(keys):  # an index of a million items takes 0.2 GB
            others = {item: key_text(key) for item, key in keys.items() if item not in table.index}
        return cls(table, b"".join(of_rows) + to_json_bytes(others), others)

    def rows(self) -> Iterator[StoredRow]:
        """The rows in order."""
        for row in self.table.rows():
            keys = dict.fromkeys(key for item in row.items if (key := self.key(item)) is not None)
            yield StoredRow(row, tuple(keys), self.is_derived(row.item_id, row.missing, row.sources))

    def frame(self) -> pl.DataFrame:
        """`Table.frame` with the column ``derived``, as of `StoredRow`."""
        import polars as pl

        frame = self.table.frame()
        columns = (frame[name].to_list() for name in ("item", "missing", "sources"))
        derived = [self.is_derived(*of_row) for of_row in zip(*columns, strict=True)]
        return frame.insert_column(2, pl.Series("derived", derived, dtype=pl.Boolean))

    def is_derived(self, item: str, missing: str | None, sources: Sequence[str] | None) -> bool:
        """Whether a row is computed from items that have rows of their own."""
        if self.key(item) is not None:
            return False
        # A missing row without sources stands for an item that could not be asked, as what follows a lost answer.
        is_lost = missing is not None and not sources
        return not is_lost and all(of in self.table.index or of in self.others for of in sources or [item])


class Runs:
    """The runs of one open store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, run_id: str, title: str, config: str, started: str | None = None) -> None:
        """Record the start of a run: ``started``, or now. ``config`` is JSON, for people to read later."""
        self._database.write(
            "INSERT INTO runs (id, title, config, status, started) VALUES (?, ?, ?, ?, ?)",
            (run_id, title, to_bytes(config), f"{_RUNNING} {new_client()}", started or _now()),
        )

    def end(self, run_id: str, status: str, result: AuditResult | None) -> None:
        """Record the final status of a run, and its result."""
        self._database.write(
            "UPDATE runs SET status = ?, finished = ?, result = ? WHERE id = ?",
            (status, _now(), None if result is None else to_bytes(result.model_dump_json()), run_id),
        )

    def end_part(self, run_id: str, part: tuple[int, int], status: str) -> None:
        """Record the final status of a run that asked a part of an audit: it has no result."""
        self.end(run_id, f"{_PART}{part[0]} of {part[1]}: {status}", None)

    def all(self) -> list[RunRecord]:
        """All runs, newest first."""
        with self._database.read() as db:
            rows = db.execute(
                "SELECT id, title, config, status, started, finished FROM runs ORDER BY started DESC, rowid DESC"
            ).fetchall()
        return [
            RunRecord(id, title, from_bytes(config), _seen(status), *rest) for id, title, config, status, *rest in rows
        ]

    def find(self, name: str) -> str:
        """The id of the run that ``name`` refers to: an id, a prefix of one, or ``last`` for the latest with a result.

        Raises
        ------
        ConfigError
            If no run, or more than one, matches.
        """
        if not isinstance(name, str):
            raise ConfigError("run", name, "not a text", "Give an id, its beginning, or last")
        if name == "last":
            with self._database.read() as db:
                last = db.execute(
                    "SELECT id FROM runs WHERE result IS NOT NULL ORDER BY started DESC, rowid DESC LIMIT 1"
                ).fetchone()
            if last is not None:
                return str(last[0])
            for run in self.all():
                raise without_figures(run.id, run.status)
            raise ConfigError("run", name, "this store has no run", "Run an audit first")
        matching = [run.id for run in self.all() if run.id.startswith(name)]
        if len(matching) != 1:
            raise ConfigError("run", name, f"{len(matching)} runs match", "See `audit ls runs`")
        return matching[0]

    def result(self, run_id: str) -> AuditResult | None:
        """A run's result; None if it has none."""
        with self._database.read() as db:
            row = db.execute("SELECT result FROM runs WHERE id = ?", (run_id,)).fetchone()
        return None if row is None or row[0] is None else AuditResult.model_validate_json(from_bytes(row[0]))

    def finished_result(self, run_id: str) -> AuditResult:
        """A run's result. Raises ConfigError if the run has not finished."""
        result = self.result(run_id)
        if result is None:
            raise without_figures(run_id, next((run.status for run in self.all() if run.id == run_id), "unknown"))
        return result

    # -- rows --------------------------------------------------------------------------------

    def write_table(self, run_id: str, model: str, suite: str, table: Table, keys: Mapping[str, bytes]) -> None:
        """Store the rows of one model and suite, replacing earlier ones, with the keys of items' answers."""
        body, of_rows = table.to_bytes(), StoredTable.of(table, keys).keys
        values = (run_id, model, suite, body, of_rows, _checksum(body, of_rows))
        self._database.write("INSERT OR REPLACE INTO row_tables VALUES (?, ?, ?, ?, ?, ?)", values)

    def read_table(self, run_id: str, model: str, suite: str) -> StoredTable | None:
        """What `write_table` stored; None if nothing is.

        Raises
        ------
        StoreError
            If it is damaged.
        """
        with self._database.read() as db:
            sql = "SELECT body, keys, checksum FROM row_tables WHERE run = ? AND model = ? AND suite = ?"
            found = db.execute(sql, (run_id, model, suite)).fetchone()
        if found is None:
            return None
        body, keys, checksum = found
        if _checksum(body, keys) != checksum:
            raise StoreError(self._database.path, "damaged", f"rows of run {run_id}: wrong checksum")
        from audit.analysis.table import Table

        table = Table.from_bytes(body)
        return StoredTable(table, keys, from_json_bytes(keys[len(table) * _KEY :]))

    def read_rows(self, run_id: str, model: str, suite: str, *, derived: bool = True) -> Iterator[StoredRow]:
        """The rows of `read_table`, none if nothing is stored; without ``derived``, those of items."""
        found = self.read_table(run_id, model, suite)
        rows = () if found is None else found.rows()
        return (stored for stored in rows if derived or not stored.derived)

    # -- baselines ---------------------------------------------------------------------------

    def save_baseline(self, name: str, run_id: str) -> None:
        """Make a run the baseline ``name``. Raises ConfigError if the name is taken or the run has no result."""
        if not name.strip() or not name.isprintable():
            raise ConfigError("baseline", name, "not a name", "Use a word, e.g. released")
        if any(baseline.name == name for baseline in self.baselines()):
            raise ConfigError("baseline", name, "already exists", "Promote a run to replace it, or use another name")
        self._add_baseline(name, run_id)

    def promote_baseline(self, name: str, run_id: str) -> None:
        """Replace the run behind the baseline ``name``; the earlier one stays in its history."""
        if not any(baseline.name == name for baseline in self.baselines()):
            raise ConfigError("baseline", name, "does not exist", "Save it first")
        self._add_baseline(name, run_id)

    def baselines(self) -> list[Baseline]:
        """All baselines, by name."""
        with self._database.read() as db:
            rows = db.execute("SELECT name, run, at FROM baselines ORDER BY name, id DESC").fetchall()
        history: dict[str, list[tuple[str, str]]] = {}
        for name, run, at in rows:
            history.setdefault(name, []).append((run, at))
        return [Baseline(n, h[0][0], h[0][1], tuple(run for run, _ in h[1:])) for n, h in history.items()]

    def _add_baseline(self, name: str, run_id: str) -> None:
        if self.result(run_id) is None:
            raise ConfigError("run", run_id, "has no result in this store", "See `audit ls runs`")
        self._database.write("INSERT INTO baselines (name, run, at) VALUES (?, ?, ?)", (name, run_id, _now()))


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


def without_figures(run_id: str, status: str) -> ConfigError:
    """The error where figures of a run are wanted that has none, by its status."""
    if status.startswith(_PART):
        problem = f"it asked {status.partition(':')[0]} of an audit, which has no figures"
        hint = "Join the stores of all parts with `audit cache merge`, and run the audit on them without a shard"
        return ConfigError("run", run_id, problem, hint)
    hint = "Run the same audit again: it resumes, and has figures at its end"
    return ConfigError("run", run_id, f"it has no figures: {status}", hint)


def _checksum(body: bytes, keys: bytes) -> bytes:
    return hashlib.sha256(b"%d " % len(body) + body + keys).digest()[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _seen(status: str) -> str:
    """The current status: a run in progress whose process is gone was killed."""
    state, _, owner = status.partition(" ")
    if state != _RUNNING:
        return status
    return _KILLED if owner and is_gone(owner) else _RUNNING
