"""The results of a gate in words."""

from __future__ import annotations

from collections.abc import Collection

from audit.analysis.gate.results import Check, GatedFigure, GateReport
from audit.report.formatting import distinct_decimals, number
from audit.report.phrases.counted import count, verb
from audit.report.phrases.findings.comparisons import missing_answers, nothing_in_common, over
from audit.results import OPEN_VERDICTS, LimitCheck

_BY_CHANCE = ": among so many looks, one this far off may be due to chance"


def gate_outcome(failed: bool, verdicts: Collection[str]) -> str:
    """The outcome of a gate. One without a conclusive check has not passed."""
    if failed:
        return "failed"
    return "without conclusive checks" if set(verdicts) <= set(OPEN_VERDICTS) else "passed"


def gate_summary(report: GateReport, *, code: str = "") -> tuple[str, str]:
    """The outcome, and which runs were compared with how many checks of each verdict; ``code`` surrounds run ids."""
    failures, total = len(report.failures), len(report.checks)
    still_open = sum(check.decisive_verdict in OPEN_VERDICTS for check in report.checks)
    undecided = f", {still_open} of them undecided" if still_open and not failures and still_open < total else ""
    of = f"{failures} of " if failures else ""
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report.counts().items())
    baseline = report.baseline_run_id
    against = "its limits alone" if baseline is None else f"baseline {code}{baseline}{code}"
    return (
        f"Gate {gate_outcome(bool(report.exit_code), report.counts())}: {of}{count(total, 'check')}{undecided}",
        f"Run {code}{report.run_id}{code} against {against}: {counts or 'nothing to check'}.",
    )


def check_title(check: Check) -> str:
    """What is checked: the figure's name and where it holds, or the limit on it."""
    if isinstance(check, GatedFigure):
        return check.figure.title
    limited = "" if check.limit == check.measure else f"{check.limit} of "
    return f"limit on {limited}{check.figure.title}"


def check_words(check: Check) -> str:
    """The check as a few plain sentences."""
    return _figure_words(check) if isinstance(check, GatedFigure) else _limit_words(check)


def over_nights_phrase(check: Check) -> str:
    """Which look at new answers it is, and what this run alone says if that differs."""
    if isinstance(check, GatedFigure) and check.obstacle is not None:
        return ""
    alone = "" if check.tonight in (None, check.verdict) else f", this run alone {check.tonight}"
    return f"look {check.look}{alone}"


def limit_phrase(least: float | None, most: float | None) -> str:
    """A limit as a phrase."""
    parts = [f"at least {_as_given(least)}"] if least is not None else []
    parts += [f"at most {_as_given(most)}"] if most is not None else []
    return " and ".join(parts) or "none"


def _as_given(limit: float) -> str:
    """Every digit of a limit, as the config has it."""
    return f"{limit:.12g}".replace("-", "−")


def limit_numbers(check: LimitCheck, decimals: int) -> tuple[str, str, str]:
    """The value and the interval's ends, with so many decimals that none reads like a limit that it is not."""
    for limit in (check.at_least, check.at_most):
        if limit is not None:
            decimals = distinct_decimals(decimals, limit, check.value, check.low, check.high)
    value, low, high = (number(x, decimals) for x in (check.value, check.low, check.high))
    return value, low, high


def interval_phrase(low: float | None, high: float | None) -> str:
    """An interval as a phrase."""
    return "unknown" if low is None or high is None else f"{number(low)} to {number(high)}"


def _figure_words(f: GatedFigure) -> str:
    if f.obstacle is not None:
        return f"{f.figure}: {_obstacle(f)}."
    if f.low is None or f.high is None:
        return f"{_without_interval(f)}{_missing(f)}"
    goal = "from the baseline" if f.neutral is None else f"from its neutral value {f.neutral:.3g}"
    statement = {
        "regressed": f"moved away {goal} by more than the margin",
        "improved": f"moved towards its neutral value {f.neutral or 0:.3g} by more than the margin",
        "unchanged": "is within the margin of the baseline",
    }.get(f.verdict, "is inconclusive at this margin")
    if f.verdict == "inconclusive":
        statement += {
            None: ": its interval is too wide for the margin, so it may have got worse or not",
            "wider bounds": ": the run's answers are known less closely than the baseline's, which may hide a change",
            "side of neutral unknown": ": it moved by more than the margin, but it is uncertain whether towards its "
            "neutral value or away from it",
        }.get(f.open_because, "")
    return f"{f.figure} {statement} ({_interval(f)}).{_nights(f)}{_of_new(f)}{_missing(f)}{_left_out(f)}"


