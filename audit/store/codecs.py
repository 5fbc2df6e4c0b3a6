"""How the numeric rows of a run are kept: some thousands as one JSON text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from audit.store.keys import from_bytes, to_bytes
from suites.base import IdentifiedInterval, Row

ROWS_A_CHUNK = 2000  # few enough for memory, enough to be written and packed in one go


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A suite's row together with the keys of the answer it was read from."""

    row: Row
    keys: tuple[str, ...]


def write_chunk(rows: Sequence[StoredRow]) -> bytes:
    """Rows as JSON: ``[item, factors, quantities, missing, keys]`` each.

    A quantity is one number where it equals its bounds, else ``[value or null, low, high]``; it is never NaN
    (`IdentifiedInterval` sees to that). A factor that is NaN becomes null: JSON has none.
    """
    written = [
        [
            stored.row.item_id,
            dict(stored.row.factors),
            {
                name: n.value if n.value == n.low == n.high else [n.value, n.low, n.high]
                for name, n in stored.row.values.items()
            },
            stored.row.missing,
            stored.keys,
        ]
        for stored in rows
    ]
    try:
        return orjson.dumps(written)
    except orjson.JSONEncodeError:  # lone surrogates, and whole numbers of more than 64 bits
        return to_bytes(json.dumps(written, ensure_ascii=False, allow_nan=False))


def read_chunk(text: bytes) -> list[StoredRow]:
    """Read back what `write_chunk` wrote."""
    return [
        StoredRow(
            Row(
                item,
                factors,
                {
                    name: IdentifiedInterval(*number) if isinstance(number, list) else IdentifiedInterval.exact(number)
                    for name, number in quantities.items()
                },
                missing,
            ),
            tuple(keys),
        )
        for item, factors, quantities, missing, keys in json.loads(from_bytes(text))
    ]
