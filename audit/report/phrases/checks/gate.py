"""The results of a gate in words."""

from __future__ import annotations

from collections.abc import Collection

from audit.analysis.decisions import FEWEST_CLUSTERS
from audit.analysis.gate.results import Check, GatedFigure, GateReport
from audit.report.formatting import distinct_decimals, level, number
from audit.report.phrases.counted import count, verb
from audit.report.phrases.findings.comparisons import (
    few_clusters,
    few_decide,
    kinds_like_those,
    kinds_not_asked,
    missing_answers,
    nothing_in_common,
    over,
    room_for_unseen,
)
from audit.results import OPEN_VERDICTS, LimitCheck

_BY_CHANCE = ": among so many looks, one this far off may be due to chance"
OTHER_KINDS = ": every night asks others, and kinds that it did not ask may keep the limit"


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
    if not isinstance(check, GatedFigure):
        return _limit_words(check)
    return f"{_figure_words(check)}{_over_nights_words(check)}"


def over_nights_phrase(check: Check) -> str:
    """The decision over all nights as a phrase, with the number of the look; empty where there is none."""
    return "" if check.over_nights is None else f"{check.over_nights.verdict} (look {check.over_nights.look})"


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
    if f.open_because == "too few clusters":
        return f"{f.figure} is not decided: {few_clusters(f)}."
    goal = "from the baseline" if f.neutral is None else f"from its neutral value {f.neutral:.3g}"
    statement = {
        "regressed": f"moved away {goal} by more than the margin",
        "improved": f"moved towards its neutral value {f.neutral or 0:.3g} by more than the margin",
        "unchanged": "is within the margin of the baseline",
    }.get(f.verdict, "is inconclusive at this margin")
    statement += over(f.population)
    if f.verdict == "inconclusive":
        statement += {
            None: ": its interval is too wide for the margin, so it may have got worse or not",
            "kinds not asked": f": the items asked show no harm, but {kinds_not_asked(f.levels, f.largest_change)}",
            "wider bounds": ": the run's answers are known less closely than the baseline's, which may hide a change",
            "side of neutral unknown": ": it moved by more than the margin, but it is uncertain whether towards its "
            "neutral value or away from it",
        }.get(f.open_because, "")
    asked = kinds_like_those(f, "change") if f.verdict in ("regressed", "improved") else ""
    limits = f"{_within(f)}{asked}{few_decide(f)}"
    return f"{f.figure} {statement} ({_interval(f)}).{limits}{_missing(f)}{_left_out(f)}"


def _interval(f: GatedFigure) -> str:
    """The interval behind the verdict and its level, and the margin."""
    margin = f"margin {f.margin:g}"
    if f.decided_low is None or f.decided_high is None or f.decided_confidence is None:
        return f"change {interval_phrase(f.low, f.high)}, {margin}"
    change = f"change {number(f.change)}, " if f.change is not None else ""
    seen = room_for_unseen(f.largest_change) if f.verdict == "unchanged" else ""
    harm = f"{level(f.decided_confidence)} interval of the harm {interval_phrase(f.decided_low, f.decided_high)}"
    return f"{change}{harm}{seen}, {margin}"


def _within(f: GatedFigure) -> str:
    if f.verdict != "inconclusive" or f.unchanged_within is None:
        return ""
    return f" It is unchanged within ±{number(f.unchanged_within)}."


def _missing(f: GatedFigure) -> str:
    if not f.n_missing:
        return ""
    complete = interval_phrase(f.complete_case_low, f.complete_case_high)
    beside = (
        f" Answered items alone (complete cases): change {number(f.change)} ({complete})."
        if f.change is not None
        else ""
    )
    return f"{missing_answers(f, f.verdict in OPEN_VERDICTS)}{beside}"


def _over_nights_words(f: GatedFigure) -> str:
    nights = f.over_nights
    if nights is None or nights.low is None or nights.high is None:
        return ""
    interval = f"change {interval_phrase(nights.low, nights.high)} at {100 * nights.confidence:.6g} %"
    sentence = f" Over all nights since the baseline, at {_look(nights.look)}, it is {nights.verdict} ({interval})"
    if f.verdict == "regressed" != nights.verdict and nights.open_because == "missing answers":
        sentence += ": missing answers leave it open and may hide the harm"
    elif f.verdict == "regressed" != nights.verdict:
        sentence += _BY_CHANCE
    return f"{sentence}."


def _look(number: int) -> str:
    return "the first look" if number == 1 else f"look {number}"


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
    if f.bound_low == f.bound_high == 0 and f.n_clusters > 1:
        return f"{f.figure} equals the baseline, but identical answers give no interval."
    if f.open_because == "missing answers":
        return f"{f.figure} has no interval because answers are missing."
    items = verb(f.n_items, "item is", "items are")
    return f"{f.figure}: {items} too few, or without a `range` too much alike, for an interval."


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
    few = f" {_too_few(c.fewest_levels)}" if c.open_because == "too few clusters" else ""
    statement = f"{limited} {_OF_LIMIT[c.verdict]} the limit {limit}{over(c.population)} (interval {interval})."
    few += f" {rests[:1].upper()}{rests[1:]}." if (rests := resting_on(c)) else ""
    return f"{statement}{few}{missing}{_limit_over_nights(c)}"


def resting_on(check: LimitCheck) -> str:
    """What a limit that is met or broken rests on, if its interval may be too short; empty if it is not, or open."""
    verdict = check.decisive_verdict
    if verdict not in ("met", "broken"):
        return ""
    said = []
    if verdict == "met" and check.is_of_few:
        said.append("a few levels decide the value, so the interval may be too short")
    if check.rests_on_assumption:
        anything = interval_phrase(check.unseen_low, check.unseen_high)
        said.append(
            f"kinds not asked are assumed to differ little (were they anything: {anything})"
            if verdict == "met"
            else f"this is of kinds like those asked (were others anything: {anything})"
        )
    return "; ".join(said)


def _too_few(fewest_levels: int | None) -> str:
    found = "" if fewest_levels is None else f" has {fewest_levels};"
    return f"Too few clusters: a sampled factor{found} needs at least {FEWEST_CLUSTERS} levels in each stratum."


_OF_LIMIT = {"met": "meets", "broken": "breaks", "insufficient evidence": "neither clearly meets nor breaks"}


def _limit_over_nights(c: LimitCheck) -> str:
    nights = c.over_nights
    if nights is None or nights.low is None or nights.high is None:
        return ""
    interval = f"interval {interval_phrase(nights.low, nights.high)} at {100 * nights.confidence:.6g} %"
    alarm = ""
    if c.verdict == "broken" != nights.verdict:
        alarm = OTHER_KINDS if nights.open_because == "kinds not asked" else _BY_CHANCE
    return f" Over all nights, at {_look(nights.look)}, it {_OF_LIMIT[nights.verdict]} it ({interval}){alarm}."
