"""One run from start to end: resolve the audit, ask what is missing, verify the models, evaluate, store the result.

Order matters: bad input is found before a model is loaded, and the store is opened before the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import itertools
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from audit.analysis.answers import SuiteAnswers
from audit.analysis.comparing.attribution import Ladder, asking_steps, engine_pairs, model_steps
from audit.analysis.comparing.comparisons import compare_models
from audit.analysis.comparing.reproduction import reproductions
from audit.analysis.components import suite_components
from audit.analysis.evaluate import EvaluationOptions, SuiteResult, evaluate_suite
from audit.analysis.gate.rules import GateRules, check_rules
from audit.analysis.gate.stored import check_run, find_baseline, stored_tables
from audit.analysis.rows.examples import read_examples
from audit.analysis.rows.responses import ParsedResponses, Responses
from audit.analysis.self_check import EXACT_WITHIN, FOREIGN, move, self_check
from audit.analysis.table import Table
from audit.collect import OnEvent, Outcome, ShutdownRequest, stop_on_signals
from audit.collect.executors import Executor, LocalExecutor
from audit.collect.jobs import Progress
from audit.config import AuditConfig
from audit.logs import run_log
from audit.prepare.rehearsal import refuse_mistakes
from audit.prepare.resolve import ResolvedAudit, resolve_audit
from audit.report.phrases import contradictions, with_words
from audit.report.phrases.checks.problems import failed_requests, identity_in_doubt, identity_unchecked
from audit.results import (
    AuditResult,
    Example,
    LimitCheck,
    Measure,
    SelfCheck,
    UntilDecided,
    VarianceComponents,
)
from audit.run.answer_collector import AnswerCollector, SuiteQuestions
from audit.run.facts import audit_source, config_json, model_info, suite_info, suite_signature, versions
from audit.run.stopping_rule import (
    StoppingQuestion,
    comparison_answer,
    gate_answer,
    precision_answer,
    stopping_question,
)
from audit.store import Store, StoredRow, StoreError
from backends.base import (
    SupportsIdentityCheck,
    SupportsSecondAnswers,
)
from backends.errors import BackendError, ConfigError
from suites.base import Suite


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
        or SIGTERM. The result is also stored. That of a part (``audit.shard``) has no figures, and is not; nor is that
        of a large run that was interrupted (``is_cut_off``).
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
        others = () if before is None else tuple(measure.measure for measure in before.measures)
        await asyncio.to_thread(refuse_mistakes, audit, resolved.items, others)
        store.runs.start(run_id, audit.title, json.dumps(config_json(audit)), started)
        stop.waits_for = _waited_for(resolved, stop)
        stop.on_exit = functools.partial(store.runs.end_at_once, run_id)
        executor = audit.executor or LocalExecutor()
        run = _Run(audit, resolved, store, executor, run_id, started)
        try:
            await executor.own(store)
            outcomes = await run.ask(question, before, stop, _recording_actors(store, run_id, resolved, on_event))
            problems = await run.verify_identities()
            checks = await asyncio.to_thread(run.check_itself, outcomes)
            has_figures = audit.shard is None and not run.collector.is_cut_off
            end = run.evaluate if has_figures else run.end_without_figures
            result = await asyncio.to_thread(end, outcomes, problems, checks, stop.requested)
        except BaseException as error:
            with contextlib.suppress(StoreError):  # the store itself may be what failed
                store.runs.end(run_id, f"failed: {type(error).__name__}", None)
            raise
        finally:
            await executor.close()
            await resolved.close()
        status = "interrupted" if result.interrupted else "done" if result.complete else "incomplete"
        if audit.shard is None:
            store.runs.end(run_id, status, None if result.is_cut_off else result)
        else:
            store.runs.end_part(run_id, audit.shard, status)
    return result


def _recording_actors(store: Store, run_id: str, resolved: ResolvedAudit, on_event: OnEvent) -> OnEvent:
    """``on_event``, which also keeps how many actors answered at most: later forecasts go by it."""
    fingerprints = {described.name: described.fingerprint_id for described in resolved.backends()}
    most: dict[str, int] = {}

    def recording(event: Progress) -> None:
        living = 1 if event.actors is None else event.actors[0]
        fingerprint = fingerprints[event.job]
        if event.done > event.cached and living > most.get(fingerprint, 0):
            most[fingerprint] = living
            store.runs.record_actors(run_id, most)
        on_event(event)

    return recording


def _stoppable(stop: ShutdownRequest) -> contextlib.AbstractContextManager[None]:
    """Let SIGINT and SIGTERM stop the run, if this thread may handle signals."""
    if threading.current_thread() is not threading.main_thread():
        return contextlib.nullcontext()
    return stop_on_signals(stop, "All answers so far are stored: run the same command again to resume.")


def _waited_for(resolved: ResolvedAudit, stop: ShutdownRequest) -> str:
    """What a stop waits for. A local model's step has no time limit: a thread cannot be cut off."""
    is_local = {described.backend.device is not None for described in resolved.backends()}
    step = "for the local model's current step (a forward pass, or loading)"
    if is_local == {True}:
        return step
    return f"{step}, and {stop.waits_for}" if True in is_local else stop.waits_for


