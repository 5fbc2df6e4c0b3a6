"""The store's schema as numbered migrations. Never change a released one: add another.

A store of any age is brought up to date by the migrations it has not seen.
"""

from __future__ import annotations

import itertools
import json
import zlib
from typing import Any

from sqlite_utils.migrations import Migrations

migrations = Migrations("bias-audit")


@migrations()  # type: ignore[untyped-decorator]
def m001_answers(db: Any) -> None:
    """Answers by key, each prompt once, failures, and damaged rows."""
    db["fingerprints"].create({"id": str, "body": bytes, "at": float}, pk="id", not_null={"body", "at"})
    db["prompts"].create({"id": str, "body": bytes}, pk="id", not_null={"body"})
    db["answers"].create(
        {
            "key": str,
            "fingerprint": str,
            "kind": str,
            "prompt": str,
            "detail": bytes,
            "body": bytes,
            "checksum": str,
            "at": float,
        },
        pk="key",
        not_null={"fingerprint", "kind", "prompt", "detail", "body", "checksum", "at"},
    )
    db["failures"].create(
        {
            "id": int,
            "key": str,
            "fingerprint": str,
            "kind": str,
            "prompt": str,
            "detail": bytes,
            "error": str,
            "body": bytes,
            "at": float,
        },
        pk="id",
        not_null={"key", "fingerprint", "kind", "prompt", "detail", "error", "body", "at"},
    )
    db["failures"].create_index(["key"])
    db["quarantine"].create(
        {"id": int, "key": str, "row": bytes, "problem": str, "at": float},
        pk="id",
        not_null={"key", "row", "problem", "at"},
    )


@migrations()  # type: ignore[untyped-decorator]
def m002_leases(db: Any) -> None:
    """Leases, so that two audits that share a store do not ask the same question."""
    db["owners"].create({"owner": str, "until": float}, pk="owner", not_null={"until"})
    db["leases"].create({"key": str, "owner": str}, pk="key", not_null={"owner"})
    db["leases"].create_index(["owner"])


@migrations()  # type: ignore[untyped-decorator]
def m003_runs(db: Any) -> None:
    """Runs with their results, the numeric rows behind them, and baselines."""
    db["runs"].create(
        {
            "id": str,
            "title": str,
            "config": bytes,
            "status": str,
            "started": str,
            "finished": str,
            "result": bytes,
        },
        pk="id",
        not_null={"title", "config", "status", "started"},
    )
    db["item_rows"].create(
        {
            "id": int,
            "run": str,
            "model": str,
            "suite": str,
            "item": str,
            "factors": bytes,
            "quantities": bytes,
            "missing": str,
            "keys": bytes,
        },
        pk="id",
        not_null={"run", "model", "suite", "item", "factors", "quantities", "keys"},
    )
    db["item_rows"].create_index(["run", "model", "suite"])
    db["baselines"].create({"id": int, "name": str, "run": str, "at": str}, pk="id", not_null={"name", "run", "at"})
    db["baselines"].create_index(["name"])


@migrations()  # type: ignore[untyped-decorator]
def m004_row_chunks(db: Any) -> None:
    """Rows in compressed chunks of thousands: a tenth of the space, a fifth of the time."""
    db["row_chunks"].create(
        {"id": int, "run": str, "model": str, "suite": str, "body": bytes},
        pk="id",
        not_null={"run", "model", "suite", "body"},
    )
    db["row_chunks"].create_index(["run", "model", "suite"])
    source = db.execute(
        "SELECT run, model, suite, item, factors, quantities, missing, keys FROM item_rows "
        "ORDER BY run, model, suite, id"
    )
    for whose, rows in itertools.groupby(source, key=lambda row: row[:3]):
        while some := list(itertools.islice(rows, 2000)):
            written = [
                [item, json.loads(factors), json.loads(quantities), missing, keys.decode().split("\n") if keys else []]
                for _, _, _, item, factors, quantities, missing, keys in some
            ]
            body = zlib.compress(json.dumps(written, ensure_ascii=False).encode("utf-8", "surrogatepass"), 1)
            db.execute("INSERT INTO row_chunks (run, model, suite, body) VALUES (?, ?, ?, ?)", (*whose, body))
    db["item_rows"].drop()


