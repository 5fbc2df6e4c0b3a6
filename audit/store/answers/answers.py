"""The answers, failures and prompts of one open store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from audit.store.answers import lookup, packed, prompts, writing
from audit.store.answers.by_key import ByKey
from audit.store.answers.lookup import Found
from audit.store.answers.packed import PackedRow, Unpacked
from audit.store.answers.quarantine import ToQuarantine, beginning, move
from audit.store.answers.rows import ANSWER_COLUMNS, AnswerRow, DamagedError, select
from audit.store.answers.values import Entry, StoredAnswer, Verification
from audit.store.answers.verifying import read_everything, rebuild_indices
from audit.store.keys import KeyedRequest, from_json_bytes, join_request
from audit.store.sqlite.database import Database, StoreError
from backends.base import Answer, ScoreRequest, ScoreResponse


class Answers:
    """The answers, failures and prompts of one open store. ``client`` is the store's name as the holder of leases."""

    def __init__(self, database: Database, client: str) -> None:
        self._database, self._client = database, client
        self._by_key = ByKey()

    def read(self, requests: Iterable[KeyedRequest]) -> Found:
        """What is stored of requests.

        A row whose checksum is wrong is quarantined and treated as absent.
        """
        requests = list(requests)
        with self._database.read() as db:
            found = lookup.find(db, requests)
            lookup.find_failures(db, found.missing(requests), found)
        self._quarantine_damaged(found)
        return found

    def answered(self, requests: Iterable[KeyedRequest]) -> set[str]:
        """The answered keys of requests. Failures are not answers. Otherwise like `read`."""
        with self._database.read() as db:
            found = lookup.find(db, list(requests))
        self._quarantine_damaged(found)
        return found.answered()

    # -- by key alone ------------------------------------------------------------------------

    def read_with_prompts(self, keys: Iterable[str]) -> dict[str, tuple[Any, Any, Answer]]:
        """(prompt, part, answer) for each of ``keys`` with an undamaged answer, the first two as JSON values.

        The part is what the key adds to the prompt: a continuation, or how a text is drawn.
        """
        keys = list(keys)
        found: dict[str, tuple[Any, Any, Answer]] = {}
        with self._database.read() as db:
            texts: dict[str, Any] = {}
            for row in select(db, keys):
                if row.prompt not in texts:
                    texts[row.prompt] = prompts.read(db, row.prompt)
                if texts[row.prompt] is not None:
                    with contextlib.suppress(DamagedError):
                        answer = row.answer()
                        found[row.key] = texts[row.prompt], from_json_bytes(row.part), answer
            of_other_kinds = {key for key, (*_, answer) in found.items() if not isinstance(answer, ScoreResponse)}
            packed_ones, _ = self._by_key.find(db, (key for key in keys if key not in of_other_kinds))
            for key, (unpacked, place) in packed_ones.items():
                question = unpacked.question
                found[key] = question.prompt, question.details[place], unpacked.piece(place)
        return found

    def latest(self, fingerprint: str, most: int) -> list[StoredAnswer]:
        """The last ``most`` undamaged answers of one model, in the order in which they were stored."""
        with self._database.read() as db:
            sql = f"SELECT {ANSWER_COLUMNS} FROM answers WHERE fingerprint = ? ORDER BY rowid DESC LIMIT ?"
            single = [AnswerRow(*row) for row in db.execute(sql, (fingerprint, most)).fetchall()]
            found = [answer for row in reversed(single) for answer in _stored(row, prompts.read(db, row.prompt))]
            if packed.is_any(db):
                sql = f"SELECT {packed.COLUMNS} FROM packed_scores WHERE fingerprint = ? ORDER BY id DESC LIMIT ?"
                together: list[list[StoredAnswer]] = []
                for row in db.execute(sql, (fingerprint, most)):
                    of_row = PackedRow(*row)
                    together.append(_stored_together(of_row, prompts.read(db, of_row.prompt)))
                    if sum(map(len, together)) >= most:
                        break
                found += [answer for some in reversed(together) for answer in some]
                found.sort(key=lambda answer: answer.at)
        return found[-most:]

    async def write(self, entries: Sequence[Entry]) -> list[bool]:
        """Store answers and failures; returns when they are on the disk.

        The first answer under a key stays: a later one for the same key is not stored. Returns for each entry whether
        it is what counts now.

        Raises
        ------
        StoreError
            They are not stored.
        ValueError
            A number is not finite.
        """
        now = time.time()
        encoded = [writing.encode(entry, now) for entry in entries]
        insert = partial(writing.insert, encoded=encoded, client=self._client)
        counts = await asyncio.wrap_future(self._database.submit(insert, gather=True))
        return [bool(one.failed) or count == len(one.keys) for one, count in zip(encoded, counts, strict=True)]

    # -- quarantine --------------------------------------------------------------------------

    def quarantine(self, keys: Sequence[str], problem: str) -> list[str]:
        """Quarantine the answers under ``keys``, so that they are asked again. Returns the keys that had one."""
        with self._database.read() as db:
            pending = ToQuarantine(list(select(db, keys)))
            found, pending.damaged = self._by_key.find(db, keys)
            for key, (unpacked, _) in found.items():
                pending.add(unpacked, [key])
        self._quarantine(pending, problem)
        there = {row.key for row in pending.single} | found.keys() | set().union(*pending.damaged.values())
        return [key for key in dict.fromkeys(keys) if key in there]

    def quarantine_since(self, fingerprint: str, since: float, problem: str) -> list[str]:
        """Quarantine a model's answers stored after ``since`` (seconds since the epoch). Returns their keys."""
        where = "WHERE fingerprint = ? AND at > ?"
        with self._database.read() as db:
            sql = f"SELECT {ANSWER_COLUMNS} FROM answers {where}"
            pending = ToQuarantine([AnswerRow(*row) for row in db.execute(sql, (fingerprint, since))])
            if packed.is_any(db):
                sql = f"SELECT {packed.COLUMNS} FROM packed_scores {where}"
                for row in [PackedRow(*row) for row in db.execute(sql, (fingerprint, since))]:
                    try:
                        unpacked = Unpacked.of(row, row.scores(), prompts.read(db, row.prompt))
                        pending.add(unpacked, unpacked.question.keys)
                    except DamagedError:
                        pending.damaged[row] = set()
        self._quarantine(pending, problem)
        return [row.key for row in pending.single] + [key for _, keys in pending.packed.values() for key in keys]

    def _quarantine_damaged(self, found: Found) -> None:
        self._quarantine(ToQuarantine(found.damaged, found.damaged_packed), "checksum")

    def _quarantine(self, pending: ToQuarantine, problem: str) -> None:
        if pending and not self._database.read_only:
            self._database.submit(partial(move, pending=pending, problem=problem)).result()

    # -- inspection --------------------------------------------------------------------------

    def inspect(self, key: str) -> dict[str, Any] | None:
        """Everything stored under a key: the model, the question, the answer, failures. None if unknown."""
        with self._database.read() as db:
            row, is_sound = self._single_row(db, key)
            failures = db.execute(
                "SELECT fingerprint, kind, prompt, detail, body, at FROM failures WHERE key = ? ORDER BY id", (key,)
            ).fetchall()
            quarantined = db.execute(
                "SELECT problem, at FROM quarantine WHERE key IN (?, ?) ORDER BY id", (key, beginning(key))
            ).fetchall()
            if row is None and not failures and not quarantined:
                return None
            found: dict[str, Any] = {"key": key, "answered": row is not None}
            source = row[1:5] if row is not None else failures[-1][:4] if failures else None
            if source is not None:
                found |= _question(db, *source)
        if row is not None:
            found["answer"] = from_json_bytes(row.body)
            found["stored"] = _iso(row.at)
            found["checksum"] = "right" if is_sound else "wrong"
        found["failures"] = [{"error": from_json_bytes(body)[1], "at": _iso(at)} for *_, body, at in failures]
        found["quarantine"] = [{"problem": problem, "at": _iso(at)} for problem, at in quarantined]
        return found

    def _single_row(self, db: Any, key: str) -> tuple[AnswerRow | None, bool]:
        """The row under a key, or the equivalent row for a packed answer; and whether it is undamaged."""
        row = next(select(db, [key]), None)
        if row is not None and row.kind != "score":
            return row, row.is_sound
        found, damaged = self._by_key.find(db, [key])
        if key in found:
            return found[key][0].single_rows([key])[0], True
        if row is not None:
            return row, row.is_sound
        for packed_row in damaged:
            try:
                unpacked = Unpacked.of(packed_row, packed_row.scores_if_any(), prompts.read(db, packed_row.prompt))
                return unpacked.single_rows([key])[0], False
            except (DamagedError, IndexError):
                continue
        return None, False

    def verify(self) -> Verification:
        """Read everything: check the file's structure and every checksum, and hash every key again.

        Damaged rows are quarantined, indices that contradict their tables are rebuilt, and packed rows that their keys
        do not lead to are found again (not when read-only).
        """
        with self._database.read() as db:
            checked = read_everything(db)
        problems = checked.file_problems
        if problems and not self._database.read_only:  # a wrong index is made anew from its table
            with contextlib.suppress(StoreError):
                self._database.submit(rebuild_indices).result()
                with self._database.read() as db:
                    checked = read_everything(db)
                problems = checked.file_problems or tuple(f"{one} (the indices were rebuilt)" for one in problems)
        if checked.tags and not self._database.read_only:
            self._database.submit(partial(packed.write_tags, by_row=checked.tags)).result()
        self._quarantine(checked.pending, "found by verify")
        return Verification(checked.answers, checked.names, problems, len(checked.tags))


