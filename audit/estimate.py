"""What a run would ask, how long it may take and what it may cost, without asking anything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from audit.collect import CHUNK, PackedItems
from audit.collect.items import CHARACTERS_PER_TOKEN
from audit.collect.second_asking import is_asked_again, second_share
from audit.config import AuditConfig
from audit.resolve import DescribedBackend, resolve_audit
from audit.store import Store, keyed_request
from backends.base import (
    Backend,
    ClassifyRequest,
    Prompt,
    Request,
    SupportsPrices,
    SupportsSecondAnswers,
    count_tokens,
    request_cost,
)
from suites.base import Item

TOKEN_SAMPLE = 200  # prompts that are tokenised


class ModelEstimate(BaseModel):
    """One model's share of a run. Times in seconds; None where nothing is known to estimate from.

    ``asked_again`` counts the questions that are asked a second time, to check the answers: their tokens are counted,
    and they come on top of ``requests``.
    ``seconds_by`` and ``tokens_by`` say where an estimate comes from. ``cost`` is in the currency of
    the backend's price table, and not a bound: a server's route may need more requests for a score than it has
    continuations, or fewer, and what fails is asked again. `--max-cost` holds whatever the estimate says.
    ``probe_requests`` is what finding out about a server took, once for each server and model.
    """

    model: str
    items: int
    requests: int
    asked_again: int
    cached: int
    prompt_tokens: int
    tokens_by: str
    most_generated_tokens: int
    seconds: float | None
    seconds_by: str
    cost: float | None
    probe_requests: int = 0


class RunEstimate(BaseModel):
    """What a run would ask of each model."""

    models: list[ModelEstimate]

    def as_text(self) -> str:
        """For a person to read."""
        lines = []
        for m in self.models:
            seconds = "unknown" if m.seconds is None else f"{m.seconds:.0f} s"
            again = f", {m.asked_again:,} of them a second time" if m.asked_again else ""
            lines.append(
                f"{m.model}\n"
                f"  items {m.items:,}, to ask {m.requests:,}{again}, answered already {m.cached:,}\n"
                f"  prompt tokens {m.prompt_tokens:,} ({m.tokens_by}), generated up to {m.most_generated_tokens:,}\n"
                f"  time {seconds} ({m.seconds_by})"
                + ("" if m.cost is None else f"\n  cost about {m.cost:.4f}")
                + (f"\n  its server was probed with {m.probe_requests:,} requests, once" if m.probe_requests else "")
            )
        return "\n".join(lines)


async def dry_run_audit(audit: AuditConfig) -> RunEstimate:
    """Check the audit and count what it would ask. Loads no weights; a server is probed.

    Questions that depend on answers (follow-ups) cannot be counted before those are there.
    """
    with _store(audit.db) as store:
        resolved = await resolve_audit(audit, store)
        try:
            rates = await asyncio.to_thread(_rates, store)
            items = list(resolved.items.values())
            estimates = [
                await asyncio.to_thread(_estimate, model, items, store, audit.seed, rates.get(model.fingerprint_id))
                for model in resolved.models.values()
            ]
        finally:
            await resolved.close()
    return RunEstimate(models=estimates)


@contextlib.contextmanager
def _store(db: Path) -> Iterator[Store]:
    """The audit's store, or an empty temporary one: `--fresh` would refuse a store that a dry run had made."""
    with tempfile.TemporaryDirectory() as folder:
        path = db if db.exists() else Path(folder, "empty.db")
        with Store.open(path) as store:
            yield store


def _estimate(
    model: DescribedBackend, suites: Sequence[PackedItems], store: Store, seed: int, rate: float | None
) -> ModelEstimate:
    share = second_share(sum(map(len, suites)))
    items = itertools.chain.from_iterable(suites)
    counted = count_requests(
        items, model.fingerprint_id, model.backend, store, lambda key: is_asked_again(key, seed, share)
    )
    prompt_tokens, tokens_by = counted.prompt_tokens(model.backend)
    if counted.requests == 0:
        seconds, seconds_by = 0.0, "nothing to ask"
    elif rate is None:
        seconds, seconds_by = None, "no earlier run of this model in the store"
    else:
        seconds, seconds_by = rate * counted.requests, "from the pace of its last run"
    cost = None
    if isinstance(model.backend, SupportsPrices):
        cost = model.backend.highest_cost(prompt_tokens, counted.generated_tokens)
    return ModelEstimate(
        model=model.name,
        items=counted.items,
        requests=counted.requests,
        asked_again=counted.asked_again,
        cached=counted.items - counted.requests,
        prompt_tokens=prompt_tokens,
        tokens_by=tokens_by,
        most_generated_tokens=counted.generated_tokens,
        seconds=seconds,
        seconds_by=seconds_by,
        cost=cost,
        probe_requests=model.description.requests,
    )


