"""The dry run: what a run would ask, how long it may take and what it may cost, without asking anything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from pydantic import BaseModel

from audit.collect.job_run import part_to_repeat
from audit.config import AuditConfig
from audit.prepare.resolve import DescribedBackend, ResolvedAudit, resolve_audit
from audit.store import Keyed, Partly, Store, Stored, keyed, of_run
from backends.base import (
    Backend,
    ClassifyRequest,
    GenerateRequest,
    Prompt,
    Request,
    RequestCost,
    ScoreRequest,
    SupportsCheckingRequests,
    SupportsPrices,
    SupportsRequestCost,
    SupportsSecondAnswers,
    count_tokens,
    request_cost,
)
from backends.checking import number_to_repeat
from suites.base import Item, Suite

TOKEN_SAMPLE = 200  # prompts that are tokenised
_CHUNK = 256  # items that are looked up at a time
_ASSUMED_SECONDS = 1.0  # of a request to a server that has answered nothing yet
CHARACTERS_PER_TOKEN = 4
KINDS: Mapping[type[Request], str] = {ScoreRequest: "score", GenerateRequest: "generate", ClassifyRequest: "classify"}
MOST_ANSWERS = 4000  # only the latest answers are used
FEWEST_ANSWERS = 10
_TOGETHER = 0.01  # seconds: answers of one batch are stored one after another, each with a time of its own


class ModelEstimate(BaseModel):
    """One model's share of a run.

    Attributes
    ----------
    requests : int
        The questions known now.
    asked_again : int
        Questions asked a second time, to check the answers. They come on top of ``requests``; their tokens are counted.
    follow_ups : int
        At most this many questions follow from the model's answers. Time and tokens include them, so both are upper
        bounds where there are any.
    texts_to_score : int
        At most this many texts are sent to the suites' own scorers, whose time is not in ``seconds``.
    requests_by_kind : dict
        Questions and follow-ups by kind.
    calls : int
        Requests that run a server's model which the questions and follow-ups take at most, those asked a second time
        included; those to its tokenizer are not. Where several continuations may share requests, each question counts
        as one.
    seconds : float, optional
        None if there is nothing to estimate from.
    seconds_by, tokens_by : str
        What the estimate is based on.
    device : str, optional
        Of a local model. Those that share one take turns.
    cost : float, optional
        In the currency of the backend's price table, the look and the checks included, if each answer uses all its
        tokens. Failed requests are repeated beside it. `max_cost` holds regardless.
    is_bound : bool
        Whether nothing was asked of the server and nothing is known of it: calls, tokens and cost are the most that
        they may be, on the assumptions in ``tokens_by``.
    checking_requests : int
        Requests that check the answers, and a look at the server that is still to be taken. Not in ``requests``, nor
        is ``asked_again``.
    """

    model: str
    items: int
    requests: int
    asked_again: int
    cached: int
    follow_ups: int = 0
    texts_to_score: int = 0
    requests_by_kind: dict[str, int] = {}
    calls: int = 0
    prompt_tokens: int
    tokens_by: str
    most_generated_tokens: int
    seconds: float | None
    seconds_by: str
    device: str | None = None
    cost: float | None
    is_bound: bool = False
    checking_requests: int = 0


class RunEstimate(BaseModel):
    """What a run would ask of each model. ``first_look``: items before a run with ``until="decided"`` may stop."""

    models: list[ModelEstimate]
    first_look: int | None = None


async def dry_run_audit(audit: AuditConfig, timed_by: Path | None = None, *, ask: bool = False) -> RunEstimate:
    """Check the audit and count what it would ask. Loads no weights; sends nothing, unless servers may be asked.

    ``ask``: take a short look at servers that were not looked at within a day. Without one, what they would take is
    bounded.

    Questions that depend on answers (follow-ups) cannot be known yet: their largest possible number is counted.
    ``timed_by``: the store whose answers show how fast the models are; default: the audit's own.
    """
    with _store(audit.db) as store, _store(timed_by or audit.db) as timed:
        resolved = await resolve_audit(audit, store, ask=ask)
        try:
            estimates = [
                await asyncio.to_thread(_estimate, model, resolved, audit, store, timed)
                for model in resolved.models.values()
            ]
        finally:
            await resolved.close()
    first = sum(len(resolved.places(suite, range(1, 2))) for suite in resolved.items)
    return RunEstimate(models=estimates, first_look=None if audit.until is None else first)


@contextlib.contextmanager
def _store(db: Path) -> Iterator[Store]:
    """The audit's store, or an empty temporary one: a dry run leaves no store behind."""
    with tempfile.TemporaryDirectory() as folder, Store.open(db if db.exists() else Path(folder, "empty.db")) as store:
        yield store


