"""One SQLite file that keeps every answer as it arrives.

    answers     key → answer, with a checksum over everything in the row
    failures    what could not be answered, each time; it never counts as answered
    prompts     each prompt's text once, under its hash
    leases      who is asking what just now (two audits may share a store)
    quarantine  rows whose checksum was wrong: set aside, and asked again
    runs, row_chunks, baselines   results, so that reports compute nothing from models

Durability. WAL with synchronous=FULL: when `Store.write` returns, the answer is on the disk. One
thread with one connection writes; what arrives while it commits goes into its next transaction,
so the cost of a flush is shared and nobody waits longer than about two of them. Other processes may write to the same
file: each transaction is short and begins IMMEDIATE, so none can fail half way for want of a lock.

A file that is not a store, or is damaged, is refused and left as it is.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import json
import os
import queue
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import orjson

from audit.store import keys as identity
from audit.store.codecs import ROWS_A_CHUNK, StoredRow, read_chunk, write_chunk
from backends.base import Answer, Request
from backends.errors import AuditError, BackendError, ConfigError

SCHEMA = 4  # steps of `audit.store.schema`; kept in the file's header too, so that nothing is imported to count them
APPLICATION_ID = 0x42494153  # "BIAS" in the file's header: this database is one of ours
BUSY_SECONDS = 60.0
GATHER_SECONDS = 0.002
LEASE_SECONDS = 30.0
_IN = 500  # parameters of one IN (...)

T = TypeVar("T")


class StoreError(AuditError):
    """The store cannot be written or read any more: disk full, read-only, damaged.

    ``reason`` is one of ``full``, ``read_only``, ``damaged``, ``locked``, ``io``.
    """

    def __init__(self, path: Path, reason: str, detail: str) -> None:
        self.reason = reason
        hint = {
            "full": "The disk is full. Free some space and start again: what is stored stays",
            "read_only": "The file is read-only. Give it write permission, or another --db",
            "damaged": "The file is damaged and was left as it is. Restore a backup, or give another --db",
            "locked": "Another process keeps it locked. Close that, or give another --db",
            "io": "The disk failed. Check it, then start again: what is stored stays",
        }[reason]
        super().__init__(f"store {str(path)!r}: {detail}. {hint}.")


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer on its way into the store: ``keys`` are `answer_keys(request, fingerprint)`."""

    keys: tuple[str, ...]
    fingerprint: str
    request: Request
    answer: Answer


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the store knows it. ``status``: running, done, incomplete, interrupted or failed."""

    id: str
    title: str
    config: str
    status: str
    started: str
    finished: str | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run that later runs are judged against. ``earlier`` are the runs it replaced, newest first."""

    name: str
    run_id: str
    since: str
    earlier: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What reading the whole store found. ``damaged`` keys were set aside, and will be asked again."""

    answers: int
    damaged: tuple[str, ...]
    file_problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damaged and not self.file_problems


class Store:
    """Answers, runs and baselines in one SQLite file. Use `Store.open`."""

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path, self.read_only = path, read_only
        self._owner = _owner_name()
        self._reading = threading.Lock()
        self._reader = _connect(path, read_only=True) if read_only else _connect(path)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self.writer_seconds = 0.0  # time spent in transactions, for benchmarks and `stats`

    # -- opening and closing ---------------------------------------------------------------

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> Store:
        """Open a store, or make a new one.

        Raises
        ------
        ConfigError
            The path is no store, is damaged, is from a newer version, or cannot be written:
            all found now, before any model is asked.
        """
        path = Path(path).expanduser().absolute()
        _refuse_what_is_no_store(path, read_only)
        try:
            if not read_only:
                path.parent.mkdir(parents=True, exist_ok=True)
                _prepare(path)
            store = cls(path, read_only)
            store._check_version()
        except sqlite3.Error as error:
            problem = _store_error(path, error)
            raise ConfigError("db", str(path), f"cannot be opened: {error}", _mend(problem)) from None
        except OSError as error:
            hint = "Give it write permission, or another --db"
            raise ConfigError("db", str(path), f"cannot be opened: {error.strerror}", hint) from None
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is queued, give back all leases, close the file. May be called twice."""
        if self._writer is not None:
            with contextlib.suppress(StoreError):
                self._submit(self._forget_owner).result()
            self._jobs.put(None)
            self._writer.join()
            self._writer = None
        self._reader.close()

    def _check_version(self) -> None:
        if self._reader.execute("PRAGMA user_version").fetchone()[0] == SCHEMA:
            return
        sqlite_utils, migrations = _schema_tools()
        known = {m.name for m in migrations._migrations}
        applied = {m.name for m in migrations.applied(sqlite_utils.Database(self._reader))}
        if applied - known:
            raise ConfigError(
                "db", str(self.path), "was written by a newer version", "Update this package, or give another --db"
            )
        if known - applied:  # only possible when opened read-only
            raise ConfigError(
                "db", str(self.path), "has an older schema", "Open it once for writing: it is brought up to date"
            )

    # -- answers ---------------------------------------------------------------------------

    def known(self, keys: Iterable[str]) -> set[str]:
        """Those of ``keys`` that are answered. Failures are not answers.

        A row whose checksum is wrong is set aside, so that what it should hold is asked again.
        """
        found: set[str] = set()
        damaged: list[tuple[Any, ...]] = []
        with self._read() as db:
            for some in _portions(keys):
                for row in db.execute(f"SELECT {_ANSWER} FROM answers WHERE key IN ({_marks(some)})", some):
                    if _is_sound(row):
                        found.add(row[0])
                    else:
                        damaged.append(row)
        self._quarantine(damaged)
        return found

    def get_many(self, keys: Iterable[str]) -> dict[str, Answer]:
        """What is stored under ``keys``: the answer, else the latest failure; nothing if unknown.

        A row whose checksum is wrong is set aside and treated as not there.
        """
        keys = list(keys)
        answers: dict[str, Answer] = {}
        damaged: list[tuple[Any, ...]] = []
        with self._read() as db:
            for some in _portions(keys):
                for row in db.execute(f"SELECT {_ANSWER} FROM answers WHERE key IN ({_marks(some)})", some):
                    try:
                        answers[row[0]] = _checked_answer(row)
                    except _Damaged:
                        damaged.append(row)
            for some in _portions([k for k in keys if k not in answers]):
                latest = (
                    f"SELECT key, body FROM failures WHERE id IN "
                    f"(SELECT max(id) FROM failures WHERE key IN ({_marks(some)}) GROUP BY key)"
                )
                for key, body in db.execute(latest, some):
                    answers[key] = identity.answer_from_json(json.loads(identity.from_bytes(body)))
        self._quarantine(damaged)
        return answers

    async def write(self, entries: Sequence[Entry]) -> None:
        """Store answers and failures; returns when they are on the disk.

        The first answer under a key stays: a later one for the same key is not stored.

        Raises
        ------
        StoreError
            They are not stored.
        """
        await asyncio.wrap_future(self._submit(lambda db: _insert(db, entries), patient=True))

    def _quarantine(self, damaged: Sequence[tuple[Any, ...]], problem: str = "checksum") -> None:
        if not damaged or self.read_only:
            return

        def move(db: sqlite3.Connection) -> None:
            for row in damaged:
                kept = identity.to_bytes(json.dumps([repr(value) for value in row]))
                db.execute(
                    "INSERT INTO quarantine (key, row, problem, at) VALUES (?, ?, ?, ?)",
                    (row[0], kept, problem, time.time()),
                )
                db.execute("DELETE FROM answers WHERE key = ?", (row[0],))

        self._submit(move).result()

    def quarantine(self, keys: Sequence[str], problem: str) -> int:
        """Set aside the answers under ``keys``, so that they are asked again. Returns how many there were."""
        rows: list[tuple[Any, ...]] = []
        with self._read() as db:
            for some in _portions(keys):
                rows += db.execute(f"SELECT {_ANSWER} FROM answers WHERE key IN ({_marks(some)})", some).fetchall()
        self._quarantine(rows, problem)
        return len(rows)

    def quarantine_since(self, fingerprint: str, since: float, problem: str) -> int:
        """Set aside a model's answers stored after ``since`` (seconds since the epoch). Returns how many."""
        with self._read() as db:
            rows = db.execute(
                f"SELECT {_ANSWER} FROM answers WHERE fingerprint = ? AND at > ?", (fingerprint, since)
            ).fetchall()
        self._quarantine(rows, problem)
        return len(rows)

    # -- fingerprints ----------------------------------------------------------------------

    def record_fingerprint(self, fingerprint: Mapping[str, Any]) -> str:
        """Keep what a fingerprint id stands for, so that `explain` can tell. Returns the id."""
        name = identity.fingerprint_id(fingerprint)
        body = identity.to_bytes(identity.canonical_json(dict(fingerprint)))
        self._do("INSERT OR IGNORE INTO fingerprints (id, body, at) VALUES (?, ?, ?)", (name, body, time.time()))
        return name

    # -- leases ----------------------------------------------------------------------------

    async def lease(self, requests: Sequence[tuple[str, ...]]) -> list[bool]:
        """For each request's keys, whether this store may ask it now.

        False: someone (another audit, or this one a moment ago) is already asking for one of its
        keys, or it has just been answered. A lease ends when its answer is written, with `release`
        or `release_leases`, when its holder dies, or has not renewed it for 30 seconds.
        """
        return await asyncio.wrap_future(self._submit(lambda db: self._take_leases(db, requests)))

    async def release(self, keys: Iterable[str]) -> None:
        """Give back this store's leases of ``keys``, which it will not ask after all."""
        mine = [(key, self._owner) for key in keys]
        sql = "DELETE FROM leases WHERE key = ? AND owner = ?"
        await asyncio.wrap_future(self._submit(lambda db: db.executemany(sql, mine)))

    async def release_leases(self) -> None:
        """Give back all leases of this store's holder."""
        await asyncio.wrap_future(self._submit(self._forget_owner))

    async def renew_leases(self) -> None:
        """Show that this store's holder is alive. Call it every few seconds while asking."""
        await asyncio.wrap_future(self._submit(self._renew))

    def _renew(self, db: sqlite3.Connection) -> None:
        # Monotonic, not the wall clock: a clock set forward must not end a lease. All processes that can
        # share a WAL file run on one machine since one boot, and so share this clock.
        db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self._owner, time.monotonic() + LEASE_SECONDS))

    def _take_leases(self, db: sqlite3.Connection, requests: Sequence[tuple[str, ...]]) -> list[bool]:
        self._renew(db)
        now = time.monotonic()
        gone = [o for o, until in db.execute("SELECT owner, until FROM owners") if not _alive(o, until, now)]
        for owner in gone:
            db.execute("DELETE FROM leases WHERE owner = ?", (owner,))
            db.execute("DELETE FROM owners WHERE owner = ?", (owner,))
        wanted = [key for keys in requests for key in keys]
        taken: set[str] = set()
        for some in _portions(wanted):
            for table in ("leases", "answers"):
                taken.update(k for (k,) in db.execute(f"SELECT key FROM {table} WHERE key IN ({_marks(some)})", some))
        granted = []
        for keys in requests:
            free = taken.isdisjoint(keys)
            granted.append(free)
            if free:
                taken.update(keys)
                db.executemany("INSERT INTO leases VALUES (?, ?)", [(k, self._owner) for k in keys])
        return granted

    def _forget_owner(self, db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM leases WHERE owner = ?", (self._owner,))
        db.execute("DELETE FROM owners WHERE owner = ?", (self._owner,))

    # -- runs, rows, baselines -------------------------------------------------------------

    def start_run(self, run_id: str, title: str, config: str) -> None:
        """Note that a run begins. ``config`` is JSON, for a person to read later."""
        self._do(
            "INSERT INTO runs (id, title, config, status, started) VALUES (?, ?, ?, 'running', ?)",
            (run_id, title, identity.to_bytes(config), _now()),
        )

    def finish_run(self, run_id: str, status: str, result: str | None) -> None:
        """Keep a run's result (JSON of `AuditResult`) and how it ended."""
        self._do(
            "UPDATE runs SET status = ?, finished = ?, result = ? WHERE id = ?",
            (status, _now(), None if result is None else identity.to_bytes(result), run_id),
        )

    def runs(self) -> list[RunRecord]:
        """All runs, newest first."""
        with self._read() as db:
            rows = db.execute(
                "SELECT id, title, config, status, started, finished FROM runs ORDER BY started DESC, rowid DESC"
            ).fetchall()
        return [RunRecord(r[0], r[1], identity.from_bytes(r[2]), *r[3:]) for r in rows]

    def result(self, run_id: str) -> str | None:
        """The JSON that `finish_run` kept; None for a run that has none."""
        with self._read() as db:
            row = db.execute("SELECT result FROM runs WHERE id = ?", (run_id,)).fetchone()
        return None if row is None or row[0] is None else identity.from_bytes(row[0])

    def write_rows(self, run_id: str, model: str, suite: str, rows: Iterable[StoredRow]) -> int:
        """Keep the numeric rows of one model and suite; replaces earlier ones. Returns how many."""
        self._do("DELETE FROM row_chunks WHERE run = ? AND model = ? AND suite = ?", (run_id, model, suite))
        count = 0
        writing: concurrent.futures.Future[Any] | None = None
        for some in _portions(rows, ROWS_A_CHUNK):
            text = write_chunk(some)  # while the writer packs and stores the one before
            if writing is not None:
                writing.result()
            writing = self._submit(lambda db, text=text: _insert_chunk(db, run_id, model, suite, text))  # type: ignore[misc]
            count += len(some)
        if writing is not None:
            writing.result()
        return count

    def read_rows(self, run_id: str, model: str, suite: str) -> Iterator[StoredRow]:
        """The rows that `write_rows` kept, in the order they were written.

        Raises
        ------
        StoreError
            A part of them is damaged.
        """
        last = 0
        while True:
            with self._read() as db:
                found = db.execute(
                    "SELECT id, body FROM row_chunks WHERE run = ? AND model = ? AND suite = ? AND id > ? "
                    "ORDER BY id LIMIT 1",
                    (run_id, model, suite, last),
                ).fetchone()
            if found is None:
                return
            last, body = found
            try:
                rows = read_chunk(zlib.decompress(body))
            except (zlib.error, ValueError, TypeError) as error:
                raise StoreError(self.path, "damaged", f"rows of run {run_id}: {error}") from None
            yield from rows

    def save_baseline(self, name: str, run_id: str) -> None:
        """Make a run the baseline ``name``. ConfigError if the name is taken or the run has no result."""
        if any(b.name == name for b in self.baselines()):
            raise ConfigError("baseline", name, "is already there", "Promote a run to replace it, or use another name")
        self._add_baseline(name, run_id)

    def promote(self, name: str, run_id: str) -> None:
        """Replace the run behind the baseline ``name``; the earlier one stays in its history."""
        if not any(b.name == name for b in self.baselines()):
            raise ConfigError("baseline", name, "is not there", "Save it first")
        self._add_baseline(name, run_id)

    def baselines(self) -> list[Baseline]:
        """All baselines, by name."""
        with self._read() as db:
            rows = db.execute("SELECT name, run, at FROM baselines ORDER BY name, id DESC").fetchall()
        history: dict[str, list[tuple[str, str]]] = {}
        for name, run, at in rows:
            history.setdefault(name, []).append((run, at))
        return [Baseline(n, h[0][0], h[0][1], tuple(run for run, _ in h[1:])) for n, h in history.items()]

    def _add_baseline(self, name: str, run_id: str) -> None:
        if self.result(run_id) is None:
            raise ConfigError("run", run_id, "has no result in this store", "See `audit ls runs`")
        self._do("INSERT INTO baselines (name, run, at) VALUES (?, ?, ?)", (name, run_id, _now()))

    # -- looking into it -------------------------------------------------------------------

    def explain(self, key: str) -> dict[str, Any] | None:
        """Everything known under a key: who was asked what, the answer, failures. None if unknown."""
        with self._read() as db:
            row = db.execute(f"SELECT {_ANSWER} FROM answers WHERE key = ?", (key,)).fetchone()
            failed = db.execute(
                "SELECT fingerprint, kind, prompt, detail, body, at FROM failures WHERE key = ? ORDER BY id", (key,)
            ).fetchall()
            aside = db.execute("SELECT problem, at FROM quarantine WHERE key = ? ORDER BY id", (key,)).fetchall()
            if row is None and not failed and not aside:
                return None
            told: dict[str, Any] = {"key": key, "answered": row is not None}
            source = row[1:5] if row is not None else failed[-1][:4] if failed else None
            if source is not None:
                fingerprint, kind, prompt, detail = source
                known = db.execute("SELECT body FROM fingerprints WHERE id = ?", (fingerprint,)).fetchone()
                asked = db.execute("SELECT body FROM prompts WHERE id = ?", (prompt,)).fetchone()
                told["fingerprint_id"] = fingerprint
                told["fingerprint"] = None if known is None else _load(known[0])
                told["kind"] = kind
                told["prompt"] = None if asked is None else _load(asked[0])
                told["detail"] = _load(detail)
            if row is not None:
                told["answer"] = _load(row[5])
                told["stored"] = _iso(row[7])
                told["checksum"] = "right" if _is_sound(row) else "wrong"
        told["failures"] = [{"error": _load(body)[1], "at": _iso(at)} for *_, body, at in failed]
        told["quarantine"] = [{"problem": problem, "at": _iso(at)} for problem, at in aside]
        return told

    def stats(self) -> dict[str, Any]:
        """Counts of what is stored, and the size of the file in bytes."""
        with self._read() as db:
            tables = ("answers", "failures", "prompts", "quarantine", "runs", "leases")
            told: dict[str, Any] = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
            told["models"] = [
                {"fingerprint_id": f, "fingerprint": None if body is None else _load(body), "kind": kind, "answers": n}
                for f, body, kind, n in db.execute(
                    "SELECT fingerprint, f.body, kind, count(*) FROM answers LEFT JOIN fingerprints f "
                    "ON f.id = fingerprint GROUP BY fingerprint, kind ORDER BY 4 DESC"
                )
            ]
        told["bytes"] = sum(os.path.getsize(p) for p in (self.path, f"{self.path}-wal") if os.path.exists(p))
        return told

    def verify(self) -> Verification:
        """Read everything: the file's structure, every checksum, every key hashed again.

        Damaged rows are set aside (not when read-only).
        """
        damaged: list[tuple[Any, ...]] = []
        count = 0
        with self._read() as db:
            problems = [p for (p,) in db.execute("PRAGMA integrity_check(20)") if p != "ok"]
            sound_prompts = (
                {
                    name: body
                    for name, body in db.execute("SELECT id, body FROM prompts")
                    if _is_sound_prompt(name, body)
                }
                if not problems
                else {}
            )
            for row in db.execute(f"SELECT {_ANSWER} FROM answers") if not problems else ():
                count += 1
                try:
                    _checked_answer(row)
                    _check_key(row, sound_prompts)
                except _Damaged:
                    damaged.append(row)
        self._quarantine(damaged, "found by verify")
        return Verification(count, tuple(row[0] for row in damaged), tuple(problems))

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store to a new file, also while an audit is writing. Never overwrites."""
        target = Path(path).expanduser().absolute()
        if target.exists():
            raise ConfigError("backup", str(target), "is already there", "Give another path")
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        copy = sqlite3.connect(part)
        try:
            with contextlib.closing(_connect(self.path, read_only=True)) as source:
                source.backup(copy)
            copy.close()
            os.link(part, target)  # fails rather than overwrites, should the target have appeared meanwhile
        finally:
            copy.close()
            part.unlink(missing_ok=True)

    # -- the writer ------------------------------------------------------------------------

    def _do(self, sql: str, values: tuple[Any, ...]) -> None:
        self._submit(lambda db: db.execute(sql, values)).result()

    def _submit(self, work: Callable[[sqlite3.Connection], T], patient: bool = False) -> concurrent.futures.Future[T]:
        if self.read_only:
            raise StoreError(self.path, "read_only", "opened for reading only")
        with self._starting:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write_loop, name="store-writer", daemon=True)
                self._writer.start()
        job = _Job(work, concurrent.futures.Future(), patient)
        job.done.set_running_or_notify_cancel()  # whoever stops waiting for it, what was begun is written
        self._jobs.put(job)
        return job.done

    def _write_loop(self) -> None:
        try:
            db = _connect(self.path)
        except sqlite3.Error as error:
            while (job := self._jobs.get()) is not None:  # whoever waits for it would wait for ever
                job.done.set_exception(_store_error(self.path, error))
            return
        try:
            while (job := self._jobs.get()) is not None:
                batch = [job]
                if job.patient:
                    time.sleep(GATHER_SECONDS)
                ending = False
                while len(batch) < 1024:
                    try:
                        more = self._jobs.get_nowait()
                    except queue.Empty:
                        break
                    if more is None:
                        ending = True
                        break
                    batch.append(more)
                self._commit(db, batch)
                if ending:
                    return
        finally:
            db.close()

    def _commit(self, db: sqlite3.Connection, batch: Sequence[_Job]) -> None:
        started = time.perf_counter()
        results: list[tuple[_Job, Any]] = []
        try:
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                results.append((job, job.work(db)))
            db.execute("COMMIT")
        except BaseException as error:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            if len(batch) > 1 and not isinstance(error, sqlite3.OperationalError):
                for job in batch:  # one bad job must not fail its neighbours
                    self._commit(db, [job])
                return
            told = _store_error(self.path, error) if isinstance(error, sqlite3.Error) else error
            for job in batch:
                job.done.set_exception(told)
            return
        finally:
            self.writer_seconds += time.perf_counter() - started
        for job, result in results:
            job.done.set_result(result)

    @contextlib.contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with self._reading:
            try:
                yield self._reader
            except sqlite3.Error as error:
                raise _store_error(self.path, error) from None


@dataclass(slots=True)
class _Job:
    work: Callable[[sqlite3.Connection], Any]
    done: concurrent.futures.Future[Any]
    patient: bool


class _Damaged(Exception):
    """A stored row is not what was written."""


_ANSWER = "key, fingerprint, kind, prompt, detail, body, checksum, at"


def _checksum(key: str, fingerprint: str, kind: str, prompt: str, detail: bytes, body: bytes) -> str:
    parts = b"\n".join((key.encode(), fingerprint.encode(), kind.encode(), prompt.encode(), detail, body))
    return hashlib.sha256(parts).hexdigest()[:32]


def _is_sound(row: tuple[Any, ...]) -> bool:
    try:
        return bool(_checksum(*row[:6]) == row[6])
    except (TypeError, AttributeError, ValueError):  # a column of another type than was written
        return False


def _checked_answer(row: tuple[Any, ...]) -> Answer:
    if not _is_sound(row):
        raise _Damaged
    try:
        return identity.answer_from_json(_load_answer(row[5]))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise _Damaged from None


def _is_sound_prompt(name: str, body: Any) -> bool:
    try:
        return identity.prompt_id(_load(body)) == name
    except (ValueError, AttributeError):  # cut off, or of another type than was written
        return False


def _check_key(row: tuple[Any, ...], prompts: Mapping[str, bytes]) -> None:
    key, fingerprint, kind, prompt, detail = row[:5]
    if prompt not in prompts:
        raise _Damaged
    request = identity.join_request(kind, _load(prompts[prompt]), _load(detail))
    if identity.answer_keys(request, fingerprint) != (key,):
        raise _Damaged


def _insert(db: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    now = time.time()
    for entry in entries:
        kind, prompt, details = identity.split_request(entry.request)
        prompt_json = identity.to_bytes(identity.canonical_json(prompt))
        prompt_name = identity.prompt_id(prompt)
        # A damaged text is mended, else `verify` would set this answer aside too.
        db.execute(
            "INSERT INTO prompts (id, body) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET body = excluded.body WHERE body IS NOT excluded.body",
            (prompt_name, prompt_json),
        )
        failed = isinstance(entry.answer, BackendError)
        if isinstance(entry.answer, BackendError):
            pieces: list[Answer] = [entry.answer] * len(entry.keys)
        else:
            pieces = list(identity.split_response(entry.request, entry.answer))
        rows: list[tuple[Any, ...]] = []
        for key, detail, piece in zip(entry.keys, details, pieces, strict=True):
            detail_json = identity.to_bytes(identity.canonical_json(detail))
            body = identity.to_bytes(identity.canonical_json(identity.answer_to_json(piece)))
            row = (key, entry.fingerprint, kind, prompt_name, detail_json, body)
            if isinstance(piece, BackendError):
                rows.append((*row[:5], piece.kind, body, now))
            else:
                rows.append((*row, _checksum(*row), now))
        if failed:
            columns = "key, fingerprint, kind, prompt, detail, error, body, at"
            db.executemany(f"INSERT INTO failures ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        else:
            db.executemany(f"INSERT OR IGNORE INTO answers ({_ANSWER}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        db.executemany("DELETE FROM leases WHERE key = ?", [(k,) for k in entry.keys])


def _insert_chunk(db: sqlite3.Connection, run_id: str, model: str, suite: str, text: bytes) -> None:
    body = zlib.compress(text, 1)  # rows repeat their factors: a tenth is left
    db.execute("INSERT INTO row_chunks (run, model, suite, body) VALUES (?, ?, ?, ?)", (run_id, model, suite, body))


def _load(data: bytes) -> Any:
    return json.loads(identity.from_bytes(data))


def _load_answer(body: bytes) -> Any:
    """As `_load` and faster. A seed may have more than 64 bits, which this reads as a float; answers hold none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # lone surrogates
        return _load(body)


def _marks(some: Sequence[object]) -> str:
    return ",".join("?" * len(some))


def _portions(things: Iterable[T], size: int = _IN) -> Iterator[list[T]]:
    some: list[T] = []
    for thing in things:
        some.append(thing)
        if len(some) == size:
            yield some
            some = []
    if some:
        yield some


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


# -- opening files ---------------------------------------------------------------------------


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended in words
        check_same_thread=False,
    )
    db.execute("PRAGMA synchronous=FULL")
    return db