@dataclass
class RequestCounts:
    """What a run would ask of one model.

    Attributes
    ----------
    items, requests : int
        Items, and those of them that are not answered.
    asked_again : int
        Requests that are sent a second time, to check the answers.
    prompt_characters : int
        Of the requests, each prompt as often as it is sent.
    generated_tokens : int
        Upper bound: each text at its full length.
    sample : list of (prompt, int)
        Some of the prompts, each as likely as the others, and how often each is sent.
    """

    items: int = 0
    requests: int = 0
    asked_again: int = 0
    prompt_characters: int = 0
    generated_tokens: int = 0
    sample: list[tuple[Prompt, int]] = field(default_factory=list)

    def prompt_tokens(self, backend: Backend) -> tuple[int, str]:
        """Tokens of all prompts that are sent, and where the number comes from: only the sample is tokenised."""
        counts = count_tokens(backend, [prompt for prompt, _ in self.sample]) if self.sample else []
        if counts is None:
            tokens = round(self.prompt_characters / CHARACTERS_PER_TOKEN)
            return tokens, f"estimated: {CHARACTERS_PER_TOKEN:g} characters per token"
        sent = sum(count * times for count, (_, times) in zip(counts, self.sample, strict=True))
        if len(self.sample) == self.requests and not self.asked_again:
            return sent, "counted"
        sampled = sum(times * _length(prompt) for prompt, times in self.sample)
        tokens = round(sent * self.prompt_characters / max(sampled, 1))
        return tokens, f"estimated from {len(self.sample)} of {self.requests} prompts"


def _none(_: str) -> bool:
    return False


def count_requests(
    items: Iterable[Item], fingerprint: str, backend: Backend, store: Store, is_chosen: Callable[[str], bool] = _none
) -> RequestCounts:
    """Count what is not answered under a fingerprint. Asks nothing.

    ``is_chosen`` says of a question's first key whether it is asked a second time, where its backend wants that.
    """
    counts, draw, source = RequestCounts(), random.Random(0), iter(items)
    while chunk := [keyed_request(item.request, fingerprint) for item in itertools.islice(source, CHUNK)]:
        counts.items += len(chunk)
        answered = store.answers.answered_keys(key for keyed in chunk for key in keyed.keys)
        for keyed in chunk:
            if not answered.issuperset(keyed.keys):
                part = keyed.without(answered)
                is_checked = isinstance(backend, SupportsSecondAnswers) and backend.repeats_itself(part.request)
                _count_request(counts, part.request, backend, draw, times=1 + (is_checked and is_chosen(part.keys[0])))
    return counts


def _count_request(
    counts: RequestCounts, request: Request, backend: Backend, draw: random.Random, *, times: int
) -> None:
    prompt = request.text if isinstance(request, ClassifyRequest) else request.prompt
    cost = request_cost(backend, request)
    counts.requests += 1
    counts.asked_again += times - 1
    counts.prompt_characters += times * cost.times_sent * _length(prompt)
    counts.generated_tokens += times * cost.times_sent * cost.generated_tokens
    if len(counts.sample) < TOKEN_SAMPLE:  # reservoir sampling: each prompt is equally likely to be in it
        counts.sample.append((prompt, cost.times_sent))
    elif (place := draw.randrange(counts.requests)) < TOKEN_SAMPLE:
        counts.sample[place] = prompt, cost.times_sent


def _length(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message.content) for message in prompt)


def _rates(store: Store) -> dict[str, float]:
    """Seconds an asked item took in the latest run of each fingerprint that asked any."""
    rates: dict[str, float] = {}
    for run in store.runs.all():
        result = store.runs.result(run.id)
        for model in result.models if result is not None else ():
            if model.asked >= 20 and model.fingerprint_id not in rates:
                rates[model.fingerprint_id] = model.seconds / model.asked
    return rates
