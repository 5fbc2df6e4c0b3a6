"""Which part of an audit an item belongs to, when machines share its items.

An item's prompt decides, by its hash: so the parts do not depend on the order of the items, on the machine or on the
model; a prompt that several items share, draws and repeats among them, is asked in one part alone; and what follows
from an answer is asked where that answer is.
"""

from __future__ import annotations

from collections.abc import Iterable

from audit.store.keys import prompt_json, text_id
from suites.base import Item


def in_part(items: Iterable[Item], part: tuple[int, int]) -> bytearray:
    """1 for each item that belongs to a part, else 0. (2, 3) is the second of three."""
    number, of = part
    return bytearray(_number(item, of) == number for item in items)


def _number(item: Item, of: int) -> int:
    return int.from_bytes(text_id(prompt_json(item.request))) % of + 1
