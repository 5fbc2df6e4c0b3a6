"""The line of each value in a TOML text, which the standard library's reader does not give.

The text is known to be valid, so only as much of the grammar is followed as is needed to tell values apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from backends.options.models import Place

_BLANK = re.compile(r"(?:\s|#[^\n]*)*")
_KEY = re.compile(r"\s*(?:\"((?:[^\"\\\n]|\\.)*)\"|'([^'\n]*)'|([A-Za-z0-9_-]+))\s*")
_SCALARS = (
    re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}(?!")', re.DOTALL),
    re.compile(r"'''.*?'{3,5}(?!')", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
    re.compile(r"[^,\]}\n#]+"),
)


def lines_of(text: str) -> dict[Place, int]:
    """The path of each table, key and list entry → its line, counted from 1."""
    return _Lines(text).found


class _Lines:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.found: dict[Place, int] = {}
        self._entries: dict[Place, int] = {}  # array of tables → index of its last table so far
        table: Place = ()
        while self._skip():
            if self._take("[["):
                table = self._table(self._key())
                self._entries[table] = self._entries.get(table, -1) + 1
                table = (*table, self._entries[table])
                self._at_line(table)
                self._take("]]")
            elif self._take("["):
                table = self._table(self._key())
                self._at_line(table)
                self._take("]")
            else:
                self._pair(table)

    def _skip(self) -> bool:
        """Skip blanks and comments; False at the end."""
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._at < len(self._text)

    def _take(self, sign: str) -> bool:
        taken = self._text.startswith(sign, self._at)
        self._at += len(sign) if taken else 0
        return taken

    def _at_line(self, place: Place) -> None:
        self.found.setdefault(place, self._text.count("\n", 0, self._at) + 1)

    def _key(self) -> Place:
        parts = []
        while (match := _KEY.match(self._text, self._at)) is not None:
            self._at = match.end()
            parts.append(next(part for part in match.groups() if part is not None))
            if not self._take("."):
                break
        return tuple(parts)

    def _table(self, key: Place) -> Place:
        """The path of a table's header: an array of tables above it stands for its last table."""
        place: Place = ()
        for part in key[:-1]:
            place = (*place, part)
            if place in self._entries:
                place = (*place, self._entries[place])
        return (*place, key[-1])

    def _pair(self, table: Place) -> None:
        line_start = self._at
        key = (*table, *self._key())
        self.found.setdefault(key, self._text.count("\n", 0, line_start) + 1)
        self._skip()
        self._take("=")
        self._value(key)

    def _value(self, place: Place) -> None:
        self._skip()
        self._at_line(place)
        if self._take("["):
            self._list("]", lambda number: self._value((*place, number)))
        elif self._take("{"):
            self._list("}", lambda _: self._pair(place))
        else:
            matches = (pattern.match(self._text, self._at) for pattern in _SCALARS)
            self._at = next((match.end() for match in matches if match is not None), self._at + 1)

    def _list(self, end: str, entry: Callable[[int], None]) -> None:
        number = 0
        while self._skip() and not self._take(end):
            entry(number)
            number += 1
            self._skip()
            self._take(",")