def _estimate(
    model: DescribedBackend, resolved: ResolvedAudit, audit: AuditConfig, store: Store, timed: Store
) -> ModelEstimate:
    looks = resolved.all_looks
    scored = sum(
        isinstance(item.request, ScoreRequest) for name in resolved.items for item in resolved.asked(name, looks)
    )
    again = Fraction(number_to_repeat(scored), max(scored, 1))
    counted = RequestCounts(model.fingerprint_id, model.backend, store, again)
    for (name, suite), run in itertools.product(audit.suites.items(), range(1, audit.runs + 1)):
        scorers = {scorer: d.fingerprint_id for (of, scorer), d in resolved.scorers.items() if of == name}
        counted.add(resolved.asked(name, looks), suite, scorers, run)
    prompt_tokens, tokens_by = counted.prompt_tokens()
    paces, asked = measure_pace(timed, model.fingerprint_id), counted.requests_by_kind.copy()
    asked.update({"score": counted.asked_again} if counted.asked_again else {})
    seconds = estimate_seconds(asked, paces)
    if not counted.requests and not counted.follow_ups:
        seconds_by = "nothing to ask"
    elif seconds is None and model.backend.device is None:
        seconds = _ASSUMED_SECONDS * counted.calls / model.backend.max_in_flight
        many = model.backend.max_in_flight
        seconds_by = f"assumed: {_ASSUMED_SECONDS:g} s a request, {many} at a time; its first answers will tell"
    elif seconds is None:
        seconds_by = "too few stored answers of this model to measure its speed"
    else:
        measured = (f"{kind}: from its answers to {paces[kind].answers:,} questions" for kind in asked)
        seconds_by = "; ".join(measured)
    checking, cost = _checking_cost(counted), None
    if isinstance(model.backend, SupportsPrices):
        each = prompt_tokens / counted.calls if counted.calls else 0.0  # a check sends a prompt
        generated = counted.generated_tokens + checking.generated_tokens
        cost = model.backend.highest_cost(prompt_tokens + round(each * checking.calls), generated)
    return ModelEstimate(
        model=model.name,
        items=counted.items,
        requests=counted.requests,
        asked_again=counted.asked_again,
        cached=counted.items - counted.requests - counted.shared,
        follow_ups=counted.follow_ups,
        texts_to_score=counted.texts_to_score,
        requests_by_kind=dict(counted.requests_by_kind),
        calls=counted.calls,
        prompt_tokens=prompt_tokens,
        tokens_by=tokens_by,
        most_generated_tokens=counted.generated_tokens,
        seconds=seconds,
        seconds_by=seconds_by,
        device=model.backend.device,
        cost=cost,
        is_bound=bool(model.description.fingerprint.get("unasked")),
        checking_requests=checking.calls,
    )


def _checking_cost(counts: RequestCounts) -> RequestCost:
    """That of the requests that check the answers, beside those that are asked twice."""
    if not isinstance(counts.backend, SupportsCheckingRequests):
        return RequestCost(0, 0, 0)
    scored = counts.requests_by_kind["score"] + counts.asked_again
    return counts.backend.checking_cost(counts.requests + counts.follow_ups, scored)


