"""The owner of a shard: the one process that writes its file, until another one takes its place.

Each owner begins an epoch, which the file counts. Every transaction checks it: an owner that was replaced, and does not
know it, writes nothing. Work arrives in numbered calls from clients. A call's results are stored in its transaction, so
that a client that got no answer may call again, this owner or the next one: what was done is not done twice.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from audit.store.clients import is_gone, new_client
from audit.store.leases import keep_through_change
from audit.store.shards.files import ShardId, check_identity
from audit.store.sqlite.database import Database, StoreError, store_error

#: Work to do in a transaction; it travels between processes.
Work = Callable[[sqlite3.Connection], Any]


class Done(NamedTuple):
    """What became of one piece of work: its result, or the error that it raised."""

    result: Any
    error: Exception | None = None


class ShardOwner:
    """Owns a shard's file from its making on.

    Parameters
    ----------
    path : str
        The file, on a disk of this machine.
    store, number, shards
        Which shard of which store it is; another file is refused.
    """

    def __init__(self, path: str, store: str, number: int, shards: int) -> None:
        file = Path(path)
        check_identity(file, ShardId(store, number, shards))
        self._database = Database(file, read_only=False)
        self.epoch: int = self._database.submit(_begin_epoch).result()

    def perform(self, client: str, number: int, works: Sequence[Work]) -> list[Done]:
        """Do pieces of work in one transaction; returns when it is on the disk.

        ``number`` is higher in each of a client's calls, and the same when one is repeated. A piece that fails leaves
        nothing behind, and the others alone.

        Raises
        ------
        StoreError
            Nothing of it is stored: the file cannot be written, or another owner has taken this one's place.
        """
        call = partial(_perform, path=self._database.path, epoch=self.epoch, client=client, number=number, works=works)
        return self._database.submit(call, gather=True).result()

    def process(self) -> str:
        """This process, as `audit.store.clients.new_client` names it."""
        return new_client()

    def forget(self, client: str) -> None:
        """Forget the last call of a client, which will make none any more."""
        sql = "DELETE FROM owner_calls WHERE client = ?"
        self._database.submit(lambda db: db.execute(sql, (client,))).result()

    def close(self) -> None:
        """Finish queued work and close the file."""
        self._database.close()


def _begin_epoch(db: sqlite3.Connection) -> int:
    keep_through_change(db)
    gone = [(client,) for (client,) in db.execute("SELECT client FROM owner_calls").fetchall() if is_gone(client)]
    db.executemany("DELETE FROM owner_calls WHERE client = ?", gone)
    (epoch,) = db.execute("UPDATE shard SET epoch = epoch + 1 RETURNING epoch").fetchone()
    return int(epoch)


def _perform(
    db: sqlite3.Connection, *, path: Path, epoch: int, client: str, number: int, works: Sequence[Work]
) -> list[Done]:
    (current,) = db.execute("SELECT epoch FROM shard").fetchone()
    if current != epoch:
        raise StoreError(path, "replaced", f"owner {epoch} of this shard was replaced by owner {current}")
    last = db.execute("SELECT number, results FROM owner_calls WHERE client = ?", (client,)).fetchone()
    if last is not None and last[0] == number:
        repeated: list[Done] = pickle.loads(last[1])
        return repeated
    if last is not None and last[0] > number:  # it was repeated and carried out; its client has gone on since
        raise StoreError(path, "replaced", f"call {number} comes after call {last[0]} of the same client")
    done = [_attempt(db, path, work) for work in works]
    db.execute("INSERT OR REPLACE INTO owner_calls VALUES (?, ?, ?)", (client, number, pickle.dumps(done)))
    return done


def _attempt(db: sqlite3.Connection, path: Path, work: Work) -> Done:
    db.execute("SAVEPOINT work")
    try:
        done = Done(work(db))
    except sqlite3.OperationalError:  # the disk is full: nothing can be stored
        raise
    except sqlite3.Error as error:
        db.execute("ROLLBACK TO work")
        done = Done(None, store_error(path, error))
    except Exception as error:
        db.execute("ROLLBACK TO work")
        done = Done(None, error)
    db.execute("RELEASE work")
    return done
