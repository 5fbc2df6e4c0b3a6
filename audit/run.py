"""Running an audit: check, describe, ask what is missing, judge.

Order matters: everything that may be wrong with the input is found before a model is loaded, and
the store is opened before the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import platform
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.analysis.engine_noise import same_weights
from audit.analysis.evaluate import evaluate_suite
from audit.analysis.gate import check_names
from audit.analysis.parsed_responses import ParsedResponses
from audit.analysis.responses import has_follow_ups, item_responses
from audit.collect.plan import ItemsFactory, Plan, limit_items
from audit.collect.scheduler import Job, OnEvent, Outcome, run_jobs
from audit.collect.shutdown import ShutdownRequest, stop_on_signals
from audit.collect.work import estimate_work
from audit.config import AuditConfig
from audit.logs import run_log
from audit.report.phrases import with_words
from audit.results import AuditResult, ModelInfo, SuiteInfo
from audit.store import Store, StoreError
from backends.base import Backend, Description, SupportsIdentityCheck, SupportsPrices, count_tokens
from backends.errors import BackendError, ConfigError
from suites.base import Item, Suite


@dataclass(frozen=True)
class DescribedBackend:
    """A backend that an audit asks: an audited model, or a suite's scorer."""

    name: str
    backend: Backend
    description: Description
    fingerprint_id: str


@dataclass(frozen=True)
class ResolvedAudit:
    """A checked audit: its models and scorers described, its items (limited) at hand.

    ``scorers`` is keyed by (suite, scorer name).
    """

    models: Mapping[str, DescribedBackend]
    scorers: Mapping[tuple[str, str], DescribedBackend]
    items: Mapping[str, ItemsFactory]

    def fingerprint_of(self, model: str, suite: str) -> Callable[[str | None], str]:
        """``Item.scorer → fingerprint id`` for one model and suite."""

        def of(scorer: str | None) -> str:
            asked = self.models[model] if scorer is None else self.scorers[suite, scorer]
            return asked.fingerprint_id

        return of


async def prepare(audit: AuditConfig, store: Store) -> ResolvedAudit:
    """Check everything, describe the models and find the ids of their answers, without loading weights.

    Raises
    ------
    ConfigError
        For bad input, and for a backend that cannot do what a suite asks.
    """
    audit.check()
    models = {name: await _described(name, backend, store) for name, backend in audit.models.items()}
    scorers = {}
    for suite_name, suite in audit.suites.items():
        for name, asked in models.items():
            lacking = suite.needs - asked.description.capabilities
            if lacking:
                raise ConfigError(
                    f"models.{name}",
                    type(asked.backend).__name__,
                    f"it cannot do what suites.{suite_name} asks: {', '.join(sorted(lacking))}",
                    f"It can: {', '.join(sorted(asked.description.capabilities)) or 'nothing'}. "
                    "Leave the model or the suite out, or change the suite's mode",
                )
        for scorer, backend in suite.scorers.items():
            backend.check()
            scorers[suite_name, scorer] = await _described(f"{suite_name}: {scorer}", backend, store)
    items: dict[str, ItemsFactory] = {
        name: suite.items
        if audit.limit is None
        else limit_items(suite.items, suite.strata, audit.limit, audit.seed, suite.sampled_together)
        for name, suite in audit.suites.items()
    }
    return ResolvedAudit(models, scorers, items)


async def _described(name: str, backend: Backend, store: Store) -> DescribedBackend:
    try:
        description = await backend.describe()
    except ConfigError as error:
        raise error.within(f"models.{name}") from None
    except BackendError as error:
        raise ConfigError(
            f"models.{name}", type(backend).__name__, str(error), error.hint or "See that it can be reached"
        ) from None
    identity = await asyncio.to_thread(store.fingerprints.resolve, description.fingerprint, description.retired)
    return DescribedBackend(name, backend, description, identity)


def _silent(_: object) -> None:
    """No display."""


def _stoppable(stop: ShutdownRequest) -> contextlib.AbstractContextManager[None]:
    """SIGINT and SIGTERM stop the run, where this thread may handle signals at all."""
    if threading.current_thread() is not threading.main_thread():
        return contextlib.nullcontext()
    return stop_on_signals(stop, "What was answered is stored: run the same command again to go on.")