def _refuse_what_is_no_store(path: Path, read_only: bool) -> None:
    other = "Give another --db: the file was left as it is"
    if path.is_dir():
        raise ConfigError("db", str(path), "is a folder", "Give the path of a file")
    if not path.exists():
        if read_only:
            raise ConfigError("db", str(path), "is not there", "Run an audit first, or give another --db")
        return
    try:
        with path.open("rb") as file:
            header = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ConfigError("db", str(path), f"cannot be read: {error.strerror}", other) from None
    if not header:
        return
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise ConfigError("db", str(path), "is not a store (no SQLite file)", other)
    page = int.from_bytes(header[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    # After a crash, or on a full disk, the rest of the pages may still be in the write-ahead log.
    log = Path(f"{path}-wal")
    whole_in_log = log.exists() and log.stat().st_size > 0
    if page < 512 or (size < pages * page and not whole_in_log):
        raise ConfigError("db", str(path), "is damaged (shorter than it says it is)", f"Restore a backup. {other}")


def _prepare(path: Path) -> None:
    """Make the file if it is new, bring its schema up to date, and prove that it can be written."""
    if not path.exists():
        path.touch()
    with contextlib.closing(_connect(path)) as db:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION_ID and tables:
            raise ConfigError(
                "db", str(path), "is a SQLite database of another program", "Give another --db: it was left as it is"
            )
        db.execute(f"PRAGMA mmap_size={1 << 40}")  # the check reads every page: a tenth of the time without copies
        problems = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        db.execute("PRAGMA mmap_size=0")
        if problems != "ok":
            raise sqlite3.DatabaseError(problems)
        _switch_to_wal(db)
        db.execute("BEGIN IMMEDIATE")  # several audits may open a new store at once: one makes its tables
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        if db.execute("PRAGMA user_version").fetchone()[0] < SCHEMA:
            sqlite_utils, migrations = _schema_tools()
            migrations.apply(sqlite_utils.Database(db))
            db.execute(f"PRAGMA user_version={SCHEMA}")
        db.execute("COMMIT")


def _schema_tools() -> tuple[Any, Any]:
    """sqlite-utils and the steps: half a second to import where pandas is installed, so only where a step is due."""
    import sqlite_utils

    from audit.store.schema import migrations

    return sqlite_utils, migrations


def _switch_to_wal(db: sqlite3.Connection) -> None:
    """SQLite does not wait for others here by itself, as it does everywhere else."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _store_error(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    reason = {
        sqlite3.SQLITE_FULL: "full",
        sqlite3.SQLITE_READONLY: "read_only",
        sqlite3.SQLITE_CANTOPEN: "read_only",
        sqlite3.SQLITE_CORRUPT: "damaged",
        sqlite3.SQLITE_NOTADB: "damaged",
        sqlite3.SQLITE_BUSY: "locked",
        sqlite3.SQLITE_LOCKED: "locked",
    }.get(code & 0xFF if code is not None else -1)
    if reason is None:
        reason = "damaged" if type(error) is sqlite3.DatabaseError else "io"
    return StoreError(path, reason, str(error))


def _mend(problem: StoreError) -> str:
    return str(problem).rsplit(". ", 1)[-1].rstrip(".")


# -- who holds a lease -------------------------------------------------------------------------


def _owner_name() -> str:
    """Boot, process namespace, process and its start, and a number: names one open store on this machine."""
    return ":".join((*_process_identity(os.getpid()), uuid.uuid4().hex[:8]))


def _process_identity(pid: int) -> tuple[str, str, str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:  # not Linux, or the process is gone
        return "", "", str(pid), ""
    return boot, space, str(pid), started


def _alive(owner: str, until: float, now: float) -> bool:
    """Whether the holder of leases still lives: its process, where that can be told, else its renewals."""
    boot, space, pid, started, _ = owner.split(":")
    mine = _process_identity(os.getpid())
    if boot != mine[0] or not now <= until <= now + LEASE_SECONDS:
        return False
    if boot and space == mine[1]:
        return _process_identity(int(pid))[3] == started
    return True