def _interval(f: GatedFigure) -> str:
    """On which questions, by how much, and the margin."""
    change = "" if f.change is None else f"change {number(f.change)}, "
    interval = "known exactly" if f.is_exact and f.low == f.high else f"interval {interval_phrase(f.low, f.high)}"
    questions = verb(f.n_items, "question", "questions")
    on = f"on the same {questions}" if f.on_shared else "too few questions are shared, so this is of new ones"
    return f"{on}: {change}{interval}, margin {f.margin:g}"


def _nights(f: GatedFigure) -> str:
    if f.tonight != "regressed" or f.verdict == "regressed":
        return ""
    return f" This run alone has regressed, which at {_look(f.look)} is not yet enough{_BY_CHANCE}."


def _of_new(f: GatedFigure) -> str:
    """The second question: would new questions show it?"""
    if not f.on_shared or f.new_low is None or f.new_high is None:
        return ""
    return f" Of new questions of these kinds{over(f.population)}: change {interval_phrase(f.new_low, f.new_high)}."


def _missing(f: GatedFigure) -> str:
    if not f.n_missing:
        return ""
    beside = f" Answered questions alone (complete cases): change {number(f.change)}." if f.change is not None else ""
    return f"{missing_answers(f, f.verdict in OPEN_VERDICTS)}{beside}"


def _look(look: int) -> str:
    return "the first look" if look == 1 else f"look {look}"


def _obstacle(f: GatedFigure) -> str:
    match f.obstacle:
        case "not in the baseline":
            return "the baseline has no such figure"
        case "not in the run":
            return "the run no longer has this figure"
        case "measured differently":
            parts = ", ".join(f"{name} (was {then!r}, is {now!r})" for name, (then, now) in f.differing.items())
            return f"not measured as in the baseline: {parts}"
        case _:
            runs = [{"baseline": "the baseline", "run": "this run"}[run] for run in f.undefined_for]
            return nothing_in_common(runs, "the two runs", "both runs")


def _without_interval(f: GatedFigure) -> str:
    if not f.is_defined:
        return f"{f.figure} is not defined for the run's answers.{_left_out(f)}"
    if f.open_because == "missing answers":
        return f"{f.figure} has no interval because answers are missing."
    items = verb(f.n_items, "item is", "items are")
    return f"{f.figure}: {items} too few for an interval."


def _left_out(f: GatedFigure) -> str:
    if not f.n_unpaired:
        return ""
    items = f"{f.n_unpaired} of {f.n_unpaired + f.n_items} items"
    sentence = f" Left out because only one of the two runs has a value: {items}."
    if f.open_because == "unpaired items":
        return f"{sentence} They may hide a change, so it is not called unchanged."
    return (
        f"{sentence} This holds whatever the other value would be."
        if f.verdict in ("unchanged", "improved")
        else sentence
    )


def _limit_words(c: LimitCheck) -> str:
    limited = str(c.figure) if c.limit == c.measure else f"{c.limit} of {c.figure}"
    _, low, high = limit_numbers(c, 3)
    interval = "unknown" if c.low is None or c.high is None else f"{low} to {high}"
    limit = limit_phrase(c.at_least, c.at_most)
    missing = missing_answers(c, c.verdict in OPEN_VERDICTS) if c.n_missing else ""
    missing += f" {c.n_without_value:,} of them were answered, but say nothing of it." if c.n_without_value else ""
    statement = f"{limited} {_OF_LIMIT[c.verdict]} the limit {limit}{over(c.population)} (interval {interval})."
    alone = ""
    if c.tonight == "broken" != c.verdict:
        alone = f" This run alone breaks it, which at {_look(c.look)} is not yet enough{_BY_CHANCE}."
    return f"{statement}{alone}{missing}"


_OF_LIMIT = {"met": "meets", "broken": "breaks", "insufficient evidence": "neither clearly meets nor breaks"}