def _is_stopped(outcomes: Mapping[str, Sequence[Outcome]]) -> bool:
    """Whether a model is asked no more; one that could not be loaded does not keep the others from their next look."""
    rounds = [outcome for of_model in outcomes.values() for outcome in of_model]
    return any(outcome.stopped and not outcome.unloaded for outcome in rounds) or all(o.unloaded for o in rounds)


@dataclass(frozen=True)
class _SuiteOutcome:
    """A suite's figures, with example items and variance components."""

    result: SuiteResult
    examples: list[Example]
    components: list[VarianceComponents]


class _Run:
    """A run in progress."""

    def __init__(
        self, audit: AuditConfig, resolved: ResolvedAudit, store: Store, executor: Executor, run_id: str, started: str
    ) -> None:
        self._audit, self._resolved, self._store = audit, resolved, store
        self._run_id, self._started, self._began = run_id, started, time.time()
        descriptions = {name: model.description for name, model in resolved.models.items()}
        self._engines = engine_pairs(descriptions, audit.same_weights)
        self._ladder = Ladder(model_steps(descriptions, audit.ladder), asking_steps(audit.suites))
        compared = set(itertools.chain.from_iterable(self._engines))
        questions = {
            (model, name): SuiteQuestions(resolved, model, name, Responses(suite, keep_logprobs=model in compared))
            for model in resolved.models
            for name, suite in audit.suites.items()
        }
        self.collector = AnswerCollector(resolved, questions, store, audit.seed, executor)
        self._until: UntilDecided | None = None
        self._confidence = audit.confidence

    async def ask(
        self, question: StoppingQuestion | None, before: AuditResult | None, stop: ShutdownRequest, on_event: OnEvent
    ) -> dict[str, list[Outcome]]:
        """Ask look by look until ``question`` is decided or nothing is left. Returns the outcomes by backend name."""
        outcomes: dict[str, list[Outcome]] = {}
        looks = self._resolved.looks
        for look in looks:
            for name, of_look in (await self.collector.ask(look.number, stop, on_event)).items():
                outcomes.setdefault(name, []).extend(of_look)
            self._confidence = 1 - (1 - self._audit.confidence) * look.error
            if question is None or self.collector.is_cut_off:
                break
            answer = await asyncio.to_thread(self._answer, question, before)
            self._until = UntilDecided(
                question=question,
                decided=answer,
                look=look.number,
                looks=len(looks),
                items=sum(len(self._asked(suite)) for suite in self._audit.suites),
                of_items=sum(map(len, self._resolved.items.values())),
                confidence=self._audit.confidence,
                within=self._audit.until if isinstance(self._audit.until, float) else None,
            )
            if answer or stop.requested or _is_stopped(outcomes):
                break
        return outcomes

    def _asked(self, suite: str) -> Sequence[int]:
        """The positions of the items asked so far."""
        return self._resolved.places(suite, range(1, self.collector.look + 1))

    def _answer(self, question: StoppingQuestion, before: AuditResult | None) -> bool:
        """Whether the answers so far decide the question, at this look's share of the error."""
        answers = {
            name: {model: _answers(suite, parsed) for model, parsed in self.collector.parsed(name).items()}
            for name, suite in self._audit.suites.items()
        }
        results = [
            evaluate_suite(name, self._audit.suites[name], of, self._options(name)) for name, of in answers.items()
        ]
        result = self._result(results, {}, complete=True, interrupted=False)
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

    async def verify_identities(self) -> list[str]:
        """Quarantine answers that cannot be attributed to the audited model; the next run asks them again."""
        problems = []
        for described in self._resolved.backends():
            if not isinstance(described.backend, SupportsIdentityCheck):
                continue
            try:
                await described.backend.verify_identity()
            except BackendError as error:
                problems.append(identity_unchecked(described.name, error))
            since = described.backend.unverified_since
            if since is not None:
                keys = await asyncio.to_thread(
                    self._store.answers.quarantine_since, described.fingerprint_id, since, "model changed"
                )
                self.collector.retract(keys)
                problems.append(identity_in_doubt(described.name, described.backend.unverified_reason, len(keys)))
        return problems

    def check_itself(self, outcomes: Mapping[str, Sequence[Outcome]]) -> list[SelfCheck]:
        """Compare the answers to questions that were asked twice.

        If some contradict each other, all answers of this run are quarantined: which of them are the model's is
        unknown. If scores vary, all are read again as intervals.
        """
        checks = []
        for described in self._resolved.models.values():
            backend = described.backend
            if not isinstance(backend, SupportsSecondAnswers):
                continue
            stored = self._store.second_answers.read(described.fingerprint_id)
            held = self.collector.held({pair.keys[0] for pair in stored})
            pairs = [pair for pair in stored if pair.keys[0] in held]
            unanswered = sum(outcome.unanswered_again for outcome in outcomes.get(described.name, ()))
            check = self_check(described.name, pairs, unanswered, backend.checks_made())
            if check.contradicted:
                since = min(self._began, *(pair.at for pair in pairs if move(pair.first, pair.second) > FOREIGN))
                keys = self._store.answers.quarantine_since(described.fingerprint_id, since, "asked again, it differed")
                self.collector.retract(keys)
                self._store.second_answers.remove(pair.keys[0] for pair in pairs)
            elif check.noise > EXACT_WITHIN:
                self.collector.read_again(described.name, check.noise)
            if isinstance(backend, SupportsIdentityCheck) and backend.unverified_since is not None:
                check = check.model_copy(update={"contradicted": True})
            checks.append(check)
        return checks

    def evaluate(
        self,
        outcomes: Mapping[str, Sequence[Outcome]],
        problems: Sequence[str],
        checks: Sequence[SelfCheck],
        interrupted: bool,
    ) -> AuditResult:
        """All figures, from the collected answers."""
        audit = self._audit
        suites = [self._evaluate_suite(name) for name in audit.suites]
        results = [suite.result for suite in suites]
        compare = functools.partial(
            compare_models,
            margins=audit.margins,
            confidence=self._confidence,
        )
        steps = self._ladder.evaluate(compare)
        unanswered = sum(result.unanswered for result in results)
        result = self._result(results, outcomes, complete=unanswered == 0, interrupted=interrupted)
        return result.model_copy(
            update={
                "limits": self._limits(result),
                "ladder": [step.model_copy(update={"comparisons": with_words(step.comparisons)}) for step in steps],
                "components": [one for suite in suites for one in suite.components],
                "reproductions": reproductions(result.suites, result.models, result.measures),
                "self_checks": list(checks),
                "examples": [example for suite in suites for example in suite.examples],
                "problems": [
                    *problems,
                    *contradictions(checks),
                    *failed_requests(outcomes, unanswered, [check.model for check in checks if check.contradicted]),
                    *_refused_rules(audit, result.measures),
                ],
            }
        )

    def end_without_figures(
        self,
        outcomes: Mapping[str, Sequence[Outcome]],
        problems: Sequence[str],
        checks: Sequence[SelfCheck],
        interrupted: bool,
    ) -> AuditResult:
        """What was asked of a part of the audit, or until it was stopped.

        A part's figures could be read as the whole audit's. Those of a run that was cut off would lack the questions
        that were not looked up.
        """
        unanswered, is_cut_off = self.collector.unanswered, self.collector.is_cut_off
        complete = unanswered == 0 and not is_cut_off
        result = self._result([], outcomes, complete=complete, interrupted=interrupted)
        told = [*problems, *contradictions(checks), *failed_requests(outcomes, 0 if is_cut_off else unanswered)]
        return result.model_copy(update={"self_checks": list(checks), "problems": told, "is_cut_off": is_cut_off})

    def _limits(self, result: AuditResult) -> list[LimitCheck]:
        """The config's limits on these figures, as a gate would decide them; one that names no figure is a problem."""
        if not self._audit.limits:
            return []
        rules = GateRules(limits=self._audit.limits)
        try:
            return check_run(self._store, result, stored_tables(self._store, result), None, rules).limits
        except ConfigError:
            return []

    def _result(
        self,
        results: Sequence[SuiteResult],
        outcomes: Mapping[str, Sequence[Outcome]],
        *,
        complete: bool,
        interrupted: bool,
    ) -> AuditResult:
        """The result so far: the suites' figures, and the facts about the run."""
        audit = self._audit
        return AuditResult(
            run_id=self._run_id,
            title=audit.title,
            started=self._started,
            finished=_now(),
            complete=complete,
            interrupted=interrupted,
            seed=audit.seed,
            limit=audit.limit,
            shard=audit.shard,
            source=audit_source(audit),
            confidence=self._confidence,
            versions=versions(),
            models=[model_info(model, outcomes.get(model.name, ())) for model in self._resolved.models.values()],
            suites=[
                suite_info(name, suite, audit, self._resolved).model_copy(update={"n_items": len(self._asked(name))})
                for name, suite in audit.suites.items()
            ],
            measures=[measure for result in results for measure in result.measures],
            comparisons=with_words(c for result in results for c in result.comparisons),
            rankings=[r for result in results for r in result.rankings],
            drift=[d for result in results for d in result.drift],
            data_quality=[d for result in results for d in result.data_quality],
            until=self._until,
        )

    def _options(self, name: str) -> EvaluationOptions:
        """How `evaluate_suite` computes one suite's figures."""
        audit = self._audit
        return EvaluationOptions(
            signature=suite_signature(audit, audit.suites[name]),
            margins=audit.margins,
            engines=self._engines,
            lineage=self._ladder.lineage,
            confidence=self._confidence,
            seed=audit.seed,
        )

    def _evaluate_suite(self, name: str) -> _SuiteOutcome:
        by_model = self.collector.release(name)
        suite = self._audit.suites[name]
        answers = {model: _answers(suite, parsed) for model, parsed in by_model.items()}
        result = evaluate_suite(name, suite, answers, self._options(name))
        tables = {model: of.table for model, of in answers.items()}
        self._ladder.add(name, tables, result.specs)
        examples: list[Example] = []
        for model, parsed in by_model.items():
            self._store.runs.write_rows(self._run_id, model, name, _stored_rows(parsed))
            items, figures = self._resolved.items[name], result.examples[model]
            examples += read_examples(self._store, name, model, items, parsed, figures)
        return _SuiteOutcome(result, examples, suite_components(name, tables, result.specs, self._engines))