def _stored(row: AnswerRow, prompt: Any) -> Iterator[StoredAnswer]:
    """A row's answer, or None if it is damaged."""
    try:
        if prompt is not None:
            request = join_request(row.kind, prompt, from_json_bytes(row.part))
            yield StoredAnswer(row.kind, request, row.answer(), row.at)
    except (DamagedError, ValueError):
        return


def _stored_together(row: PackedRow, prompt: Any) -> list[StoredAnswer]:
    try:
        unpacked = Unpacked.of(row, row.scores(), prompt)
    except DamagedError:
        return []
    request = unpacked.question.request
    assert isinstance(request, ScoreRequest)
    return [
        StoredAnswer("score", ScoreRequest(request.prompt, (c,), request.first_given), unpacked.piece(place), row.at)
        for place, c in enumerate(request.continuations)
    ]


def _question(db: Any, fingerprint: str, kind: str, prompt: str, part: bytes) -> dict[str, Any]:
    fields = db.execute("SELECT body FROM fingerprints WHERE id = ?", (fingerprint,)).fetchone()
    text = db.execute("SELECT body FROM prompts WHERE id = ?", (prompt,)).fetchone()
    return {
        "fingerprint_id": fingerprint,
        "fingerprint": None if fields is None else from_json_bytes(fields[0]),
        "kind": kind,
        "prompt": None if text is None else from_json_bytes(text[0]),
        "detail": from_json_bytes(part),
    }


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
