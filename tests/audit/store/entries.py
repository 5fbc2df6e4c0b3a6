"""Questions with known answers, for tests of the store and of asking."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable

from audit.collect import Ask, Job, Outcome, ShutdownRequest, run_jobs
from audit.collect.executors import Executor
from audit.store import Keyed, Partly, Store, Stored, keyed
from audit.store.keys import fingerprint_id
from backends.base import (
    Answer,
    Backend,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Request,
    Response,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)

FP = fingerprint_id({"model": "m"})


def question(i: int, continuations=(" a", " b\x00\ud800")) -> ScoreRequest:
    return ScoreRequest(f"prompt {i}", continuations)


def answer_to(request: ScoreRequest) -> ScoreResponse:
    tokens = [TokenLogprob(c, 0, len(c), -1 / (3 + len(request.prompt) + len(c))) for c in request.continuations]
    return ScoreResponse(tuple(ContinuationScore.exact([t], route="test") for t in tokens), 5)


def entry(i: int, answer: Response | None = None, **options) -> tuple[Keyed, Response]:
    request = question(i, **options)
    return keyed(request, FP), answer or answer_to(request)


def text_entry(i: int) -> tuple[Keyed, Response]:
    return keyed(GenerateRequest(f"prompt {i}"), FP), GenerateResponse(f"text {i}", "stop")


def put(store: Store, *entries: tuple[Keyed, Response]) -> list[bool]:
    return asyncio.run(store.answers.write(entries, "run-1"))


def found(store: Store, *questions: Keyed) -> list[Answer | Partly | None]:
    """The answers to questions, or what there is of them."""
    return [one.answer if isinstance(one, Stored) else one for one in store.answers.read(questions)]


def answers_by_key(store: Store, keys: Iterable[str]) -> dict[str, Answer]:
    """The answers under keys, as an export reads them."""
    return {key: one.answer for key, one in store.answers.by_keys(keys).items()}


def asks_of(store: Store, requests: Iterable[Request], fingerprint: str = FP) -> tuple[list[Ask], int]:
    """What of these requests is not stored, and how many are."""
    keys = [keyed(request, fingerprint) for request in requests]
    missing = [key for key, one in zip(keys, store.answers.read(keys), strict=True) if not isinstance(one, Stored)]
    return [Ask(key, key.request) for key in missing], len(keys) - len(missing)


async def ask(backend: Backend, store: Store, requests: Iterable[Request], stop=None, **options) -> Outcome:
    """Ask one model what is missing."""
    asks, cached = asks_of(store, requests)
    job, stop = Job("m", backend, asks, cached), stop or ShutdownRequest()
    return (await run_jobs([job], store, Executor(), run_id="run-1", stop=stop, **options))["m"]


def sql(path, statement, *values):
    with sqlite3.connect(path) as db:
        return db.execute(statement, values).fetchall()