@migrations()  # type: ignore[untyped-decorator]
def m005_fingerprint_aliases(db: Any) -> None:
    """Different fingerprints of one model (earlier versions wrote more fields), and the id used for its answers.

    ``copied_to`` is the last row of ``answers`` that was copied to that id.
    """
    db["fingerprint_aliases"].create(
        {"id": str, "kept_under": str, "copied_to": int}, pk="id", not_null={"kept_under", "copied_to"}
    )


@migrations()  # type: ignore[untyped-decorator]
def m006_second_answers(db: Any) -> None:
    """Questions that were asked twice, with both answers; the second is NULL until it arrives.

    ``key`` is the first of ``keys``.
    """
    db["second_answers"].create(
        {
            "key": str,
            "fingerprint": str,
            "keys": bytes,
            "first": bytes,
            "second": bytes,
            "checksum": str,
            "at": float,
        },
        pk="key",
        not_null={"fingerprint", "keys", "first", "checksum", "at"},
    )
    db["second_answers"].create_index(["fingerprint"])


@migrations()  # type: ignore[untyped-decorator]
def m007_gate_nights(db: Any) -> None:
    """The data and outcome of every gate, night by night; and the random orders in which runs ask their items.

    ``data`` is a hash of the answers behind a figure: the same answers again are not a new look.
    """
    db["gate_looks"].create(
        {"id": int, "baseline": str, "figure": str, "look": int, "data": str},
        pk="id",
        not_null={"baseline", "figure", "look", "data"},
    )
    db["gate_looks"].create_index(["baseline", "figure", "data"], unique=True)
    db["gate_nights"].create(
        {"id": int, "baseline": str, "run": str, "body": bytes}, pk="id", not_null={"baseline", "run", "body"}
    )
    db["gate_nights"].create_index(["baseline", "run"], unique=True)
    db["item_orders"].create({"id": str, "body": bytes}, pk="id", not_null={"body"})


@migrations()  # type: ignore[untyped-decorator]
def m008_packed_scores(db: Any) -> None:
    """The scores of a prompt's continuations in one value; the first bytes of their keys; leases a request each.

    Answers that are rows of their own, and their leases, stay where they are: so nothing of them can be lost, and an
    audit that opened the file before this step goes on. An id is never used again: what was read up to one is known.
    """
    db.execute(
        "CREATE TABLE packed_scores (id INTEGER PRIMARY KEY AUTOINCREMENT, grp BLOB NOT NULL, "
        "fingerprint TEXT NOT NULL, prompt TEXT NOT NULL, answers INTEGER NOT NULL, body BLOB NOT NULL, "
        "checksum BLOB NOT NULL, at REAL NOT NULL)"
    )
    db.execute("CREATE INDEX idx_packed_scores_grp ON packed_scores (grp)")
    db.execute("CREATE TABLE packed_keys (id INTEGER PRIMARY KEY, tags BLOB NOT NULL)")
    db.execute(
        "CREATE TABLE request_leases (grp BLOB NOT NULL, tags BLOB NOT NULL, owner TEXT NOT NULL, "
        "PRIMARY KEY (grp, tags)) WITHOUT ROWID"
    )
    db.execute("CREATE INDEX idx_request_leases_owner ON request_leases (owner)")
    db.execute("ALTER TABLE fingerprint_aliases ADD COLUMN packed_copied_to INTEGER NOT NULL DEFAULT 0")


@migrations()  # type: ignore[untyped-decorator]
def m009_shards(db: Any) -> None:
    """What a file is in a store of several, if it belongs to one: 0 is the store itself, its shards count from 1.

    ``epoch`` counts the processes that have owned a shard. ``owner_calls`` has the last call of each client to an
    owner, and what it gave: so that a call which is repeated, since its answer was lost, is carried out once.
    """
    db.execute(
        "CREATE TABLE shard (id INTEGER PRIMARY KEY CHECK (id = 1), store TEXT NOT NULL, number INTEGER NOT NULL, "
        "shards INTEGER NOT NULL, epoch INTEGER NOT NULL DEFAULT 0)"
    )
    db.execute("CREATE TABLE owner_calls (client TEXT PRIMARY KEY, number INTEGER NOT NULL, results BLOB NOT NULL)")


@migrations()  # type: ignore[untyped-decorator]
def m010_doubts(db: Any) -> None:
    """Models whose draws left a doubt about words outside their lists, and what these may have at most.

    A doubt belongs to the answers rather than to a run: parts have no result, and stores are merged without runs.
    """
    db.execute("CREATE TABLE doubts (fingerprint TEXT PRIMARY KEY, share REAL NOT NULL)")