async def run_audit(
    audit: AuditConfig, *, on_event: OnEvent = _silent, verbose: bool = False, stop: ShutdownRequest | None = None
) -> AuditResult:
    """Run an audit: ask what the store does not hold yet, then judge what it holds.

    Parameters
    ----------
    audit : Audit
        What to ask of whom.
    on_event : callable, optional
        Told of progress, retries and failures.
    verbose : bool
        Show the run's log on stderr too; it is kept under ``audit.out/logs`` anyway.
    stop : ShutdownRequest, optional
        For callers that stop the run themselves. SIGINT and SIGTERM do, in a main thread.

    Returns
    -------
    AuditResult
        ``complete`` is False when a question has no answer; ``interrupted`` is True after SIGINT
        or SIGTERM. The same result is kept in the store.
    """
    started = _now()
    stop = stop or ShutdownRequest()
    run_id = f"{started[:19].replace(':', '').replace('-', '')}-{secrets.token_hex(3)}"
    with (
        Store.open(audit.db) as store,
        run_log(audit.out / "logs", run_id, verbose=verbose),
        _stoppable(stop),
    ):
        prepared = await prepare(audit, store)
        store.runs.start(run_id, audit.title, json.dumps(_config_json(audit)))
        try:
            outcomes, read = await _ask(audit, prepared, store, stop, on_event)
            suspects = await _quarantine_unverified(prepared, store)
            if suspects:
                read = {}  # some of those answers are no longer in the store
            result = await asyncio.to_thread(
                _judged, audit, prepared, store, run_id, started, outcomes, read, suspects, stop
            )
        except BaseException as error:
            with contextlib.suppress(StoreError):  # the store itself may be what failed
                store.runs.finish(run_id, f"failed: {type(error).__name__}", None)
            raise
        finally:
            for asked in (*prepared.models.values(), *prepared.scorers.values()):
                await asked.backend.close()
        status = "interrupted" if result.interrupted else "done" if result.complete else "incomplete"
        store.runs.finish(run_id, status, result)
    return result


#: What was read of (suite, model) on the way.
Readings = dict[tuple[str, str], ParsedResponses]


async def _ask(
    audit: AuditConfig, prepared: ResolvedAudit, store: Store, stop: ShutdownRequest, on_event: OnEvent
) -> tuple[dict[str, list[Outcome]], Readings]:
    """Ask in waves until no answer gives rise to a further question; what the last look at the store read."""
    outcomes: dict[str, list[Outcome]] = {}
    tried: set[str] = set()  # keys of failed follow-ups, so that they are tried once a run
    wave = 0
    while not stop.requested:
        read: Readings = {}
        jobs = await asyncio.to_thread(_jobs, audit, prepared, store, wave, tried, read)
        if not jobs:
            return outcomes, read
        for name, outcome in (await run_jobs(jobs, store, on_event=on_event, stop=stop)).items():
            outcomes.setdefault(name, []).append(outcome)
        wave += 1
        if not any(has_follow_ups(suite) for suite in audit.suites.values()):
            break
    return outcomes, {}


def _jobs(
    audit: AuditConfig, prepared: ResolvedAudit, store: Store, wave: int, tried: set[str], read: Readings
) -> list[Job]:
    return [
        Job(asked.name, asked.backend, _plan(asked, items))
        for asked, items in _wave(audit, prepared, store, wave, tried, read)
    ]


def _plan(asked: DescribedBackend, items: ItemsFactory) -> Plan:
    if asked.backend.device is None:
        return Plan(asked.name, asked.fingerprint_id, items, sum(1 for _ in items()))
    work = estimate_work(item.request for item in items())
    return Plan(asked.name, asked.fingerprint_id, items, len(work), work)


def _wave(
    audit: AuditConfig, prepared: ResolvedAudit, store: Store, wave: int, tried: set[str], read: Readings
) -> Iterator[tuple[DescribedBackend, ItemsFactory]]:
    """Who is asked what in a wave: the suites' own items first, then what follows from answers."""
    if wave == 0:
        for asked in prepared.models.values():
            yield asked, lambda: itertools.chain.from_iterable(items() for items in prepared.items.values())
        return
    missing: dict[str, list[Item]] = {}
    who: dict[str, DescribedBackend] = {}
    for model in prepared.models:
        for suite_name, suite in audit.suites.items():
            if not has_follow_ups(suite):
                continue
            fingerprint_of = prepared.fingerprint_of(model, suite_name)
            reading = read[suite_name, model] = ParsedResponses(suite)
            for one in item_responses(prepared.items[suite_name], suite, fingerprint_of, store):
                reading.add(one)
                scorer = one.item.scorer
                if one.item.id == one.root and scorer is None:
                    continue  # the first wave asked it: what failed there is not paid for twice
                unanswered = one.answer is None or isinstance(one.answer, BackendError)
                if not unanswered or tried.issuperset(one.keys):
                    continue
                tried.update(one.keys)
                asked = prepared.models[model] if scorer is None else prepared.scorers[suite_name, scorer]
                who[asked.name] = asked
                missing.setdefault(asked.name, []).append(one.item)
    for name, items in missing.items():
        yield who[name], items.__iter__


async def _quarantine_unverified(prepared: ResolvedAudit, store: Store) -> list[str]:
    """Answers of nobody knows whom are not judged: they are set aside, and asked again by the next run."""
    told = []
    for asked in (*prepared.models.values(), *prepared.scorers.values()):
        if not isinstance(asked.backend, SupportsIdentityCheck):
            continue
        try:
            await asked.backend.verify_identity()
        except BackendError as error:
            told.append(f"{asked.name}: whether it is still the same model could not be checked: {error}")
        since = asked.backend.unverified_since
        if since is not None:
            count = await asyncio.to_thread(
                store.answers.quarantine_since, asked.fingerprint_id, since, "model changed"
            )
            told.append(
                f"{asked.name}: another model answers under this name; "
                f"{count} answers since the last sure one are set aside"
            )
    return told


