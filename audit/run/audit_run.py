"""One run from start to end: resolve the audit, ask what is missing, check the answers, evaluate, store the result.

Order matters: bad input is found before a model is loaded, and the store is opened before the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence

from audit.analysis.answers import SuiteAnswers
from audit.analysis.comparing.attribution import engine_pairs, model_steps
from audit.analysis.comparing.reproduction import reproductions
from audit.analysis.gate.rules import GateRules, check_rules
from audit.analysis.gate.stored import check_run, find_baseline, stored_tables
from audit.analysis.measures import SuiteResult, evaluate_suite
from audit.analysis.power import suite_components
from audit.collect import Job, OnEvent, Outcome, ShutdownRequest, run_jobs, stop_on_signals
from audit.collect.executors import Executor
from audit.collect.job_run import Progress, outcome_of
from audit.config import AuditConfig
from audit.logs import run_log
from audit.prepare.rehearsal import refuse_mistakes
from audit.prepare.resolve import ResolvedAudit, resolve_audit
from audit.results import (
    AuditResult,
    Example,
    IdentityProblem,
    LimitCheck,
    SelfCheck,
    UntilDecided,
    VarianceComponents,
)
from audit.run.checks import EXACT_WITHIN, check_answers, verify_identities, within_noise
from audit.run.facts import audit_source, config_json, model_info, read_examples, suite_info, suite_signature, versions
from audit.run.stopping_rule import (
    StoppingQuestion,
    comparison_answer,
    gate_answer,
    precision_answer,
    stopping_question,
)
from audit.run.walk import Walk
from audit.store import Store, StoreError
from backends.base import Response
from backends.errors import ConfigError

#: Answers that may belong to another request are asked again so often; then they stay missing until the next run.
MOST_AMBIGUOUS_ROUNDS = 3


def _ignore(_: object) -> None:
    """No display."""


async def run_audit(
    audit: AuditConfig,
    *,
    baseline: str | None = None,
    on_event: OnEvent = _ignore,
    verbose: bool = False,
    stop: ShutdownRequest | None = None,
) -> AuditResult:
    """Run an audit: ask what the store does not hold yet, then evaluate all answers.

    Parameters
    ----------
    audit : Audit
        The audit to run.
    baseline : str, optional
        With ``until="decided"``: the run to compare with, as for a gate. Without it, the config's limits or the
        comparison of its models are to be decided.
    on_event : callable, optional
        Called with progress, retries and failures.
    verbose : bool
        Also show the run's log on stderr; it is always written under ``audit.out/logs``.
    stop : ShutdownRequest, optional
        For callers that stop the run themselves. In the main thread SIGINT and SIGTERM do so as well.

    Returns
    -------
    AuditResult
        ``complete`` is False if a question has no answer; ``interrupted`` is True after SIGINT
        or SIGTERM. The result is also stored. That of a part (``audit.shard``) has no figures, and is not.
    """
    if baseline is not None and audit.until is None:
        hint = "Add --until decided, or leave it out: audit gate compares a finished run"
        raise ConfigError("--baseline", baseline, "this run asks everything, with or without a baseline", hint)
    question = None if audit.until is None else stopping_question(audit, baseline)
    started = _now()
    stop = stop or ShutdownRequest()
    run_id = f"{started[:19].replace(':', '').replace('-', '')}-{secrets.token_hex(3)}"
    with (
        Store.open(audit.db, shards=audit.store_shards) as store,
        run_log(audit.out / "logs", run_id, verbose=verbose),
        _stoppable(stop),
    ):
        before = None if baseline is None else find_baseline(store, baseline)
        resolved = await resolve_audit(audit, store)
        await asyncio.to_thread(refuse_mistakes, audit, resolved.items)
        store.runs.start(run_id, audit.title, json.dumps(config_json(audit)), started)
        executor: Executor = audit.executor or Executor()
        run = _Run(audit, resolved, store, executor, run_id, started)
        try:
            await run.ask(question, before, stop, on_event)
            await run.check()
            end = run.evaluate if audit.shard is None else run.end_without_figures
            result = await asyncio.to_thread(end, stop.requested)
        except BaseException as error:
            with contextlib.suppress(StoreError):  # the store itself may be what failed
                store.runs.end(run_id, f"failed: {type(error).__name__}", None)
            raise
        finally:
            await executor.close()
            await resolved.close()
        status = "interrupted" if result.interrupted else "done" if result.complete else "incomplete"
        if audit.shard is None:
            store.runs.end(run_id, status, result)
        else:
            store.runs.end_part(run_id, audit.shard, status)
    return result


def _stoppable(stop: ShutdownRequest) -> contextlib.AbstractContextManager[None]:
    """Let SIGINT and SIGTERM stop the run, if this thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        return contextlib.nullcontext()
    return stop_on_signals(stop, "All answers so far are stored: run the same command again to resume.")