def _answers(suite: Suite, parsed: ParsedResponses) -> SuiteAnswers:
    in_order = sorted(parsed.by_item, key=lambda item: (len(parsed.place(item)), parsed.place(item)))
    return SuiteAnswers(
        suite,
        Table.of(parsed.rows, suite.families),
        dict.fromkeys(in_order),
        parsed.failures,
        parsed.merged,
        parsed.straddled,
        parsed.straddled_in_part,
        parsed.logprobs(),
    )


def _stored_rows(parsed: ParsedResponses) -> Iterator[StoredRow]:
    rows = {row.item_id for row in parsed.rows}
    for row in parsed.rows:
        behind = [parsed.keys(item) for item in row.items if item in parsed.by_item]
        # A missing row without sources stands for an item that could not be asked, as what follows a lost answer.
        is_lost = row.missing is not None and not row.sources
        is_own = row.item_id in parsed.by_item
        derived = not is_own and not is_lost and all(item in rows for item in row.items)
        yield StoredRow(row, tuple(dict.fromkeys(itertools.chain.from_iterable(behind))), derived)


def _refused_rules(audit: AuditConfig, measures: Sequence[Measure]) -> Iterator[str]:
    """A margin or limit that names no figure."""
    try:
        check_rules([measure.spec for measure in measures], audit.margins, audit.limits)
    except ConfigError as error:
        yield str(audit.located(error))


def _now() -> str:
    # Milliseconds, since nights are ordered by time, and two runs of a small audit may start within a second.
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
