"""What went wrong in a run, and what limits its figures, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from audit.report.figures import Figures
from audit.report.phrases.next_steps import fails_for_good, has_command, run_command
from audit.report.plain_text import one_line
from audit.report.templating import enumeration, lines, words
from audit.results import LITTLE_COVERAGE, NOT_ASKED, AuditResult, DataQuality, SelfCheck
from backends.errors import ERROR_KINDS

_QUIET = 0.01  # nats of noise below which nothing is said
_MANY_FAILED = 0.01  # with a smaller share of failures, there is no caution


def problems_of(result: AuditResult) -> Iterator[str]:
    """All that went wrong in a run."""
    for problem in result.identity:
        yield words("problems", "identity", problem)
    for check in result.self_checks:
        yield from lines("problems", "contradiction", check)
    models = [*result.models, *result.scorers]
    # A contradicted server would be paid once more for the same answers, which are quarantined again.
    for_good = sum(model.failed_for_good for model in models if model.name not in result.contradicted)
    yield from lines("problems", "failed", models, result.unanswered, for_good, result.contradicted)
    yield from result.refused_rules


def self_check_sentences(checks: Sequence[SelfCheck]) -> Iterator[str]:
    """What was checked of each hosted model, and what cannot be; nothing of one whose answers are quarantined."""
    for check in checks:
        if not check.contradicted:
            yield words("problems", "self_check", check, check.noise > _QUIET)


def without_figures(result: AuditResult) -> list[str]:
    """What a run without figures says at its end: it asked a part of an audit, or no model could be loaded."""
    items = sum(info.n_items for info in result.suites)
    if result.shard is None:
        return ["No model could be loaded: there is no report of this run."]
    assert result.source is not None
    again = "the same audit without a shard"
    if has_command(result.source):
        again = run_command(result.source, without=("shard", "db", "out"))
    return lines("problems", "part", result, items, again, shlex.quote(result.source.db))


def cautions(figures: Figures, suite: str) -> Iterator[str]:
    """The suite's own cautions; then figures known only by bounds, and missing answers."""
    many = len(figures.result.suites) > 1
    info = figures.suite(suite)
    title = one_line(info.title)
    for caution in info.cautions:
        yield f"{title}: {one_line(caution)}" if many else one_line(caution)
    place = f" on {title}" if many else ""
    yield from _of_common_words(figures, suite, place)
    unloaded = {model.name for model in figures.result.models if model.unloaded}  # the problems say why, once
    for entry in figures.result.data_quality:
        if entry.suite == suite and entry.model not in unloaded:
            yield from (f"{one_line(entry.model)}{place}: {line}" for line in _of_quality(figures, entry))


def _of_common_words(figures: Figures, suite: str, place: str) -> Iterator[str]:
    """Contrasts of the sign and size that their words alone have, after a neutral start."""
    alone = {(m.model, m.measure): m.value for m in figures.result.measures if m.suite == suite}
    for name, where, _ in figures.leading(suite):
        for m in figures.by_model(suite, name, where):
            base = alone.get((m.model, m.spec.baseline))
            if m.value and base and m.value * base > 0 and abs(base) >= abs(m.value) / 2:
                yield words("problems", "common_words", f"{one_line(m.model)}{place}", name, m.value, base)


def _of_quality(figures: Figures, entry: DataQuality) -> list[str]:
    """What is known only by bounds, how many items have no answer and why, and what can be done about it."""
    result = figures.result
    unasked = entry.failures.get(NOT_ASKED, 0)
    lost = {reason: n for reason, n in entry.failures.items() if reason != NOT_ASKED}
    lost = dict(sorted(lost.items(), key=lambda one: -one[1]))
    own = (m for m in result.measures if (m.model, m.suite) == (entry.model, entry.suite) and m.missing)
    unbounded = any(not m.spec.has_range for m in own)
    again = ""
    if unasked and entry.model not in result.contradicted:
        again = " Run the audit again to ask the rest."
    elif not ERROR_KINDS.isdisjoint(lost) and not fails_for_good(result, entry.model):
        again = " Run the audit again to repeat the failed requests."
    many_failed = sum(entry.failures.values()) > _MANY_FAILED * entry.n_items
    return lines("problems", "quality", entry, many_failed, lost, unasked, unbounded, again)


def weak_claims(figures: Figures, suites: Sequence[str]) -> Iterator[str]:
    """That the models expect something else than the listed answers, in one sentence for all suites."""
    weakest: dict[str, DataQuality] = {}
    where: dict[str, None] = {}
    for e in figures.result.data_quality:
        if e.suite in suites and e.is_weak:
            if e.model not in weakest or e.weakness > weakest[e.model].weakness:
                weakest[e.model] = e
            where[one_line(figures.suite(e.suite).title)] = None
    if weakest:
        place = f" on {enumeration(where)}" if len(figures.result.suites) > 1 else ""
        yield words("problems", "weak", place, weakest, f"{100 * LITTLE_COVERAGE:.0f}")