@dataclass
class RequestCounts:
    """What a run would ask of one model.

    Attributes
    ----------
    fingerprint, backend, store, again
        The model's fingerprint id; and the share of the questions that are asked a second time, if it supports that.
    items, requests, shared : int
        Items; the unanswered ones among them; and those that ask the same as one before, which is asked once.
    checkable, asked_again : int
        Requests that may be sent a second time, to check the answers, and those that are.
    follow_ups, texts_to_score : int
        The most questions that may follow, to the model itself and to scorers.
    requests_by_kind : mapping
        Number of questions and follow-ups to the model.
    calls : int
        As in `ModelEstimate`.
    prompt_characters, further_characters : int
        Characters of all prompts, counted as often as they are sent; and of what is sent beside them.
    generated_tokens : int
        Upper bound: each text at its full length.
    sample : list of (prompt, int)
        A uniform random sample of the prompts, and how often each is sent.
    """

    fingerprint: str
    backend: Backend
    store: Store
    again: Fraction | int = 0
    items: int = 0
    requests: int = 0
    shared: int = 0
    checkable: int = 0
    asked_again: int = 0
    follow_ups: int = 0
    texts_to_score: int = 0
    requests_by_kind: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    prompt_characters: int = 0
    further_characters: int = 0
    generated_tokens: int = 0
    sample: list[tuple[Prompt, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(0)

    def prompt_tokens(self) -> tuple[int, str]:
        """Tokens of all that is sent, and how the number was obtained: only the sample of prompts is tokenised."""
        counts = count_tokens(self.backend, [prompt for prompt, _ in self.sample]) if self.sample else []
        if counts is None:
            tokens = round((self.prompt_characters + self.further_characters) / CHARACTERS_PER_TOKEN)
            return tokens, f"estimated: {CHARACTERS_PER_TOKEN:g} characters per token"
        sent = sum(count * times for count, (_, times) in zip(counts, self.sample, strict=True))
        read = sum(_length(prompt) for prompt, _ in self.sample)
        further = self.further_characters * sum(counts) / max(read, 1)
        sampled, asked = sum(times * _length(prompt) for prompt, times in self.sample), self.requests + self.follow_ups
        is_all = len(self.sample) == asked and not self.asked_again
        tokens = round(further + (sent if is_all else sent * self.prompt_characters / max(sampled, 1)))
        if isinstance(self.backend, SupportsRequestCost):
            return tokens, self.backend.cost_basis()
        return tokens, "counted" if is_all else f"estimated from {len(self.sample)} of {asked} prompts"

    def add(
        self,
        items: Iterable[Item],
        suite: Suite | None = None,
        scorers: Mapping[str, str] = MappingProxyType({}),
        run: int = 1,
    ) -> Self:
        """Count what is unanswered and, given ``suite``, what may follow. Asks nothing.

        ``scorers``: the fingerprint ids of the suite's scorers by name. ``run``: which of several runs.
        """
        source = iter(items)
        seen: set[str] = set()  # follow-ups that many items share
        alike: set[int] = set()  # requests that several items share: they are asked once
        while taken := list(itertools.islice(source, _CHUNK)):
            self.items += len(taken)
            own = [item for item in taken if item.scorer is None]
            following = [item for item in taken if item.scorer is not None]  # asked of a scorer from the start
            keys = [keyed(of_run(item.request, run), self.fingerprint, run) for item in own]
            for item, key, found in zip(own, keys, self.store.answers.read(keys), strict=True):
                if isinstance(found, Stored):
                    following += suite.follow_ups(item, found.answer) if suite is not None else ()
                    continue
                following += suite.most_follow_ups(item) if suite is not None else ()
                if (asked := hash((key.prompt, key.part))) in alike:
                    self.shared += 1
                    continue
                alike.add(asked)
                left = _left(key, found)
                if left is not None:
                    self.requests += 1
                    backend = self.backend
                    self.checkable += isinstance(backend, SupportsSecondAnswers) and backend.repeats_itself(left)
                    self._count(left, is_twice=self.asked_again < self.checkable * self.again)
            self._follow(following, scorers, seen)
        return self

    def _follow(self, following: Sequence[Item], scorers: Mapping[str, str], seen: set[str]) -> None:
        """Count follow-ups: those to scorers, and those to the model itself."""
        texts = [item for item in following if item.scorer is not None]
        keys = [keyed(i.request, scorers[i.scorer]) for i in texts if i.scorer and i.scorer in scorers]
        self.texts_to_score += len(texts) - sum(isinstance(found, Stored) for found in self.store.answers.read(keys))
        asked = [keyed(item.request, self.fingerprint) for item in following if item.scorer is None]
        for key, found in zip(asked, self.store.answers.read(asked), strict=True):
            if not isinstance(found, Stored) and key.key not in seen:
                seen.add(key.key)
                self.follow_ups += 1
                self._count(key.request)

    def _count(self, request: Request, *, is_twice: bool = False) -> None:
        self.requests_by_kind[KINDS[type(request)]] += 1
        asked = [request]
        if is_twice:
            self.asked_again += 1
            assert isinstance(self.backend, SupportsSecondAnswers)
            asked.append(part_to_repeat(self.backend, request))
        for one in asked:
            sent = request_cost(self.backend, one)
            self.calls += sent.calls
            read, times = _read(one, sent.calls)
            self.prompt_characters += times * _length(read)
            self.further_characters += sent.further_characters
            self.generated_tokens += sent.generated_tokens
        sampled = _read(request, request_cost(self.backend, request).calls)
        if len(self.sample) < TOKEN_SAMPLE:  # reservoir sampling: each prompt is equally likely to be in it
            self.sample.append(sampled)
        elif (place := self._draw.randrange(self.requests + self.follow_ups)) < TOKEN_SAMPLE:
            self.sample[place] = sampled


def _left(key: Keyed, found: Partly | None) -> Request | None:
    """What of a question is still to be asked."""
    if found is None or not isinstance(key.request, ScoreRequest):
        return key.request
    return found.left(key.request)


def _read(request: Request, times_sent: int) -> tuple[Prompt, int]:
    """What is read, and how often: the prompt; or whole texts, which have none, each once."""
    if isinstance(request, ScoreRequest) and not request.prompt:
        return "\n".join(request.continuations), 1
    return (request.text if isinstance(request, ClassifyRequest) else request.prompt), times_sent


def _length(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message.content) for message in prompt)


# -- time ----------------------------------------------------------------------------------------


class Pace(NamedTuple):
    """Seconds for one question, and the number of answers that they are the mean of."""

    seconds: float
    answers: int


def measure_pace(store: Store, fingerprint: str) -> dict[str, Pace]:
    """The pace of each kind of request that a model has answered often enough.

    In each run the time counts from its first answers, before which a local model is loaded.
    """
    seconds, answers = Counter[str](), Counter[str]()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for one in store.answers.latest(fingerprint, MOST_ANSWERS):
        if one.at - first.setdefault(one.run, one.at) > _TOGETHER:
            kind = KINDS[type(one.request)]
            seconds[kind] += one.at - last[one.run]  # type: ignore[assignment]
            answers[kind] += 1
        last[one.run] = one.at
    return {kind: Pace(seconds[kind] / n, n) for kind, n in answers.items() if n >= FEWEST_ANSWERS}


def estimate_seconds(questions: Mapping[str, int], paces: Mapping[str, Pace]) -> float | None:
    """Seconds that so many questions of each kind take; None if a kind has no pace."""
    if questions.keys() - paces.keys():
        return None
    return sum(count * paces[kind].seconds for kind, count in questions.items())