class _Run:
    """A run in progress."""

    def __init__(
        self, audit: AuditConfig, resolved: ResolvedAudit, store: Store, executor: Executor, run_id: str, started: str
    ) -> None:
        self._audit, self._resolved, self._store, self._executor = audit, resolved, store, executor
        self._run_id, self._started = run_id, started
        descriptions = {name: model.description for name, model in resolved.models.items()}
        self._engines = engine_pairs(descriptions, audit.same_weights)
        self._steps = model_steps(descriptions, audit.ladder)
        self._walk = Walk(resolved, audit.suites, store, run_id=run_id, runs=audit.runs, seed=audit.seed)
        self._outcomes: dict[str, list[Outcome]] = {}
        self._look = 1
        self._until: UntilDecided | None = None
        self._confidence = audit.confidence
        self._checks: list[SelfCheck] = []
        self._identity: list[IdentityProblem] = []

    @property
    def _looks(self) -> range:
        """The looks so far."""
        return range(1, self._look + 1)

    # -- ask -----------------------------------------------------------------------------------

    async def ask(
        self, question: StoppingQuestion | None, before: AuditResult | None, stop: ShutdownRequest, on_event: OnEvent
    ) -> None:
        """Ask look by look until ``question`` is decided or nothing is left."""
        looks = self._resolved.looks
        for look in looks:
            self._look = look.number
            await self._ask_look(stop, on_event)
            self._confidence = 1 - (1 - self._audit.confidence) * look.error
            if question is None:
                break
            answer = await asyncio.to_thread(self._answer, question, before)
            self._until = UntilDecided(
                question=question,
                decided=answer,
                look=look.number,
                looks=len(looks),
                items=sum(map(self._n_asked, self._audit.suites)),
                of_items=sum(map(len, self._resolved.items.values())),
                confidence=self._audit.confidence,
                within=self._audit.until if isinstance(self._audit.until, float) else None,
            )
            if answer or stop.requested or self._is_stopped:
                break

    async def _ask_look(self, stop: ShutdownRequest, on_event: OnEvent) -> None:
        """Ask what is missing, then what follows from the answers, until nothing does."""
        ambiguous = 0
        while not stop.requested:
            jobs = await asyncio.to_thread(self._missing, on_event)
            self._take_in({job.name: outcome_of(job) for job in jobs if not job.asks})
            if not (missing := [job for job in jobs if job.asks]):
                break
            asked = await run_jobs(
                missing, self._store, self._executor, run_id=self._run_id, stop=stop, on_event=on_event
            )
            self._take_in(asked)
            if aside := [key for outcome in asked.values() for key in outcome.set_aside]:
                self._store.second_answers.remove(aside)
                ambiguous += 1
            if not (self._walk.follows or aside) or ambiguous > MOST_AMBIGUOUS_ROUNDS:
                break
            if all(outcome.stopped for outcome in asked.values()):
                break

    def _missing(self, on_event: OnEvent) -> list[Job]:
        for model in self._resolved.models:
            on_event(Progress(model, 0, None, 0, 0, 0, "looking up what is stored"))
        return self._walk.jobs(self._looks)

    def _take_in(self, asked: Mapping[str, Outcome]) -> None:
        for name, outcome in asked.items():
            self._outcomes.setdefault(name, []).append(outcome)
            self._walk.failed |= outcome.failed_by_key

    @property
    def _is_stopped(self) -> bool:
        """Whether a model is asked no more; one that could not be loaded does not keep the others from their look."""
        rounds = [outcome for of_model in self._outcomes.values() for outcome in of_model]
        if not rounds:
            return False
        return any(o.stopped and not o.unloaded for o in rounds) or all(o.unloaded for o in rounds)

    def _n_asked(self, suite: str) -> int:
        return len(self._resolved.places(suite, self._looks))

    def _answer(self, question: StoppingQuestion, before: AuditResult | None) -> bool:
        """Whether the answers so far decide the question, at this look's share of the error."""
        answers = {name: self._read(name) for name in self._audit.suites}
        result = self._result([self._evaluate(name, answers[name]) for name in answers], False)
        if isinstance(self._audit.until, float):
            return precision_answer(self._audit.until, result)
        if question == "comparison":
            return comparison_answer(result.comparisons, result)
        rules = GateRules(self._audit.margins, self._audit.limits)
        try:
            report = check_run(self._store, result, lambda model, suite: answers[suite][model].table, before, rules)
        except ConfigError:  # a margin or limit names no figure yet: reported at the end, if it still does not
            return False
        return gate_answer(report, result)

    # -- check ---------------------------------------------------------------------------------

    async def check(self) -> None:
        """Set aside what is not the audited models' answers, and measure by how much the others vary."""
        self._identity = await verify_identities(self._resolved, self._store)
        self._checks = await asyncio.to_thread(
            check_answers, self._resolved, self._store, self._outcomes, datetime.datetime.fromisoformat(self._started)
        )

    def _seen(self, model: str) -> functools.partial[Response]:
        noise = max((check.noise for check in self._checks if check.model == model), default=0.0)
        return functools.partial(within_noise, noise=noise if noise > EXACT_WITHIN else 0.0)

    # -- evaluate ------------------------------------------------------------------------------

    def _read(self, suite: str) -> dict[str, SuiteAnswers]:
        """Each model's stored answers to a suite, as rows."""
        return {model: self._walk.read(model, suite, self._looks, self._seen(model)) for model in self._resolved.models}

    def _evaluate(self, name: str, answers: Mapping[str, SuiteAnswers]) -> SuiteResult:
        audit = self._audit
        return evaluate_suite(
            name,
            answers,
            signature=suite_signature(audit, audit.suites[name]),
            margins=audit.margins,
            confidence=self._confidence,
            seed=audit.seed,
            engines=self._engines,
            steps=self._steps,
        )

    def evaluate(self, interrupted: bool) -> AuditResult:
        """All figures, from the stored answers."""
        audit = self._audit
        results: list[SuiteResult] = []
        examples: list[Example] = []
        components: list[VarianceComponents] = []
        for name in audit.suites:
            answers = self._read(name)
            found = self._evaluate(name, answers)
            tables = {model: own.table for model, own in answers.items()}
            components += suite_components(name, tables, found.specs)
            shown = {item.partition("~")[0] for of_model in found.examples.values() for item in of_model}
            items = {item.id: item for item in self._resolved.items[name] if item.id in shown}
            for model, own in answers.items():
                self._store.runs.write_table(self._run_id, model, name, own.table, own.items)
                examples += read_examples(self._store, name, model, own, items, found.examples[model])
            results.append(found)
        result = self._result(results, interrupted)
        return result.model_copy(
            update={
                "limits": self._limits(result),
                "ladder": [step for found in results for step in found.ladder],
                "components": components,
                "reproductions": reproductions(result.suites, result.models, result.measures),
                "examples": examples,
                "refused_rules": list(self._refused_rules(result)),
            }
        )

    def end_without_figures(self, interrupted: bool) -> AuditResult:
        """What was asked of a part of the audit, whose figures could be read as the whole audit's."""
        unanswered = self._walk.unanswered(self._looks)
        result = self._result([], interrupted)
        return result.model_copy(update={"complete": unanswered == 0, "unanswered": unanswered})

    def _limits(self, result: AuditResult) -> list[LimitCheck]:
        """The config's limits on these figures, as a gate would decide them."""
        if not self._audit.limits:
            return []
        rules = GateRules(limits=self._audit.limits)
        with contextlib.suppress(ConfigError):  # one that names no figure: see `_refused_rules`
            return check_run(self._store, result, stored_tables(self._store, result), None, rules).limits
        return []

    def _refused_rules(self, result: AuditResult) -> Iterator[str]:
        """A margin or limit that names no figure."""
        try:
            check_rules([measure.spec for measure in result.measures], self._audit.margins, self._audit.limits)
        except ConfigError as error:
            yield str(self._audit.located(error))

    def _result(self, results: Sequence[SuiteResult], interrupted: bool) -> AuditResult:
        """The result so far: the suites' figures, and the facts about the run."""
        audit = self._audit
        unanswered = sum(result.unanswered for result in results)
        return AuditResult(
            run_id=self._run_id,
            title=audit.title,
            started=self._started,
            finished=_now(),
            complete=unanswered == 0,
            unanswered=unanswered,
            interrupted=interrupted,
            seed=audit.seed,
            limit=audit.limit,
            runs=audit.runs,
            shard=audit.shard,
            source=audit_source(audit),
            confidence=self._confidence,
            versions=versions(),
            models=[model_info(model, self._outcomes.get(model.name, ())) for model in self._resolved.models.values()],
            scorers=[
                model_info(scorer, self._outcomes.get(scorer.name, ())) for scorer in self._resolved.scorers.values()
            ],
            suites=[
                suite_info(name, suite, audit, self._resolved, self._n_asked(name))
                for name, suite in audit.suites.items()
            ],
            measures=[measure for result in results for measure in result.measures],
            comparisons=[c for result in results for c in result.comparisons],
            rankings=[r for result in results for r in result.rankings],
            data_quality=[d for result in results for d in result.data_quality],
            until=self._until,
            self_checks=self._checks,
            identity=self._identity,
        )


def _now() -> str:
    # Milliseconds, since nights are ordered by time, and two runs of a small audit may start within a second.
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
