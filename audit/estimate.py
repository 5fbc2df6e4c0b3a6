"""What a run would ask, how long it may take and what it may cost, without asking anything."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from audit.collect.plan import Estimate, Plan, estimate
from audit.config import AuditConfig
from audit.run import prepare
from audit.store import Store
from backends.base import Backend, SupportsPrices


class ModelEstimate(BaseModel):
    """One model's share of a run. Times in seconds; None where nothing is known to estimate from.

    ``seconds_by`` and ``tokens_by`` say where an estimate comes from. ``cost`` is in the currency of
    the backend's price table, and no bound: a server's route may need more requests for a score than it has
    continuations, or fewer, and what fails is asked again. `--max-cost` holds whatever the estimate says.
    """

    model: str
    items: int
    requests: int
    cached: int
    prompt_tokens: int
    tokens_by: str
    most_generated_tokens: int
    seconds: float | None
    seconds_by: str
    cost: float | None


class RunEstimate(BaseModel):
    """What a run would ask of each model."""

    models: list[ModelEstimate]

    def as_text(self) -> str:
        """For a person to read."""
        lines = []
        for m in self.models:
            seconds = "unknown" if m.seconds is None else f"{m.seconds:.0f} s"
            lines.append(
                f"{m.model}\n"
                f"  items {m.items:,}, to ask {m.requests:,}, answered already {m.cached:,}\n"
                f"  prompt tokens {m.prompt_tokens:,} ({m.tokens_by}), generated up to {m.most_generated_tokens:,}\n"
                f"  time {seconds} ({m.seconds_by})" + ("" if m.cost is None else f"\n  cost about {m.cost:.4f}")
            )
        return "\n".join(lines)


async def dry_run_audit(audit: AuditConfig) -> RunEstimate:
    """Check the audit and count what it would ask. Loads no weights; a server is probed.

    Questions that depend on answers (follow-ups) cannot be counted before those are there.
    """
    with _store(audit.db) as store:
        prepared = await prepare(audit, store)
        try:
            rates = await asyncio.to_thread(_rates, store)
            found = []
            for asked in prepared.models.values():
                plan = Plan(
                    asked.name,
                    asked.fingerprint_id,
                    lambda: itertools.chain.from_iterable(items() for items in prepared.items.values()),
                )
                counted = await asyncio.to_thread(estimate, plan, store, asked.backend)
                found.append(_model_estimate(counted, rates.get(asked.fingerprint_id), asked.backend))
        finally:
            for asked in (*prepared.models.values(), *prepared.scorers.values()):
                await asked.backend.close()
    return RunEstimate(models=found)


@contextlib.contextmanager
def _store(db: Path) -> Iterator[Store]:
    """The audit's store; where there is none yet, an empty one elsewhere: `--fresh` refuses what a dry run left."""
    with tempfile.TemporaryDirectory() as folder:
        path = db if db.exists() else Path(folder, "empty.db")
        with Store.open(path) as store:
            yield store


def _model_estimate(counted: Estimate, rate: float | None, backend: Backend) -> ModelEstimate:
    return ModelEstimate(
        model=counted.model,
        items=counted.items,
        requests=counted.requests,
        cached=counted.cached,
        prompt_tokens=counted.prompt_tokens,
        tokens_by=counted.tokens_by,
        most_generated_tokens=counted.generated_tokens,
        seconds=0.0 if counted.requests == 0 else None if rate is None else rate * counted.requests,
        seconds_by="nothing to ask"
        if counted.requests == 0
        else "no earlier run of this model in the store"
        if rate is None
        else "from the pace of its last run",
        cost=backend.highest_cost(counted.prompt_tokens, counted.generated_tokens)
        if isinstance(backend, SupportsPrices)
        else None,
    )


def _rates(store: Store) -> dict[str, float]:
    """Seconds an asked item took in the latest run of each fingerprint that asked any."""
    rates: dict[str, float] = {}
    for run in store.runs.all():
        result = store.runs.result(run.id)
        for model in result.models if result is not None else ():
            if model.asked >= 20 and model.fingerprint_id not in rates:
                rates[model.fingerprint_id] = model.seconds / model.asked
    return rates
