"""Text that files can hold."""

from __future__ import annotations

from typing import Any


def writable(data: Any) -> Any:
    """JSON-like data with lone surrogates escaped (``\\udcff``): UTF-8 cannot encode them.

    Models write them, and names of files have them where they are no UTF-8.
    """
    match data:
        case str():
            return data if data.isascii() else data.encode("utf-8", "backslashreplace").decode("utf-8")
        case dict():
            return {writable(name): writable(value) for name, value in data.items()}
        case list():
            return [writable(value) for value in data]
    return data
