"""Identifies a model's stored answers by its fingerprint, with aliases for fingerprints that earlier versions wrote.

An answer's key contains the id of its model's fingerprint. Removing a field from the fingerprint, because it does not
affect answers, changes that id. So that nothing is asked again, such fields are declared retired
(`backends.base.Description.retired`), and the model keeps the id under which its answers are stored. If several ids
were in use, the one with the most answers is kept, and the answers of the others are copied to it; the old rows
stay, since rows of earlier runs refer to their keys.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

from audit.store.answers import packed, prompts
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.rows import ANSWER_COLUMNS, AnswerRow, DamagedError
from audit.store.answers.values import Entry
from audit.store.answers.writing import EncodedEntry, encode, insert
from audit.store.keys import fingerprint_id, from_json_bytes, join_request, keyed_request, to_json_bytes
from audit.store.shards.databases import Databases
from audit.store.sqlite.database import Database, placeholders

_COPIED_TOGETHER = 1000  # answers per transaction, so that others may write in between
_ALIAS = "INSERT OR REPLACE INTO fingerprint_aliases (id, kept_under, copied_to, packed_copied_to) VALUES (?, ?, ?, ?)"


class Fingerprints:
    """The fingerprints of one open store; ``files`` hold its answers, and know what they are answers of too."""

    def __init__(self, database: Database, files: Databases) -> None:
        self._database, self._files = database, files

    def resolve(self, fingerprint: Mapping[str, Any], retired: Set[str] = frozenset()) -> str:
        """Record a fingerprint. Returns the id under which its model's answers are read and written.

        Parameters
        ----------
        fingerprint : mapping
            The backend's current description of the model.
        retired : set of str
            Fields that earlier versions wrote but that do not affect answers: they are ignored when stored
            fingerprints are compared.
        """
        own = fingerprint_id(fingerprint)
        for database in dict.fromkeys((self._database, *self._files)):
            database.write(
                "INSERT OR IGNORE INTO fingerprints (id, body, at) VALUES (?, ?, ?)",
                (own, to_json_bytes(dict(fingerprint)), time.time()),
            )
        with self._database.read() as db:
            aliases = dict(db.execute("SELECT id, kept_under FROM fingerprint_aliases"))
            same = {own} | (_same_model(db, fingerprint, retired) if retired else set())
        targets = {aliases[name] for name in same if name in aliases}
        same |= targets
        if same == {own}:
            return own
        kept_under = min(targets) if targets else self._most_answered(same)
        for name in sorted(same):
            for file in self._files:
                self._copy(file, name, kept_under)
            if self._database not in self._files and aliases.get(name) != kept_under:
                self._database.write(_ALIAS, (name, kept_under, 0, 0))
        return kept_under

    def _most_answered(self, ids: Set[str]) -> str:
        names = sorted(ids)
        counts: Counter[str] = Counter()
        for file in self._files:
            with file.read() as db:
                for table, count in (("answers", "count(*)"), ("packed_scores", "sum(answers)")):
                    marks = placeholders(names)
                    sql = f"SELECT fingerprint, {count} FROM {table} WHERE fingerprint IN ({marks}) GROUP BY 1"
                    counts.update(dict(db.execute(sql, names)))
        return max(names, key=lambda name: counts[name])

    def _copy(self, file: Database, name: str, target: str) -> None:
        """Copy the answers of one id in a file to another id, from where the last copying ended."""
        sql = "SELECT kept_under, copied_to, packed_copied_to FROM fingerprint_aliases WHERE id = ?"
        with file.read() as db:
            known = db.execute(sql, (name,)).fetchone()
        last = known[1:] if known is not None and known[0] == target else (0, 0)
        if name != target:  # an earlier version that still runs may have written more since the last time
            last = self._copy_answers(file, name, target, last[0]), self._copy_packed(file, name, target, last[1])
        if known != (target, *last):
            file.write(_ALIAS, (name, target, *last))

    def _copy_answers(self, file: Database, source: str, target: str, last: int) -> int:
        """Copy the answers of one id after row ``last`` to another, in chunks. Returns the last row copied.

        Existing answers stay; repeating the copy is harmless.
        """
        sql = f"SELECT rowid, {ANSWER_COLUMNS} FROM answers WHERE fingerprint = ? AND rowid > ? ORDER BY rowid LIMIT ?"
        while True:
            with file.read() as db:
                found = db.execute(sql, (source, last, _COPIED_TOGETHER)).fetchall()
                copies = [copy for _, *row in found if (copy := _under(db, AnswerRow(*row), target)) is not None]
            if not found:
                return last
            last = found[-1][0]
            self._insert(copies)

    def _copy_packed(self, file: Database, source: str, target: str, last: int) -> int:
        """The same for packed rows."""
        sql = f"SELECT {packed.COLUMNS} FROM packed_scores WHERE fingerprint = ? AND id > ? ORDER BY id LIMIT ?"
        while True:
            with file.read() as db:
                found = [PackedRow(*row) for row in db.execute(sql, (source, last, _COPIED_TOGETHER))]
                copies = [copy for row in found if (copy := _packed_under(db, row, target)) is not None]
            if not found:
                return last
            last = found[-1].id
            self._insert(copies)

    def _insert(self, copies: Sequence[EncodedEntry]) -> None:
        """Store copies where their keys belong, which begin otherwise than those of their sources."""
        for place, some in self._files.split(copies, lambda copy: copy.group):
            self._files[place].submit(partial(insert, encoded=some)).result()


def _same_model(db: sqlite3.Connection, fingerprint: Mapping[str, Any], retired: Set[str]) -> set[str]:
    wanted = _essence(fingerprint, retired)
    stored = db.execute("SELECT id, body FROM fingerprints").fetchall()
    return {name for name, body in stored if _essence(from_json_bytes(body), retired) == wanted}


def _essence(fingerprint: Mapping[str, Any], retired: Set[str]) -> str:
    return fingerprint_id({field: value for field, value in fingerprint.items() if field not in retired})


def _under(db: sqlite3.Connection, row: AnswerRow, fingerprint: str) -> EncodedEntry | None:
    """The row's answer under another fingerprint's id, as old as it is; None for a damaged row."""
    prompt = prompts.read(db, row.prompt)
    if prompt is None:
        return None
    try:
        answer = row.answer()
    except DamagedError:
        return None
    question = keyed_request(join_request(row.kind, prompt, from_json_bytes(row.part)), fingerprint)
    return encode(Entry(question, answer), row.at)


def _packed_under(db: sqlite3.Connection, row: PackedRow, fingerprint: str) -> EncodedEntry | None:
    """The row's answers under another fingerprint's id, as old as they are; None for a damaged row."""
    try:
        unpacked = Unpacked.of(row, row.scores(), prompts.read(db, row.prompt))
    except DamagedError:
        return None
    return encode(Entry(keyed_request(unpacked.question.request, fingerprint), unpacked.response), row.at)
