"""Questions with known answers, for tests of the store; also in child processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterable

from audit.store import Entry, Store, keyed_request
from audit.store.keys import fingerprint_id
from backends.base import (
    Answer,
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
)

FP = fingerprint_id({"model": "m"})


def question(i: int, continuations=(" a", " b\x00\ud800")) -> ScoreRequest:
    return ScoreRequest(f"prompt {i}", continuations)


def answer_to(request: ScoreRequest) -> ScoreResponse:
    tokens = [
        TokenLogprob(c, 0, len(c), -1 / (3 + len(request.prompt) + j)) for j, c in enumerate(request.continuations)
    ]
    return ScoreResponse(tuple(ContinuationScore.exact([t], route="test") for t in tokens), 5)


def entry(i: int, answer=None) -> Entry:
    request = question(i)
    return Entry(keyed_request(request, FP), answer or answer_to(request))


def text_entry(i: int) -> Entry:
    return Entry(keyed_request(GenerateRequest(f"prompt {i}"), FP), GenerateResponse(f"text {i}", "stop"))


def put(store: Store, *entries: Entry) -> None:
    asyncio.run(store.answers.write(entries))


def answers_by_key(store: Store, keys: Iterable[str]) -> dict[str, Answer]:
    """The answers under keys, as an export reads them."""
    return {key: answer for key, (_, _, answer) in store.answers.read_with_prompts(keys).items()}


def sql(path, statement, *values):
    with sqlite3.connect(path) as db:
        return db.execute(statement, values).fetchall()


def in_child(body: str) -> str:
    script = f"""
        import sys
        sys.path[:0] = [{os.getcwd()!r}]
        from tests.audit.store.entries import *
    """
    text = textwrap.dedent(script) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
