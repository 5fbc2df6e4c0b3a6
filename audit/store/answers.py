"""The answers of one open store: found by what was asked, written once, set aside if they cannot be believed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import operator
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from audit.store import rows
from audit.store.database import Database
from audit.store.files import Files
from audit.store.keys import (
    PROMPT_BYTES,
    Keyed,
    details,
    from_json_bytes,
    key_bytes,
    prompt_json,
    text_id,
    to_json_bytes,
)
from audit.store.rows import AnswerRow, DamagedError, Written
from backends.base import Answer, ContinuationScore, Request, Response, ScoreRequest, ScoreResponse
from backends.errors import BackendError

#: What of a score and of its tokens is shown.
_SHOWN = ("logprob", "low", "high", "exactness", "boundary", "route")
_OF_SCORE, _OF_TOKEN = operator.attrgetter(*_SHOWN), operator.attrgetter("text", "logprob", "exact")


class Stored:
    """A stored answer, with when it was given (``at``, seconds since the epoch) and in which ``run``."""

    __slots__ = ("_row", "at", "run")

    def __init__(self, row: AnswerRow) -> None:
        self._row, self.at, self.run = row, row.at, row.run

    @property
    def answer(self) -> Response:
        """The answer, which is read from its row each time: many are only counted."""
        return self._row.content().answer


@dataclass(frozen=True, slots=True)
class Partly:
    """The scores that are stored of some of a question's continuations, and when the last of them was given."""

    scores: Mapping[str, ContinuationScore]
    prompt_tokens: int
    at: float
    run: str

    def left(self, request: ScoreRequest) -> ScoreRequest | None:
        """What is still to be asked; None if nothing is."""
        asked = tuple(text for text in request.continuations if text not in self.scores)
        return ScoreRequest(request.prompt, asked) if asked else None

    def joined(self, request: ScoreRequest, answer: ScoreResponse | None) -> ScoreResponse:
        """The whole answer, from these scores and those of what was `left`."""
        new = iter(() if answer is None else answer.scores)
        scores = tuple([self.scores[text] if text in self.scores else next(new) for text in request.continuations])
        return ScoreResponse(scores, max(self.prompt_tokens, 0 if answer is None else answer.prompt_tokens))


