"""What a run found in sentences: the verdict, what each change of a model does, and what limits the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from audit.report.figures import Figures
from audit.report.formatting import measure_label
from audit.report.phrases.comparisons import step_sentence
from audit.report.phrases.example import asked
from audit.report.phrases.first_page import first_rows
from audit.report.phrases.gate import limit_lines, limits_overview
from audit.report.phrases.problems import cautions, problems_of, self_check_sentences, weak_claims
from audit.report.phrases.verdict import verdict
from audit.report.plain_text import one_line
from audit.report.templating import words
from audit.results import AuditResult, ModelInfo, UntilDecided


@dataclass(frozen=True, slots=True)
class Sentence:
    """One statement: what was found, what a change of a model does, or what limits the figures."""

    kind: Literal["finding", "step", "caution"]
    text: str


#: What pages for a technical file say about themselves.
EVIDENCE_NOT_CONFORMITY = (
    "These are measurements on specific questions, with the data behind them: evidence for an assessment. They do not "
    "establish conformity with any law or standard, and say nothing about questions that were not asked."
)

#: The headings of the summary, in its order.
HEADINGS: Mapping[str, str] = {
    "finding": "What was found",
    "step": "What each change of a model does",
    "caution": "What limits this",
}


def overview(figures: Figures) -> dict[str, Any]:
    """What every first page says of a result, by the names that the templates use."""
    result = figures.result
    questions = (asked(figures, info.name) for info in result.suites)
    return {
        "result": result,
        "scope": scope(figures),
        "verdict": verdict(figures),
        "summary": summary(figures),
        "plain": first_rows(figures),
        "limits_overview": limits_overview(result),
        "limits": limit_lines(result),
        "example": next((question for question in questions if question is not None), None),
    }


def scope(figures: Figures) -> str:
    """How many models answered how many questions of which suites."""
    result = figures.result
    items = sum(entry.n_items for entry in result.data_quality)
    readable = items - sum(sum(entry.failures.values()) for entry in result.data_quality)
    answering = sum(not model.unloaded for model in result.models)
    suites = [one_line(info.title) for info in result.suites]
    limit = None if result.asked_everything else result.limit
    until = "" if result.until is None else until_words(result.until, result.confidence)
    return words("summary", "scope", answering, len(result.models), suites, readable, items, limit, until)


def until_words(until: UntilDecided, confidence: float) -> str:
    """Why the run stopped, and what that means for the intervals."""
    unseen = 1 - (1 - until.confidence) ** (1 / until.items) if until.items < until.of_items else 0.0
    return words("summary", "until", until, confidence, unseen)


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
        yield words("summary", "asked_once", result.asked_once)
    for info in result.suites:
        yield from cautions(figures, info.name)


def _steps(figures: Figures, suite: str) -> Iterator[str]:
    """What each step of the ladder that ends in this suite does to its headline figures."""
    for step, measure, decided in figures.step_decisions(suite):
        label = measure_label(measure)
        yield step_sentence(step, label[:1].upper() + label[1:], decided)


def identity(model: ModelInfo) -> str:
    """Which weights answered and on what, as far as the backend knows them."""
    named = model.notes.get("model") or model.fingerprint.get("model")
    return words("summary", "identity", model, named, {**model.notes, **model.fingerprint})


def run_provenance(result: AuditResult) -> str:
    """What the figures come from: run, seed, models and versions."""
    return words("summary", "provenance", result, [f"{one_line(m.name)}: {identity(m)}" for m in result.models])
