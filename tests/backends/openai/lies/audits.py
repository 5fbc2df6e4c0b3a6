"""One lie told to a whole audit: which exact scores were accepted in a run that named no problem."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from audit import Audit
from audit.results import Measure
from audit.store import Store, answer_keys
from backends.base import Capability, Response, ScoreRequest, ScoreResponse
from backends.errors import AuditError
from backends.openai import OpenAIBackend
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite
from tests.audit.store.entries import answers_by_key
from tests.backends.openai.lies.catalogue import LIES
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import HONEST, MODEL, Lie, Style, WordServer
from tests.backends.openai.lies.trial import SAMPLES, WRONG, Outcome, count, questions

#: Of each question, where a server is asked about one continuation at a time and gets as many requests.
CONTINUATIONS, ONE_AT_A_TIME = 3, ("echo", "ids")
#: The last of these: its later tokens are likely, since the model knows them by heart.
LONGER = " Monday, Tuesday"
#: Seconds that an answer takes: long enough for the client to have as many under way as it may.
_ANSWERED_IN = 0.02


class Questions(Suite):
    """The probability of the first continuation of each question."""

    name = "questions"

    def __init__(self, style: Style, n: int) -> None:
        self._style, self._n = style, n

    def items(self) -> Iterator[Item]:
        for at, request in enumerate(questions(self._style, self._n)):
            if self._style in ONE_AT_A_TIME:
                request = dataclasses.replace(
                    request, continuations=(*request.continuations[: CONTINUATIONS - 1], LONGER)
                )
            yield Item(f"q{at}", request, {"q": at})

    @property
    def needs(self) -> frozenset[Capability]:
        return frozenset({"score", "chat"} if self._style == "chat" else {"score"})

    def signature(self) -> Mapping[str, Any]:
        return {"n": self._n}

    def read(self, item: Item, response: Response) -> Row:
        assert isinstance(response, ScoreResponse)
        score = response.scores[0]
        value = None if score.logprob is None else math.exp(score.logprob)
        low = 0.0 if score.low is None else math.exp(score.low)
        return Row(item.id, item.factors, {"p": IdentifiedInterval(value, low, math.exp(score.high))})

    def measures(self, rows: Sequence[Row]) -> Iterator[MeasureSpec]:
        yield MeasureSpec("p", "p", clusters=("q",), unit="probability", kind="probability")


@dataclass
class AuditOutcome(Outcome):
    """What one audit accepted. ``ended``: complete, or how it says that something is wrong.

    ``foreign`` is the share of the answers that have a wrong exact score, ``foreign_at_most`` what the report says that
    it may be. An answer is that to a question, or to one continuation where each takes a request.
    ``above_bounds_at_most`` is what the report says of words that lists leave out: how far they may exceed their bounds
    together, on average over the questions. ``figure_off``: by how much the true mean of the figure lies outside its
    bounds.
    """

    asked: int = 0
    probe_requests: int = 0
    disagreed: int = 0
    asked_again: int = 0
    foreign: float = 0.0
    foreign_at_most: float = 1.0
    above_bounds_at_most: float = 1.0
    figure_off: float = 0.0


async def audited(lie: Lie, style: Style, seed: int, n: int) -> AuditOutcome:
    """Audit a server of this style that tells this lie by ``n`` questions."""
    outcome = AuditOutcome()
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
            await backend.describe()
            server.probe_ended = outcome.probe_requests = server.requests
            server.pause = _ANSWERED_IN
            audit = Audit({"m": backend}, [Questions(style, n)], db=Path(folder, "a.db"), out=Path(folder, "out"))
            try:
                result = await audit.run()
            except AuditError as error:
                outcome.ended = f"refused: {error}"[:400]
                return outcome
            finally:
                outcome.requests = server.requests
            (check,) = result.self_checks
            outcome.asked_again, outcome.disagreed = check.asked_again, check.disagreed
            outcome.foreign_at_most = check.foreign_at_most
            if check.draws or check.left_out_doubted:
                outcome.above_bounds_at_most = check.left_out_at_most
            outcome.asked = result.models[0].asked
            if result.problems():
                outcome.ended = result.problems()[0][:160]
            elif check.noise > WRONG:
                outcome.ended = f"intervals of {check.noise:.2g} nats"
            elif check.left_out_doubted:
                outcome.ended = f"bounds wider by hidden words: {check.left_out_at_most:.2g} on average"
            (figure,) = result.measures
            outcome.figure_off = _off(figure, server, audit)
            _count(outcome, server, audit, result.models[0].fingerprint_id)
    return outcome


def _off(figure: Measure, server: WordServer, audit: Audit) -> float:
    items = audit.suites["questions"].items()
    requests = [item.request for item in items if isinstance(item.request, ScoreRequest)]
    true = fmean(math.exp(server.truth(request.prompt, request.continuations[0])) for request in requests)
    low, high = figure.bound_low or 0.0, 1.0 if figure.bound_high is None else figure.bound_high
    return max(low - true, true - high, 0.0)


def _count(outcome: AuditOutcome, server: WordServer, audit: Audit, fingerprint: str) -> None:
    """Compare what is stored with the truth."""
    answered = foreign = 0
    with Store.open(audit.db, read_only=True) as store:
        for item in audit.suites["questions"].items():
            exact, wrong = outcome.exact, outcome.wrong
            for key, continuation in zip(
                answer_keys(item.request, fingerprint), item.request.continuations, strict=True
            ):
                answer = answers_by_key(store, [key]).get(key)
                if isinstance(answer, ScoreResponse):
                    count(outcome, server, ScoreRequest(item.request.prompt, (continuation,)), answer)
            if server.style in ONE_AT_A_TIME:
                answered, foreign = outcome.exact, outcome.wrong
            else:
                answered += outcome.exact > exact
                foreign += outcome.wrong > wrong
    outcome.foreign = foreign / max(answered, 1)


def audit_trials(name: str, style: Style, seeds: range, n: int) -> list[AuditOutcome]:
    """One lie (or none: "honest") on one style of server, once for each seed."""
    told = (lambda random: HONEST) if name == "honest" else LIES[name]
    return [asyncio.run(audited(told(np.random.default_rng([seed, 4])), style, seed, n)) for seed in seeds]
