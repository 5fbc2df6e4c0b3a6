"""The findings in plain sentences, consistent with intervals and verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

from audit.report.figures import Condition, Figures
from audit.report.formatting import (
    bounded,
    factor_label,
    figure,
    level_label,
    measure_label,
    number,
    one_line,
)
from audit.report.phrases.checks.self_checks import self_check_sentences
from audit.report.phrases.counted import count, enumeration
from audit.report.phrases.findings.cautions import cautions, weak_claims
from audit.report.phrases.findings.ladder import step_sentence
from audit.report.phrases.findings.pairs import compared, compared_figures, leading_pairs
from audit.report.phrases.findings.reach import rests_on
from audit.report.phrases.findings.sides import Side, side_of
from audit.results import NOT_ASKED, Measure, UntilDecided, where_key

_MANY_MISSING = 0.05  # if more answers are missing, a figure says how many items it rests on
_LISTED = 4  # more models than this are counted, not listed

Labelled = tuple[str, Measure]  # a figure with the condition to name beside it, "" for none


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: what was found, the same by condition, how models compare, or what limits it."""

    kind: Literal["finding", "detail", "step", "comparison", "caution"]
    text: str


#: The headings of the summary, in its order.
HEADINGS: Mapping[str, str] = {
    "finding": "What was found",
    "detail": "Condition by condition",
    "step": "What each change of a model does",
    "comparison": "How the models compare",
    "caution": "What limits this",
}


def scope(figures: Figures) -> str:
    """How many models answered how many questions of which suites."""
    result = figures.result
    items = sum(entry.n_items for entry in result.data_quality)
    readable = items - sum(sum(entry.failures.values()) for entry in result.data_quality)
    own = {info.name: info.n_items for info in result.suites}
    follow = sum(max(0, entry.n_items - own.get(entry.suite, entry.n_items)) for entry in result.data_quality)
    sample = ""
    if follow:
        sample = (
            f" Of these, {items - follow:,} are the suites' own; {follow:,} follow from answers: further questions, "
        )
        sample += "and ratings of what was written."
    if result.limit is not None and not result.asked_everything:
        sample += f" This is a balanced sample of at most {result.limit:,} items per suite."
    sample += "" if result.until is None else f" {until_words(result.until, result.confidence)}"
    answering = sum(1 for model in result.models if not model.unloaded)
    some = "" if answering == len(result.models) else f"{answering:,} of "
    return (
        f"{some}{count(len(result.models), 'model')} gave readable answers to {readable:,} of {items:,} questions "
        f"from {count(len(result.suites), 'suite')}: {enumeration(one_line(s.title) for s in result.suites)}.{sample}"
    )


def until_words(until: UntilDecided, confidence: float) -> str:
    """Why the run stopped, and what that means for the intervals."""
    if until.question == "precision":
        asked = f"{until.items:,} of {until.of_items:,} items"
        reached = f"was reached after {asked}" if until.decided else f"was not reached with {asked}"
        return (
            f"Asked in random order until the sampling error of every primary mean is within ±{until.within:g}, which "
            f"{reached}. The width alone ended the run, so intervals hold at {100 * until.confidence:.4g} % as in a "
            "run that asks everything."
        )
    question = {
        "baseline": "whether a model got worse than the baseline",
        "limits": "whether the limits are kept",
        "comparison": "how the models compare",
    }[until.question]
    asked = f"{until.items:,} of {until.of_items:,} items, at look {until.look} of {until.looks}"
    ended = f"was decided after {asked}" if until.decided else f"is still open after {asked}"
    return (
        f"Asked in random order until decided: {question} {ended}. Intervals are at {100 * confidence:.4g} %, so that "
        f"their decisions hold at {100 * until.confidence:.4g} % wherever the run stops."
    )