def _judged(
    audit: AuditConfig,
    prepared: ResolvedAudit,
    store: Store,
    run_id: str,
    started: str,
    outcomes: Mapping[str, list[Outcome]],
    read: Readings,
    suspects: list[str],
    stop: ShutdownRequest,
) -> AuditResult:
    models = [_model_info(asked, outcomes.get(asked.name, [])) for asked in prepared.models.values()]
    engines = same_weights(models, audit.same_weights)
    verdicts = {
        name: evaluate_suite(
            name,
            suite,
            prepared.items[name],
            {model: prepared.fingerprint_of(model, name) for model in prepared.models},
            store,
            read={model: reading for (of, model), reading in read.items() if of == name},
            run_id=run_id,
            signature=_signature(audit, suite),
            margins=audit.margins,
            engines=engines,
            confidence=audit.confidence,
            seed=audit.seed,
        )
        for name, suite in audit.suites.items()
    }
    problems = suspects + [f"{name}: {o.stopped}" for name, some in outcomes.items() for o in some if o.stopped]
    unanswered = sum(verdict.unanswered for verdict in verdicts.values())
    if unanswered:
        problems.append(f"{unanswered} questions have no answer; run the same command again to ask them")
    measures = [m for v in verdicts.values() for m in v.measures]
    try:
        check_names(measures, audit.margins, audit.limits)
    except ConfigError as error:
        problems.append(str(error))
    return AuditResult(
        run_id=run_id,
        title=audit.title,
        started=started,
        finished=_now(),
        complete=unanswered == 0,
        interrupted=stop.requested,
        seed=audit.seed,
        limit=audit.limit,
        confidence=audit.confidence,
        versions=_versions(),
        models=models,
        suites=[_suite_info(name, suite, audit, prepared) for name, suite in audit.suites.items()],
        measures=measures,
        comparisons=with_words(c for v in verdicts.values() for c in v.comparisons),
        rankings=[r for v in verdicts.values() for r in v.rankings],
        drift=[d for v in verdicts.values() for d in v.drift],
        data_quality=[entry for v in verdicts.values() for entry in v.data_quality],
        examples=[e for v in verdicts.values() for e in v.examples],
        problems=problems,
    )


def _signature(audit: AuditConfig, suite: Suite) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "version": suite.version,
        **suite.signature(),
        "limit": audit.limit,
        **({"seed": audit.seed} if audit.limit is not None else {}),
    }


def _config_json(audit: AuditConfig) -> dict[str, Any]:
    return {
        "models": {name: type(backend).__name__ for name, backend in audit.models.items()},
        "suites": {name: dict(_signature(audit, suite)) for name, suite in audit.suites.items()},
        "seed": audit.seed,
        "limit": audit.limit,
        "confidence": audit.confidence,
        "margins": audit.margins,
        "limits": audit.limits,
    }


def _model_info(asked: DescribedBackend, outcomes: list[Outcome]) -> ModelInfo:
    return ModelInfo(
        name=asked.name,
        backend=type(asked.backend).__name__,
        fingerprint=dict(asked.description.fingerprint),
        fingerprint_id=asked.fingerprint_id,
        notes=dict(asked.description.notes),
        asked=sum(o.answered for o in outcomes),
        cached=sum(o.cached for o in outcomes),
        failed=sum(o.failed for o in outcomes),
        retried=sum(o.retried for o in outcomes),
        seconds=sum(o.seconds for o in outcomes),
        prompt_tokens=sum(o.prompt_tokens for o in outcomes),
        completion_tokens=sum(o.completion_tokens for o in outcomes),
        cost=asked.backend.spent() if isinstance(asked.backend, SupportsPrices) else None,
    )


def _suite_info(name: str, suite: Suite, audit: AuditConfig, prepared: ResolvedAudit) -> SuiteInfo:
    texts = suite.texts()
    lengths: dict[str, dict[str, int]] = {text: {} for text in texts}
    for model, asked in prepared.models.items():
        counts = count_tokens(asked.backend, list(texts.values()))
        if counts is not None:
            for text, count in zip(texts, counts, strict=True):
                lengths[text][model] = count
    kind = type(suite).__name__
    alone = sum(type(other) is type(suite) for other in audit.suites.values()) == 1
    return SuiteInfo(
        name=name,
        title=kind if alone else f"{kind} ({name})",
        n_items=sum(1 for _ in prepared.items[name]()),
        signature=_signature(audit, suite),
        tables=[dataclasses.asdict(table) for table in suite.tables()],
        charts=[dataclasses.asdict(chart) for chart in suite.charts()],
        published=[dataclasses.asdict(figure) for figure in suite.published()],
        text_tokens=lengths,
        cautions=list(suite.cautions()),
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in (
        "bias-audit",
        "numpy",
        "scipy",
        "torch",
        "transformers",
        "llama-cpp-python",
        "httpx",
    ):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
