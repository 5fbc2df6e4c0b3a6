"""The random orders in which runs ask their items, stored so that a resumed or repeated run uses the same one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

from audit.store.keys import from_bytes, to_bytes
from audit.store.sqlite.database import Database


class Orders:
    """The orders of one open store, by an id for what they depend on: a suite, its options and a seed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, order_id: str) -> list[str] | None:
        """The item ids in order; None if none is stored."""
        with self._database.read() as db:
            row = db.execute("SELECT body FROM item_orders WHERE id = ?", (order_id,)).fetchone()
        if row is None:
            return None
        order: list[str] = json.loads(from_bytes(zlib.decompress(row[0])))
        return order

    def write(self, order_id: str, items: Sequence[str]) -> None:
        """Store an order, unless there is one already."""
        body = zlib.compress(to_bytes(json.dumps(list(items), ensure_ascii=False)))
        self._database.write("INSERT OR IGNORE INTO item_orders (id, body) VALUES (?, ?)", (order_id, body))