class Answered(NamedTuple):
    """A stored answer with its question."""

    request: Request
    answer: Response
    at: float
    run: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of reading the whole store. ``damaged`` keys were set aside, and will be asked again."""

    answers: int
    damaged: tuple[str, ...]
    file_problems: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.damaged and not self.file_problems


class Answers:
    """The answers in the files of one open store. ``client`` is the store's name as the holder of leases."""

    def __init__(self, files: Files, client: str) -> None:
        self._files, self._client = files, client

    def read(self, questions: Sequence[Keyed]) -> list[Stored | Partly | None]:
        """What is stored of each question. A row whose checksum is wrong is set aside and treated as absent."""
        found: list[Stored | Partly | None] = [None] * len(questions)
        for file, places in self._files.split(range(len(questions)), lambda place: questions[place].prompt):
            with file.read() as db:
                own = list(rows.of_prompts(db, {questions[place].prompt for place in places}))
            by_prompt: dict[bytes, list[AnswerRow]] = {}
            for row in own:
                by_prompt.setdefault(row.prompt, []).append(row)
            damaged: list[AnswerRow] = []
            for place in places:
                if under := by_prompt.get(questions[place].prompt):
                    found[place] = _find(questions[place], under, damaged)
            self._set_aside(file, damaged, "checksum")
        return found

    async def write(self, answered: Sequence[tuple[Keyed, Response]], run: str) -> list[bool]:
        """Store answers; returns when they are on the disk. Says of each whether it counts: the first one stays.

        Raises
        ------
        StoreError
            They are not stored; of a store of several files, what went to others may be.
        ValueError
            A number is not finite.
        """
        now = time.time()
        encoded = [rows.written(question, answer, now, run) for question, answer in answered]
        counts = [False] * len(encoded)
        split = list(self._files.split(range(len(encoded)), lambda place: encoded[place].row.prompt))
        writing = [asyncio.wrap_future(_write(file, [encoded[place] for place in places])) for file, places in split]
        for (_, places), stored in zip(split, await asyncio.gather(*writing), strict=True):
            for place, is_stored in zip(places, stored, strict=True):
                counts[place] = is_stored
        return counts

    def join(self, joined: Sequence[tuple[Keyed, Partly]]) -> None:
        """Store under their own keys whole answers whose scores are all stored under others."""
        if self._files[0].read_only:
            return
        whole = []
        for question, partly in joined:
            assert isinstance(question.request, ScoreRequest)
            answer = partly.joined(question.request, None)
            whole.append(rows.written(question, answer, partly.at, partly.run))
        for file, some in self._files.split(whole, lambda one: one.row.prompt):
            _write(file, some).result()

    async def fail(self, question: Keyed, error: BackendError) -> None:
        """Keep a question's last failure, for people, and end this store's lease on it. It is never an answer."""
        prompt = prompt_json(question.request)
        key = question.prompt, question.part
        values = (*key, question.fingerprint, text_id(prompt), to_json_bytes(details(question.request)))

        def insert(db: Any) -> None:
            rows.store_prompts(db, {text_id(prompt): prompt})
            failure = (*values, to_json_bytes(error.to_json()), time.time())
            db.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?, ?, ?)", failure)
            db.execute("DELETE FROM leases WHERE prompt = ? AND part = ? AND owner = ?", (*key, self._client))

        await asyncio.wrap_future(self._files.of(question.prompt).submit(insert, gather=True))

    # -- by key, by model --------------------------------------------------------------------

    def by_keys(self, keys: Iterable[str]) -> dict[str, Answered]:
        """The questions and answers under keys, without damaged ones."""
        found: dict[str, Answered] = {}
        wanted = {key: raw for key in keys if (raw := key_bytes(key)) is not None}
        for file, some in self._files.split(wanted, lambda key: wanted[key]):
            with file.read() as db:
                for row in rows.of_prompts(db, {wanted[key][:PROMPT_BYTES] for key in some}):
                    if row.key in wanted:
                        with contextlib.suppress(DamagedError):
                            found[row.key] = _answered(row, rows.prompt_of(db, row))
        return found

    def latest(self, fingerprint: str, most: int) -> list[Answered]:
        """The last ``most`` undamaged answers of one model, in the order in which they were given."""
        found: list[Answered] = []
        for file in self._files:
            with file.read() as db:
                last = "WHERE fingerprint = ? ORDER BY at DESC LIMIT ?"
                for row in rows.select(db, last, (fingerprint, most)):
                    with contextlib.suppress(DamagedError):
                        found.append(_answered(row, rows.prompt_of(db, row)))
        return sorted(found, key=lambda one: one.at)[-most:]

    def inspect(self, key: str) -> dict[str, Any] | None:
        """Everything stored under a key, ready for JSON: model, question, answer, failure. None if unknown."""
        raw = key_bytes(key)
        if raw is None:
            return None
        own = raw[:PROMPT_BYTES], raw[PROMPT_BYTES:]
        with self._files.of(raw).read() as db:
            row = next(rows.select(db, "WHERE prompt = ? AND part = ?", own), None)
            sql = "SELECT fingerprint, text, details, error, at FROM failures WHERE prompt = ? AND part = ?"
            failed = db.execute(sql, own).fetchone()
            aside = db.execute("SELECT problem, at FROM quarantine WHERE key = ? ORDER BY id", (key,)).fetchall()
            if row is None and failed is None and not aside:
                return None
            found: dict[str, Any] = {"key": key, "answered": row is not None}
            source = (row.fingerprint, row.text) if row is not None else failed[:2] if failed else None
            if source is not None:
                found |= _facts(db, *source)
        if row is not None:
            found |= _content(row) | {"stored": _iso(row.at), "run": row.run}
        elif failed:
            found["asked"] = from_json_bytes(failed[2])
        found["failures"] = [{"error": from_json_bytes(failed[3]), "at": _iso(failed[4])}] if failed else []
        found["quarantine"] = [{"problem": problem, "at": _iso(at)} for problem, at in aside]
        return found

    # -- what cannot be believed ---------------------------------------------------------------

    def quarantine(self, keys: Iterable[str], problem: str) -> list[str]:
        """Set aside the answers under keys, and all others to their prompts, which may have scores in common with them.

        Returns the keys of all these.
        """
        wanted = {raw[:PROMPT_BYTES] for key in keys if (raw := key_bytes(key)) is not None}
        found: list[AnswerRow] = []
        for file, some in self._files.split(wanted, lambda prompt: prompt):
            with file.read() as db:
                own = list(rows.of_prompts(db, some))
            self._set_aside(file, own, problem)
            found += own
        return [row.key for row in found]

    def quarantine_since(self, fingerprint: str, since: float, problem: str) -> list[str]:
        """Set aside a model's answers given after ``since`` (seconds since the epoch). Returns their keys."""
        found: list[AnswerRow] = []
        for file in self._files:
            with file.read() as db:
                own = list(rows.select(db, "WHERE fingerprint = ? AND at > ?", (fingerprint, since)))
            self._set_aside(file, own, problem)
            found += own
        return [row.key for row in found]

    def _set_aside(self, file: Database, damaged: Sequence[AnswerRow], problem: str) -> None:
        if damaged and not file.read_only:
            file.submit(partial(rows.quarantine, rows=damaged, problem=problem)).result()

    def verify(self) -> Verification:
        """Read everything: check each file's structure and every checksum, and hash every key again.

        Damaged rows are set aside (not when read-only).
        """
        count, damaged, problems = 0, [], []
        for file in self._files:
            found, own, wrong = _check(file)
            self._set_aside(file, own, "found by verify")
            count += found
            damaged += [row.key for row in own]
            problems += [f"{file.path.name}: {one}" if len(self._files) > 1 else one for one in wrong]
        return Verification(count, tuple(damaged), tuple(problems))