def summary(figures: Figures) -> list[Sentence]:
    """Findings first, then the same by condition, comparisons, and what limits them: gravest first, as pages may show
    only a few."""
    result = figures.result
    gravest = []
    if not result.complete:
        gravest.append(Sentence("caution", "This run is incomplete: figures may change when it is finished."))
    gravest += _weak_claims(figures, [info.name for info in result.suites])
    sentences: list[Sentence] = []
    for info in result.suites:
        sentences += _suite_sentences(figures, info.name, named=len(result.suites) > 1)
    problems = [Sentence("caution", one_line(problem)) for problem in result.problems]
    checks = [Sentence("caution", sentence) for sentence in self_check_sentences(result.self_checks)]
    said = [
        Sentence("caution", f"{one_line(model.name)}: {one_line(statement)}.")
        for model in result.models
        for statement in model.statements
    ]
    sentences = [*gravest, *problems, *said, *checks, *sentences]
    return sorted(sentences, key=lambda s: list(HEADINGS).index(s.kind))


def suite_summary(figures: Figures, suite: str) -> list[Sentence]:
    """The sentences about one suite, as its chapter begins."""
    return [*_suite_sentences(figures, suite, named=False), *_weak_claims(figures, [suite])]


def _suite_sentences(figures: Figures, suite: str, *, named: bool) -> list[Sentence]:
    """The sentences about one suite, preceded by its name if ``named``. Conditions that agree share a sentence."""
    prefix = f"{one_line(figures.suite(suite).title)}: " if named else ""
    leading = figures.leading(suite)
    sentences: list[Sentence] = []
    for measure, of_measure in groupby(leading, key=lambda one: one.measure):
        labelled = [(one.label, ms) for one in of_measure if (ms := figures.by_model(suite, measure, one.where))]
        for _, alike in groupby(labelled, key=lambda pair: _pattern(pair[1], 1 - figures.result.confidence)):
            group = list(alike)
            shown = [(label if len(group) > 1 else "", m) for label, ms in group for m in ms]
            subject = _subject(measure, [label for label, _ in group], group[0][1])
            sentences.append(Sentence("finding", f"{prefix}{subject}: {_finding(figures, shown)}"))
    pairs = leading_pairs(figures, suite)
    if pairs:
        labels = list(dict.fromkeys(label for label, _ in pairs))
        of = figures.by_model(suite, leading[0].measure, leading[0].where)
        subject = _subject(compared_figures(pairs), labels, of)
        sentences.append(Sentence("comparison", f"{prefix}{subject}: {compared(pairs)}"))
    mentioned = {(one.measure, where_key(one.where)) for one in leading}
    steps = [Sentence("step", f"{prefix}{text}") for text in _steps(figures, suite)]
    by_condition = [
        Sentence("detail", f"{prefix}{_by_condition(figures, suite, chart, name, conditions)}")
        for chart, name, conditions in figures.charts_with_neutral(suite)
        if not all((name, where_key(where)) in mentioned for where in conditions)
    ]
    return (
        sentences
        + steps
        + (by_condition[:2] if named else by_condition)
        + [Sentence("caution", text) for text in cautions(figures, suite)]
    )


def _steps(figures: Figures, suite: str) -> Iterator[str]:
    """What each step of the ladder that ends in this suite does to its headline figures."""
    for step, measure, decided in figures.step_decisions(suite):
        yield step_sentence(step, _subject(measure, []), decided)


