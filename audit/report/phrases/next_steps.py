"""What the reader can do next: only what helps, with the exact command."""

from __future__ import annotations

import shlex

from audit.report.figures import Figures
from audit.report.formatting import measure_label
from audit.report.templating import lines, words
from audit.results import NOT_ASKED, AuditResult, AuditSource, Comparison
from backends.errors import ERROR_KINDS, ErrorKind

#: The difference that a plan is for where the run's margin is 0, and so no size.
_DETECT = 0.02
#: Failures that asking again unchanged would only repeat.
_FOR_GOOD: frozenset[ErrorKind] = frozenset({"bad_request", "unsupported", "context_length"})


def next_steps(figures: Figures) -> list[str]:
    """What the reader can do next, most urgent first. Commands are in backticks."""
    result, source = figures.result, figures.result.source
    of_store = store_option(source)
    broken = next((check for check in result.limits if check.verdict == "broken"), None)
    baseline = judged_against(result)
    open_ = [c for c in result.comparisons if _more_items_help(c, result)]
    first = next((c for c in open_ if _is_planned(result, c)), next(iter(open_), None))
    asks_again = not result.complete and _may_be_answered(result) and (result.has_answers or not result.contradicted)
    again = f"`{run_command(source)}` again" if source and has_command(source) else "the same command again"
    facts = {
        "contradicted": result.contradicted,
        "has_answers": result.has_answers,
        "is_weak": any(entry.is_weak for entry in result.data_quality),
        "again": again if asks_again else "",
        "broken": f"audit show {broken.figure.id} --run {result.run_id}{of_store}" if broken else "",
        "gate": f"audit gate --baseline {shlex.quote(baseline)}{of_store}" if baseline else "",
        "open": f"{measure_label(first.measure)} ({figures.where_label(first.suite, first.where)})" if first else "",
        "plan": _plan(result, first) if first else "",
        "detect": f"{(first.margin if first else 0) or _DETECT:g}",
        "whole": "" if result.asked_everything else _whole(result),
        "save": f"audit baseline save first{of_store}" if result.complete else "",
        "gate_first": f"audit gate --baseline first{of_store}",
    }
    return lines("next_steps", "steps", facts)


def commands_to_try(result: AuditResult) -> list[str]:
    """What a run's end proposes, a command a line."""
    names = [shlex.quote(model.name) for model in result.models if not model.unloaded]
    shown = next((m.id for m in result.measures if m.spec.primary and m.value is not None), "")
    baseline = judged_against(result)
    return lines(
        "next_steps",
        "to_try",
        names,
        result.run_id,
        shown,
        store_option(result.source),
        baseline and shlex.quote(baseline),
        "" if result.complete else _again(result.source),
    )


def how_to_resume(result: AuditResult) -> str:
    """How many answers an interrupted run stored, and how it is resumed."""
    return words("next_steps", "resume", sum(model.asked for model in result.models), _again(result.source))


def _again(source: AuditSource | None) -> str:
    return run_command(source) if source is not None and has_command(source) else "the same command"


def judged_against(result: AuditResult) -> str | None:
    """The baseline that a run until decided was about; None if it had another question, or its name is not known."""
    if result.until is None or result.until.question != "baseline" or result.source is None:
        return None
    named = result.source.changed.get("baseline")
    return None if named is None else str(named)


def fails_for_good(result: AuditResult, model: str) -> bool:
    """Whether all that failed of a model's answers, those of scorers too, would fail again in the same way."""
    failures = [(reason, n) for e in result.data_quality if e.model == model for reason, n in e.failures.items()]
    errors = sum(n for reason, n in failures if reason in ERROR_KINDS)
    return 0 < errors <= sum(one.failed_for_good for one in result.models if one.name == model)


def _may_be_answered(result: AuditResult) -> bool:
    """Whether some questions were not asked, or failed in a way that may pass."""
    failures = {
        reason
        for entry in result.data_quality
        for reason in entry.failures
        if entry.model not in result.contradicted and (reason == NOT_ASKED or not fails_for_good(result, entry.model))
    }
    return result.interrupted or not failures.isdisjoint((ERROR_KINDS - _FOR_GOOD) | {NOT_ASKED})


def _more_items_help(c: Comparison, result: AuditResult) -> bool:
    """Whether more of the suite's items may decide it: there are some, and it is not open for another reason."""
    if c.verdict != "inconclusive" or not c.primary or c.open_because not in (None, "too few clusters"):
        return False
    of = (c.suite, c.measure, c.where)
    own = (m for m in result.measures if (m.suite, m.measure, m.where) == of and m.model in (c.a, c.b))
    if any(m.n_items > 0 and m.value is None and m.bound_low is None for m in own):
        return False  # its answers give no value, as a correlation where all are the same
    return any(info.name == c.suite and (info.of_items or info.n_items) > info.n_items for info in result.suites)


def _plan(result: AuditResult, c: Comparison) -> str:
    """The command that says how many items they take; "" without a config, or components to plan with."""
    source = result.source
    if source is None or source.config is None or "db" in source.changed or not _is_planned(result, c):
        return ""
    return f"audit plan {shlex.quote(source.config)} --run {result.run_id}"


def _is_planned(result: AuditResult, c: Comparison) -> bool:
    """Whether there are components to plan this figure with."""
    return any((one.suite, one.measure, one.where) == (c.suite, c.measure, c.where) for one in result.components)


def _whole(result: AuditResult) -> str:
    """The command, or in words, that asks every question."""
    source = result.source
    if source is None or not has_command(source):
        return "the same audit without a limit"
    whole = run_command(source, without=("limit", "small_sample", "until", "baseline"))
    if result.limit is not None:  # the config's own, or one in its place: a larger one replaces either
        whole += f" --limit {max(info.of_items or info.n_items for info in result.suites)}"
    return f"`{whole}`"


def has_command(source: AuditSource) -> bool:
    """Whether a command repeats the run: one of a config, or of suites and models named on the command line."""
    return source.config is not None or "suite" in source.changed


def run_command(source: AuditSource, without: tuple[str, ...] = ()) -> str:
    """The command that repeats a run that has one, with the options that replaced the config's."""
    parts = ["audit", "run", *([] if source.config is None else [source.config])]
    for name, value in source.changed.items():
        option = f"--{name.replace('_', '-')}"
        if name in without or value is None:
            continue
        if name == "small_sample":
            parts.append(option)
        else:
            parts += [word for one in (value if isinstance(value, list) else [value]) for word in (option, str(one))]
    return shlex.join(parts)


def store_option(source: AuditSource | None) -> str:
    """The option that names the run's store: the config, or the file where the run replaced the config's."""
    if source is None:
        return ""
    store = source.db if source.config is None or "db" in source.changed else source.config
    return f" --db {shlex.quote(store)}"
