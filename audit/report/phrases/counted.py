"""Numbers of things, and lists of them, in words."""

from __future__ import annotations

from collections.abc import Iterable


def verb(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def enumeration(things: Iterable[str]) -> str:
    items = list(things)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""
