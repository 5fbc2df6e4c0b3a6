"""One lie told to one client: which scores were accepted, and how it ended."""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backends.base import Message, Prompt, Request, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import HONEST, MODEL, Lie, Style, WordServer
from tests.backends.openai.lies.word_model import GENDERS

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
    """What one client accepted. ``ended``: how, in a word or two.

    ``above_bounds`` is the probability by which bounded continuations exceed their bounds, over all questions.
    """

    exact: int = 0
    wrong: int = 0
    bounds: int = 0
    false_bounds: int = 0
    above_bounds: float = 0.0
    sampled: int = 0
    outside: int = 0
    requests: int = 0
    ended: str = "complete"

    @property
    def accepted_wrong(self) -> int:
        """Wrong scores and false bounds of a run in which no problem was named."""
        return (self.wrong + self.false_bounds) * (self.ended == "complete")


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


async def trial(lie: Lie, style: Style, seed: int, *, n: int = 24) -> Outcome:
    """Probe a server of this style that tells this lie, and have ``n`` questions scored by it."""
    outcome = Outcome()
    async with WordServer(style, seed, lie).running() as server:
        with tempfile.TemporaryDirectory() as folder:
            backend = OpenAIBackend(
                server.base_url,
                model=MODEL,
                api_key_env=None,
                probe_folder=Path(folder),
                samples=SAMPLES if style == "drawn" else None,
            )
            ask_directly(backend, server)
            try:
                await _run(backend, server, questions(style, n), outcome)
            except BackendError as error:
                outcome.ended = f"{error.kind}: {error.message[:60]}"
            finally:
                await backend.close()
        outcome.requests = server.requests
    return outcome


async def _run(backend: OpenAIBackend, server: WordServer, asked: list[ScoreRequest], outcome: Outcome) -> None:
    described = await backend.describe()
    server.probe_ended, server.pause = server.requests, 0.001
    if "score" not in described.capabilities:
        outcome.ended = "refused"
        return
    pending, refusals = asyncio.Semaphore(8), Counter[str]()

    async def one(request: ScoreRequest) -> None:
        async with pending:
            (answer,) = await backend.run([request])
        if isinstance(answer, ScoreResponse):
            count(outcome, server, request, answer)
        elif isinstance(answer, BackendError):
            refusals[answer.message[:60]] += 1

    await asyncio.gather(*map(one, asked))
    await backend.verify_identity()
    if backend.unverified_since is not None:
        outcome.ended = "stopped: another model noticed"
    elif refusals:
        (message, times), *_ = refusals.most_common(1)
        outcome.ended = f"{times} of {len(asked)} failed: {message}"


def count(outcome: Outcome, server: WordServer, request: Request, answer: ScoreResponse) -> None:
    """Compare one answer with the truth."""
    assert isinstance(request, ScoreRequest)
    for continuation, score in zip(request.continuations, answer.scores, strict=True):
        true = server.truth(request.prompt, continuation)
        if score.exactness == "exact":
            assert score.logprob is not None
            outcome.exact += 1
            outcome.wrong += abs(score.logprob - true) > WRONG
        elif score.exactness == "bounded":
            outcome.bounds += 1
            outcome.false_bounds += true > score.high + WRONG
            outcome.above_bounds += max(math.exp(true) - math.exp(score.high), 0.0)
        else:
            outcome.sampled += 1
            outcome.outside += true > score.high or (score.low is not None and true < score.low)


def trials(name: str, style: Style, seeds: range) -> list[Outcome]:
    """One lie (or none: "honest") on one style of server, once for each seed."""
    told = (lambda random: HONEST) if name == "honest" else LIES[name]
    return [asyncio.run(trial(told(np.random.default_rng([seed, 4])), style, seed)) for seed in seeds]