def _write(database: Database, some: Sequence[Written]) -> concurrent.futures.Future[list[bool]]:
    return database.submit(partial(rows.insert, rows=some), gather=True)


def _find(question: Keyed, under: Sequence[AnswerRow], damaged: list[AnswerRow]) -> Stored | Partly | None:
    """The answer to a question among the rows under its prompt, or the scores that others have in common with it."""
    scores: dict[str, ContinuationScore] = {}
    tokens, at, run = 0, 0.0, ""
    request = question.request
    for row in sorted(under, key=lambda row: row.part != question.part):
        if not row.is_sound:
            if row not in damaged:
                damaged.append(row)
            continue
        if row.part == question.part:
            return Stored(row)
        found = row.content()
        if isinstance(request, ScoreRequest) and isinstance(found.answer, ScoreResponse):
            wanted = set(request.continuations) - scores.keys()
            pairs = zip(found.details[1], found.answer.scores, strict=True)
            if common := {text: score for text, score in pairs if text in wanted}:
                scores |= common
                tokens = max(tokens, found.answer.prompt_tokens)
                at, run = max((at, run), (row.at, row.run))
    return Partly(scores, tokens, at, run) if scores else None


def _answered(row: AnswerRow, prompt: bytes | None) -> Answered:
    return Answered(row.question(prompt).request, row.decoded().answer, row.at, row.run)


def _check(file: Database) -> tuple[int, list[AnswerRow], list[str]]:
    """The number of answers in a file, those that are damaged, and what is wrong with the file itself."""
    with file.read() as db:
        wrong = [problem for (problem,) in db.execute("PRAGMA integrity_check(20)") if problem != "ok"]
        if wrong:  # nothing else can be read with certainty
            return 0, [], wrong
        count, damaged = 0, []
        sql = f"SELECT {rows.COLUMNS}, body FROM answers LEFT JOIN prompts ON prompts.id = answers.text"
        for *values, prompt in db.execute(sql):
            row, count = AnswerRow(*values), count + 1
            try:
                row.question(prompt)
            except DamagedError:
                damaged.append(row)
    return count, damaged, []


def _facts(db: Any, fingerprint: str, text: bytes) -> dict[str, Any]:
    fields = db.execute("SELECT body FROM fingerprints WHERE id = ?", (fingerprint,)).fetchone()
    body = db.execute("SELECT body FROM prompts WHERE id = ?", (text,)).fetchone()
    return {
        "fingerprint_id": fingerprint,
        "fingerprint": None if fields is None else from_json_bytes(fields[0]),
        "prompt": None if body is None else from_json_bytes(body[0]),
    }


def _content(row: AnswerRow) -> dict[str, Any]:
    try:
        asked, _, answer = row.decoded()
    except DamagedError:
        return {"checksum": "wrong", "asked": None, "answer": None}
    return {"checksum": "right", "asked": asked, "answer": answer_json(asked, answer)}


def answer_json(asked: Sequence[Any], answer: Answer) -> dict[str, Any]:
    """An answer with named fields, ready for JSON; ``asked`` are the details of its question."""
    match answer:
        case ScoreResponse(scores):
            found = []
            for text, score in zip(asked[1], scores, strict=True):
                shown = dict(zip(_SHOWN, _OF_SCORE(score), strict=True))
                tokens = [*map(list, map(_OF_TOKEN, score.tokens))]
                found.append({"continuation": text, **shown, "tokens": tokens})
            return {"scores": found}
        case BackendError():
            return {"error": answer.to_json()}
    return {name: getattr(answer, name) for name in answer.__slots__}


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(at))
