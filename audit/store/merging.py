"""Merges stores: every answer of another store is verified and then stored, unless its key is answered already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from audit.store import rows, second_answers
from audit.store.database import Database, chunked
from audit.store.files import Files
from audit.store.rows import AnswerRow, DamagedError, Written

_TOGETHER = 500  # rows per transaction, so that others may write in between


@dataclass(slots=True)
class Merged:
    """The result of merging a store.

    Attributes
    ----------
    answers, new : int
        Its undamaged answers, and those of them that were not stored here.
    damaged : list of str
        The keys of answers that are not taken over.
    others : list of str
        The keys of answers in place of which another one is stored here, which counts.
    """

    answers: int = 0
    new: int = 0
    damaged: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def merge_answers(target: Files, source: Files) -> Merged:
    """Add the answers of one store to another's; the first one under a key is final. ``source`` stays as it is.

    Damaged rows stay where they are. After an interruption, merging again adds what is missing.
    """
    merged = Merged()
    for file in source:
        for chunk in chunked(_read(file, merged), _TOGETHER):
            merged.answers += len(chunk)
            for into, some in target.split(chunk, lambda one: one.row.prompt):
                known = _kept(into, some)
                into.submit(lambda db, some=some: rows.insert(db, some)).result()  # type: ignore[misc]
                merged.new += len(some) - len(known)
                merged.others += [one.row.key for one in some if known.get(one.row[:2], one.row.value) != one.row.value]
    return merged


def copy_facts(target: Database, files: Iterable[Database], source: Database, outdone: Iterable[str]) -> None:
    """Copy fingerprints and second answers, but for those whose first answer does not count; no runs or failures."""
    with source.read() as db:
        fingerprints = db.execute("SELECT * FROM fingerprints").fetchall()
        pairs = second_answers.sound_rows(db)
    sql = "INSERT OR IGNORE INTO fingerprints VALUES (?, ?, ?)"
    for database in dict.fromkeys((target, *files)):
        database.submit(lambda db: db.executemany(sql, fingerprints) and None).result()
    lost = set(outdone)
    counting = [pair for pair in pairs if pair[0] not in lost]
    target.submit(lambda db: second_answers.add_rows(db, counting)).result()


def _read(file: Database, merged: Merged) -> Iterator[Written]:
    """The sound answers of a file; the others are noted."""
    sql = f"SELECT {rows.COLUMNS}, body FROM answers LEFT JOIN prompts ON prompts.id = answers.text ORDER BY answers.id"
    with file.read() as db:
        for *values, prompt in db.execute(sql):
            row = AnswerRow(*values)
            try:
                row.question(prompt)
            except DamagedError:
                merged.damaged.append(row.key)
            else:
                yield Written(row, prompt)


def _kept(file: Database, some: Iterable[Written]) -> dict[tuple[bytes, bytes], bytes]:
    """The values that a file has already under the keys of others."""
    keys = {one.row[:2] for one in some}
    with file.read() as db:
        return {row[:2]: row.value for row in rows.of_prompts(db, {prompt for prompt, _ in keys}) if row[:2] in keys}
