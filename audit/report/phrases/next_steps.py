"""What the reader can do next: only what helps, with the exact command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from audit.report.figures import Figures
from audit.report.formatting import measure_label, where_label
from audit.report.phrases.counted import enumeration
from audit.report.phrases.findings.cautions import fails_for_good, is_weak
from audit.results import NOT_ASKED, AuditResult, AuditSource, Comparison, Measure
from backends.errors import ERROR_KINDS, ErrorKind

#: The difference that a plan is for where the run's margin is 0, and so no size.
_DETECT = 0.02
#: Failures that asking again unchanged would only repeat.
_FOR_GOOD: frozenset[ErrorKind] = frozenset({"bad_request", "unsupported", "context_length"})


def next_steps(figures: Figures) -> Iterator[str]:
    """What the reader can do next, most urgent first. Commands are in backticks."""
    result = figures.result
    if contradicted := result.contradicted:
        yield (
            f"Find out why the answers of {enumeration(contradicted)} are quarantined (the problems say how it was "
            f"noticed{_probed(result.source)}) before you ask again: it costs the same once more."
        )
        if not result.has_answers:
            return
    if not result.complete and _may_be_answered(result):
        yield f"Run {_again(result)}: it asks only what is unanswered."
    elif not result.has_answers:
        yield "Nothing was answered: fix what limits this run, then run it again."
        return
    if broken := [check for check in result.limits if check.decisive_verdict == "broken"]:
        command = f"audit show {broken[0].figure.id} --run {result.run_id}{_of_store(result.source)}"
        yield f"A limit is broken: `{command}` shows the answers behind the first."
    if baseline := judged_against(result):
        command = f"audit gate --baseline {shlex.quote(baseline)}{_of_store(result.source)}"
        yield f"`{command}` says what got worse than the baseline, or did not."
    if any(is_weak(entry) for entry in result.data_quality):
        yield "Coverage is low for some figures: select one to read the answers behind it before you rely on it."
    if open_ := [c for c in result.comparisons if _more_items_help(c, result)]:
        first = next((c for c in open_ if _is_planned(result, c)), open_[0])
        named = f"{measure_label(first.measure)} ({where_label(first.where)})"
        yield f"Some comparisons are open, among them {named}: {_plan(result, first)}"
    if not result.asked_everything:
        yield f"This was a sample: {_whole(result)} asks only the rest."
    elif result.complete:
        of_store = _of_store(result.source)
        yield (
            f"`audit baseline save first{of_store}` keeps this run as `first`; after a later one "
            f"`audit gate --baseline first{of_store}` says what got worse."
        )


def judged_against(result: AuditResult) -> str | None:
    """The baseline that a run until decided was about; None if it had another question, or its name is not known."""
    if result.until is None or result.until.question != "baseline" or result.source is None:
        return None
    named = result.source.changed.get("baseline")
    return None if named is None else str(named)


def _probed(source: AuditSource | None) -> str:
    """The command that probes the config's servers, or the first one named on the command line."""
    if source is None:
        return ""
    named = source.changed.get("model") or ()
    urls = [name for name in ([named] if isinstance(named, str) else named) if "://" in name]
    target = source.config or next(iter(urls), "")
    return f"; `audit probe {shlex.quote(target)} --thorough` tests more" if target else ""


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
    own = (m for m in result.measures if (m.suite, m.measure, m.where) == (c.suite, c.measure, c.where))
    if any(_is_undefined(m) for m in own if m.model in (c.a, c.b)):
        return False
    return any(info.name == c.suite and (info.of_items or info.n_items) > info.n_items for info in result.suites)


def _is_undefined(measure: Measure) -> bool:
    """Whether its items were answered and still give no value, as a correlation where all answers are the same."""
    return measure.n_items > 0 and measure.value is None and measure.bound_low is None


def _plan(result: AuditResult, c: Comparison) -> str:
    """The command that says how many items they take; without a config, or components to plan with, that more may."""
    source = result.source
    if source is None or source.config is None or "db" in source.changed:
        return "more items may decide them."
    if not _is_planned(result, c):
        return "more items may decide them."
    plan = f"audit plan {shlex.quote(source.config)} --run {result.run_id}"
    return (
        f"`{plan}` says what difference all of the suite's items can show, and with `--detect {c.margin or _DETECT:g}` "
        "how many it takes to see one of that size."
    )


def _is_planned(result: AuditResult, c: Comparison) -> bool:
    """Whether there are components to plan this figure with."""
    return any((one.suite, one.measure, one.where) == (c.suite, c.measure, c.where) for one in result.components)


def _again(result: AuditResult) -> str:
    source = result.source
    return f"`{run_command(source)}` again" if source is not None and has_command(source) else "the same command again"


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
    words = ["audit", "run", *([] if source.config is None else [source.config])]
    for name, value in source.changed.items():
        option = f"--{name.replace('_', '-')}"
        if name in without or value is None:
            continue
        if name == "small_sample":
            words.append(option)
        else:
            words += [word for one in (value if isinstance(value, list) else [value]) for word in (option, str(one))]
    return shlex.join(words)


def _of_store(source: AuditSource | None) -> str:
    """The option that names the run's store: the config, or the file where the run replaced the config's."""
    if source is None:
        return ""
    store = source.db if source.config is None or "db" in source.changed else source.config
    return f" --db {shlex.quote(store)}"