def _by_condition(
    figures: Figures, suite: str, chart: Mapping[str, Any], measure: str, conditions: Sequence[Condition]
) -> str:
    """For a chart with many conditions: in which of them each model lies on which side of neutral."""
    parts = []
    neutral = 0.0
    alpha = 1 - figures.result.confidence
    corrected: list[bool] = []  # of each interval, whether a corrected p decides with it
    labels = figures.distinguishing_labels(suite, measure, conditions)
    for model in figures.models:
        sides: dict[Side, list[Labelled]] = {side: [] for side in get_args(Side)}
        for label, where in zip(labels, conditions, strict=True):
            m = figures.get(suite, measure, where, model)
            if m is None or m.neutral is None or not (m.value is not None or bounded(m)):
                continue
            neutral = m.neutral
            side = side_of(m, neutral, alpha)
            sides[side].append((label, m))
            if side != "no interval":
                corrected.append(m.p_adjusted is not None)
        said = [f"{side} in {_farthest(sides[side], neutral)}" for side in ("below", "above") if sides[side]]
        said += [f"indistinguishable from it in {len(sides['open'])}"] if sides["open"] else []
        said += [f"left open by missing answers in {len(sides['missing'])}"] if sides["missing"] else []
        unread = len(conditions) - sum(len(of_side) for side, of_side in sides.items() if side != "no interval")
        said += [f"no value or no interval in {unread}"] if unread else []
        parts.append(f"{one_line(model)} {', '.join(said)}")
    correction = "corrected for many figures" if any(corrected) else "each without correction"
    if any(corrected) and not all(corrected):
        correction += " where a p-value is known"
    title = one_line(chart["title"]) + (f", {measure_label(measure)}" if len(chart["measures"]) > 1 else "")
    return (
        f"{title} ({count(len(conditions), 'condition')} against the neutral {_mark(neutral)}, "
        f"{correction}): {'; '.join(parts)}."
    )


def _farthest(labelled: Sequence[Labelled], neutral: float) -> str:
    """How many figures lie on one side, and which; where they are many, the one farthest from neutral."""
    if len(labelled) <= _LISTED:
        return f"{len(labelled)} ({'; '.join(f'{c} {_shown(m)}'.strip() for c, m in labelled)})"

    def distance(of: Labelled) -> float:
        measure = of[1]
        if measure.value is not None:
            return abs(measure.value - neutral)
        assert measure.low is not None  # it lies on a side
        assert measure.high is not None
        return max(measure.low - neutral, neutral - measure.high)  # by bounds: at least so far

    condition, most = max(labelled, key=distance)
    return f"{len(labelled)} ({'farthest' if most.value is not None else 'most certain'}: {condition} {_shown(most)})"


def _shown(measure: Measure) -> str:
    """The figure; and how many items it rests on, where many of them are missing."""
    total = measure.n_items + measure.missing
    few = f" ({measure.n_items:,} of {total:,} items)" if measure.missing > _MANY_MISSING * total else ""
    return f"{figure(measure)}{few}"


def _mark(neutral: float) -> str:
    return number(neutral, 0 if float(neutral).is_integer() else 2)


def _pattern(measures: Sequence[Measure], alpha: float) -> list[tuple[str, str]]:
    """Where each model lies: the same sentence is true of two conditions with the same pattern."""
    return [(m.model, "value" if m.neutral is None else side_of(m, m.neutral, alpha)) for m in measures]


def _subject(measure: str, conditions: Sequence[str], measures: Sequence[Measure] = ()) -> str:
    """What a sentence is about, and over what it generalises."""
    label = measure_label(measure)
    named = [c for c in conditions if c]
    where = "; ".join(named) if len(named) <= _LISTED else f"{len(named)} conditions"
    population = measures[0].spec.population if measures else ""
    over = f", over {one_line(population)}{_single(measures)}" if population else ""
    return label[:1].upper() + label[1:] + (f" ({where})" if where else "") + over


def _without(labelled: Sequence[Labelled]) -> str:
    """Why figures have no interval, where that is not for want of items."""
    alike = [
        m
        for _, m in labelled
        if m.spec.estimator == "mean" and m.value is not None and m.n_clusters > 1 and not m.spec.has_range
    ]
    return ", as all answers are alike and nothing bounds others (give it a `range`)" if alike else ""


def _single(measures: Sequence[Measure]) -> str:
    """That a sampled factor of which one level was asked is in no interval."""
    single = dict.fromkeys(factor_label(factor) for m in measures for factor, n in m.levels.items() if n == 1)
    return f" (one {enumeration(single)} was asked: the intervals say nothing about others)" if single else ""


