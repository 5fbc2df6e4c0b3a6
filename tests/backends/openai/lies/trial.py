"""One lie told to one client: what everyday checks, or all experiments, notice, and how large it is."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from audit.run.checks import EXACT_WITHIN, FOREIGN, mean_move, move
from backends.base import Answer, Message, Prompt, ScoreRequest, ScoreResponse
from backends.checking import number_to_repeat
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.server import HONEST, MODEL, Lie, Style, WordServer
from tests.backends.openai.lies.word_model import GENDERS
from tests.backends.openai.raw_server import RawServer

OCCUPATIONS = (
    *("nurse", "doctor", "teacher", "carpenter", "plumber", "secretary", "electrician", "librarian", "mechanic"),
    *("dietitian", "midwife", "welder", "cashier", "pilot", "florist", "baker", "mason", "tailor", "driver", "maid"),
)
#: Longer than a prompt that is cut short.
_STORY = " ".join(f"The {a} told the {b} about the letter." for a, b in itertools.pairwise(OCCUPATIONS))
#: Nats. An exact score that is further from the truth is wrong.
WRONG = 0.01
SAMPLES = 40


@dataclass
class Outcome:
    """What one client accepted, and how it ended: complete, or why not.

    ``errors``: by how many nats exact scores are off, and by how many the truth exceeds bounds. ``noise``: by how many
    the scores are widened.
    """

    errors: list[float] = field(default_factory=list)
    noise: float = 0.0
    look_requests: int = 0
    ended: str = "complete"

    @property
    def is_noticed(self) -> bool:
        """Whether no score counts, or each is an interval that is wide enough for their mean error."""
        return self.ended != "complete" or (self.noise > EXACT_WITHIN and self.size <= self.noise)

    @property
    def is_true(self) -> bool:
        """Whether no accepted score is wrong."""
        return not any(error > WRONG for error in self.errors)

    @property
    def size(self) -> float:
        """The mean error of the accepted scores, in nats."""
        return statistics.fmean(self.errors) if self.errors else 0.0


def questions(style: Style, n: int) -> list[ScoreRequest]:
    """``n`` questions as an audit asks them: templates × occupations, some behind a long text."""
    asked = []
    for at in range(n):
        occupation = OCCUPATIONS[at % len(OCCUPATIONS)]
        text = f"Picture a {occupation}. What is the gender of the {occupation}?"
        if at % 4 == 1:
            text = f'My friend Jürgen & I ask 😀 – “today”: "{text}"'
        if at % 4 == 3:
            text = f"{_STORY} {text}"
        if at >= len(OCCUPATIONS):
            text = f"Question {at}. {text}"
        is_chat = style == "chat"
        prompt: Prompt = (Message("user", text),) if is_chat else f"Q: {text}\nA:"
        asked.append(ScoreRequest(prompt, tuple(a if is_chat else f" {a}" for a in GENDERS)))
    return asked


class _Direct(httpx.AsyncBaseTransport):
    """Hands each request to the server."""

    def __init__(self, server: RawServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        reply = await self._server.answer(request.url.path, json.loads(await request.aread() or b"{}"))
        body = httpx.ByteStream(json.dumps(reply.body).encode())
        return httpx.Response(reply.status, headers=reply.headers, stream=body)


def ask_directly(backend: OpenAIBackend, server: RawServer) -> None:
    """Let this backend, which is to be used in the running event loop, ask this server without a socket."""
    http = backend.client
    http._loop, http._slots = asyncio.get_running_loop(), asyncio.Semaphore(backend.max_in_flight + 1)
    http._client = httpx.AsyncClient(transport=_Direct(server))


async def trial(server: WordServer, *, n: int = 24, all_experiments: bool = False) -> Outcome:
    """Look at a server, and have ``n`` questions scored by it.

    ``all_experiments``: make the thorough look's instead.
    """
    outcome = Outcome()
    async with server.running():
        with tempfile.TemporaryDirectory() as folder:
            samples = SAMPLES if server.style == "drawn" else None
            backend = OpenAIBackend(
                server.base_url, model=MODEL, api_key_env=None, probe_folder=Path(folder), samples=samples
            )
            ask_directly(backend, server)
            try:
                if all_experiments:
                    made = await backend.experiments(lambda _: None)
                    failed = [one.name for one in made if one.passed is False]
                    outcome.ended = ", ".join(failed) or "complete"
                else:
                    await _run(backend, server, questions(server.style, n), outcome)
            except BackendError as error:
                outcome.ended = f"{error.kind}: {error.message[:60]}"
            finally:
                await backend.close()
    return outcome


async def _run(backend: OpenAIBackend, server: WordServer, asked: list[ScoreRequest], outcome: Outcome) -> None:
    described = await backend.describe()
    outcome.look_requests = server.requests
    server.probe_ended, server.pause = server.requests, 0.001
    if "score" not in described.capabilities:
        outcome.ended = "refused"
        return
    pending, refusals = asyncio.Semaphore(8), Counter[str]()

    async def one(request: ScoreRequest) -> Answer:
        async with pending:
            (answer,) = await backend.run([request])
        if isinstance(answer, ScoreResponse):
            outcome.errors += errors(server, request, answer)
        elif isinstance(answer, BackendError):
            refusals[answer.message[:60]] += 1
        return answer

    first = dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))
    again = random.Random(len(asked)).sample(
        asked, number_to_repeat(len(asked)) if backend.repeats_itself(asked[0]) else 0
    )
    moves = [move(first[request], (await backend.run([request]))[0]) for request in again]
    await backend.verify_identity()
    outcome.noise = max(mean_move([m for m in moves if m <= FOREIGN]), mean_move(backend.checks_made().moves))
    if backend.unverified_since is not None:
        outcome.ended = backend.unverified_reason
    elif max(moves, default=0.0) > FOREIGN:
        outcome.ended = "asked again, it answered otherwise"
    elif refusals:
        (message, times), *_ = refusals.most_common(1)
        outcome.ended = f"{times} of {len(asked)} failed: {message}"


def errors(server: WordServer, request: ScoreRequest, answer: ScoreResponse) -> list[float]:
    """By how many nats exact scores are off; of bounds and intervals, how far the truth is outside."""
    found = []
    for continuation, score in zip(request.continuations, answer.scores, strict=True):
        true = server.truth(request.prompt, continuation)
        if score.exactness == "exact":
            assert score.logprob is not None
            found.append(abs(score.logprob - true))
        elif score.exactness == "bounded":
            found.append(max(true - score.high, 0.0))
    return found


def told(name: str, seed: int) -> Lie:
    """A lie of the catalogue, made anew; or none: "honest"."""
    return HONEST if name == "honest" else LIES[name](np.random.default_rng([seed, 4]))


def run_trial(name: str, style: Style, seed: int, **options: bool | int) -> Outcome:
    """`trial` outside an event loop."""
    return asyncio.run(trial(WordServer(style, seed, told(name, seed)), **options))  # type: ignore[arg-type]
