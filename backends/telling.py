"""What a backend says while somebody waits for it, such as how many requests its look at a server has sent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

#: Receives each line; by default nobody does.
TELL: ContextVar[Callable[[str], None]] = ContextVar("TELL", default=lambda line: None)


def tell(line: str) -> None:
    """Say one line to whoever listens; one that ends in a carriage return is replaced by the next."""
    TELL.get()(line)
