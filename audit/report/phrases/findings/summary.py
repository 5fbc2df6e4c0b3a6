"""What a run found in sentences: the verdict, what each change of a model does, and what limits the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from audit.report.figures import Figures
from audit.report.formatting import measure_label, one_line, percent
from audit.report.phrases.checks.problems import problems_of
from audit.report.phrases.checks.self_checks import self_check_sentences
from audit.report.phrases.counted import count, enumeration
from audit.report.phrases.findings.cautions import cautions, weak_claims
from audit.report.phrases.findings.ladder import step_sentence
from audit.report.phrases.findings.verdict import verdict
from audit.results import UntilDecided


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: what was found, what a change of a model does, or what limits the figures."""

    kind: Literal["finding", "step", "caution"]
    text: str


#: The headings of the summary, in its order.
HEADINGS: Mapping[str, str] = {
    "finding": "What was found",
    "step": "What each change of a model does",
    "caution": "What limits this",
}

_QUESTIONS = {
    "baseline": "whether a model got worse than the baseline",
    "limits": "whether the limits are kept",
    "comparison": "how the models compare",
}


def scope(figures: Figures) -> str:
    """How many models answered how many questions of which suites."""
    result = figures.result
    items = sum(entry.n_items for entry in result.data_quality)
    readable = items - sum(sum(entry.failures.values()) for entry in result.data_quality)
    answering = sum(1 for model in result.models if not model.unloaded)
    some = "" if answering == len(result.models) else f"{answering:,} of "
    suites = enumeration(one_line(info.title) for info in result.suites)
    said = [f"{some}{count(len(result.models), 'model')}, {suites}: {readable:,} of {items:,} answers are readable."]
    if result.limit is not None and not result.asked_everything:
        said.append(f"A balanced sample of at most {result.limit:,} questions a suite.")
    if result.until is not None:
        said.append(until_words(result.until, result.confidence))
    return " ".join(said)


def until_words(until: UntilDecided, confidence: float) -> str:
    """Why the run stopped, and what that means for the intervals."""
    asked = f"{until.items:,} of {until.of_items:,} questions"
    if until.question == "precision":
        reached = "was reached after" if until.decided else "was not reached with"
        return f"Asked in random order for intervals within ±{until.within:g}, which {reached} {asked}."
    ended = "was decided after" if until.decided else "is still open after"
    unseen = 1 - (1 - until.confidence) ** (1 / until.items)
    rest = f" A kind of question that makes up less than {percent(unseen)} of all may not have been asked."
    return (
        f"Asked in random order until decided: {_QUESTIONS[until.question]} {ended} {asked}. Intervals are at "
        f"{100 * confidence:.4g} %, so that decisions hold at {100 * until.confidence:.4g} % wherever the run stops."
        f"{rest if until.items < until.of_items else ''}"
    )


def summary(figures: Figures) -> list[Sentence]:
    """The verdict, the steps of the ladder, and what limits them: gravest first, as pages may show only a few."""
    result = figures.result
    said = [Sentence("finding", text) for text in verdict(figures)]
    named = len(result.suites) > 1
    for info in result.suites:
        prefix = f"{one_line(info.title)}: " if named else ""
        said += [Sentence("step", f"{prefix}{text}") for text in _steps(figures, info.name)]
    return [*said, *(Sentence("caution", text) for text in _cautions(figures))]


def suite_summary(figures: Figures, suite: str) -> list[Sentence]:
    """The sentences about one suite, as its chapter begins."""
    said = [Sentence("finding", text) for text in verdict(figures, suite)]
    said += [Sentence("step", text) for text in _steps(figures, suite)]
    limits = [*cautions(figures, suite), *weak_claims(figures, [suite])]
    return said + [Sentence("caution", text) for text in limits]


def _cautions(figures: Figures) -> Iterator[str]:
    result = figures.result
    if not result.complete:
        yield "This run is incomplete: figures may change when it is finished."
    yield from weak_claims(figures, [info.name for info in result.suites])
    yield from map(one_line, problems_of(result))
    for model in result.models:
        yield from (f"{one_line(model.name)}: {one_line(statement)}." for statement in model.statements)
    yield from self_check_sentences(result.self_checks)
    if result.asked_once and len(result.models) > 1:
        yield (
            f"{enumeration(map(one_line, result.asked_once))}: asked in one run. A server may move all its answers "
            "from run to run, which no comparison here shows; `runs=3` would."
        )
    for info in result.suites:
        yield from cautions(figures, info.name)


def _steps(figures: Figures, suite: str) -> Iterator[str]:
    """What each step of the ladder that ends in this suite does to its headline figures."""
    for step, measure, decided in figures.step_decisions(suite):
        label = measure_label(measure)
        yield step_sentence(step, label[:1].upper() + label[1:], decided)