def _reasons(figures: Figures, labelled: Sequence[Labelled]) -> str:
    """Why answers to the suites of these figures are missing: `` (rater not trusted)``."""
    asked = {(m.model, m.suite) for _, m in labelled}
    quarantined = figures.result.contradicted
    reasons = dict.fromkeys(
        "quarantined" if reason == NOT_ASKED and entry.model in quarantined else one_line(reason)
        for entry in figures.result.data_quality
        if (entry.model, entry.suite) in asked
        for reason in entry.failures
    )
    return f" ({', '.join(reasons)})" if reasons else ""


def _finding(figures: Figures, labelled: Sequence[Labelled]) -> str:
    """Where the models lie against the neutral value; or their values, where there is none."""
    estimated = [(c, m) for c, m in labelled if m.value is not None or bounded(m)]
    if not estimated and not any(m.n_items or m.missing for _, m in labelled):
        return "this run asked no question about it."
    if not estimated and not any(m.n_items for _, m in labelled):
        return f"no model gave an answer that can be used{_reasons(figures, labelled)}."
    undefined = dict.fromkeys(level_label(level) for _, m in labelled for level in m.undefined_strata)
    if not estimated and undefined and any(m.missing for _, m in labelled):
        return f"has no value, since no answer of {enumeration(undefined)} can be read."
    if not estimated and undefined:
        return f"has no value, since this run holds no item of {enumeration(undefined)} that it needs."
    if not estimated:
        return "is not defined for the answers given."
    neutral = estimated[0][1].neutral
    rests = rests_on(estimated[0][1].levels)
    room = f" It {rests}." if rests else ""
    if neutral is None:
        return f"{_values(estimated)}.{room}"
    sides: dict[Side, list[Labelled]] = {side: [] for side in get_args(Side)}
    for c, m in estimated:
        sides[side_of(m, neutral, 1 - figures.result.confidence)].append((c, m))
    place = f"{_mark(neutral)}, the neutral value"
    said: dict[Side, tuple[str, str]] = {
        "above": ("lies", f"above {place}"),
        "below": ("lies", f"below {place}"),
        "open": ("is", f"indistinguishable from {place}"),
        "missing": ("is", f"left open by missing answers, which may lie on either side of {place}"),
        "no interval": ("has", f"no interval{_without(sides['no interval'])}, so nothing is claimed"),
    }
    parts = []
    for side, (verb, claim) in said.items():
        names = list(dict.fromkeys(one_line(m.model) for _, m in sides[side]))
        if names:
            verb = verb if len(names) == 1 else {"lies": "lie", "is": "are", "has": "have"}[verb]
            parts.append(f"{_models(names, len(figures.models))} {verb} {claim}: {_values(sides[side])}")
    return "; ".join(parts) + "." + room


def _models(names: Sequence[str], of: int) -> str:
    """The models that a sentence is about: all, a few by their names, or a number."""
    if len(names) == of > 1:
        return "both models" if of == 2 else f"all {of} models"
    return enumeration(names) if len(names) <= _LISTED else f"{len(names)} models"


def _values(labelled: Sequence[Labelled]) -> str:
    """Each model's figure; only the ends of the range when there are many."""
    if len({m.model for _, m in labelled}) == 1 and len(labelled) <= _LISTED:
        return ", ".join(f"{_shown(m)} {c}".strip() for c, m in labelled)
    if len(labelled) <= _LISTED:
        return ", ".join(f"{_who(c, m)} {_shown(m)}" for c, m in labelled)
    exact = sorted(((c, m) for c, m in labelled if m.value is not None), key=lambda cm: cm[1].value or 0.0)
    if not exact:
        return "known only by bounds"
    least, most = exact[0], exact[-1]
    others = len(labelled) - len(exact)
    rest = f"; {others} more known only by bounds" if others else ""
    return f"from {_shown(least[1])} for {_who(*least)} to {_shown(most[1])} for {_who(*most)}{rest}"


def _who(condition: str, measure: Measure) -> str:
    return f"{one_line(measure.model)} ({condition})" if condition else one_line(measure.model)


def _weak_claims(figures: Figures, suites: Sequence[str]) -> list[Sentence]:
    return [Sentence("caution", text) for text in weak_claims(figures, suites)]
