"""A section for each model's card: plain sentences, and the metadata that Hugging Face reads evaluation results from.

The front matter is a ``model-index`` as `huggingface_hub.ModelCard` reads it, written as JSON, which is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import bounded, figure, measure_label
from audit.report.phrases.first_page import plain_sentence, remark_on, stands_alone
from audit.report.phrases.gate import limit_lines, limits_overview
from audit.report.phrases.summary import EVIDENCE_NOT_CONFORMITY, run_provenance, summary
from audit.report.plain_text import distinct_names, file_name, one_line
from audit.report.templating import environment
from audit.results import AuditResult, Measure

_LIMITS = 8  # more would drown the figures that a card is for


def model_cards(result: AuditResult) -> Iterator[tuple[str, str, str]]:
    """(model, file name, text) of each model's card; the file of a single model is ``model_card.md``.

    Each is a file of its own, since readers of a front matter take all its results for those of one model.
    """
    if len(result.models) == 1:
        yield result.models[0].name, "model_card.md", _card(result, result.models[0].name)
        return
    names = distinct_names([model.name for model in result.models], file_name)
    for model, name in names.items():
        yield model, f"model_cards/{name}.md", _card(result, model)


def _card(result: AuditResult, model: str) -> str:
    """Front matter with the model's results, then its section."""
    figures, own = Figures(result), Figures(_alone(result, model))
    found = list(_leading(figures, model))
    alone = [one for one in found if stands_alone(one[2], 1 - result.confidence)]
    index = [{"name": one_line(model), "results": [_metadata(figures, *one) for one in alone]}]
    limits = limit_lines(own.result)
    text = environment().get_template("model_card.md.j2").render(
        front=json.dumps(index, ensure_ascii=False, indent=1),
        model=model,
        figures=[_line(figures, *one) for one in found],
        n_alone=len(alone),
        limits_overview=limits_overview(own.result),
        limits=limits[:_LIMITS],
        n_limits=len(limits),
        cautions=[sentence.text for sentence in summary(own) if sentence.kind == "caution"],
        provenance=run_provenance(own.result),
        statement=EVIDENCE_NOT_CONFORMITY,
    )  # fmt: skip
    return f"{text.strip()}\n"


def _alone(result: AuditResult, model: str) -> AuditResult:
    """The result as far as it is about one model."""
    kept = {
        name: [one for one in getattr(result, name) if one.model == model]
        for name in ("measures", "data_quality", "limits", "examples", "self_checks")
    }
    of_both: dict[str, list[Any]] = {"comparisons": [], "drift": [], "ladder": [], "rankings": []}
    models = [one for one in result.models if one.name == model]
    return result.model_copy(update={**kept, **of_both, "models": models})


def _leading(figures: Figures, model: str) -> Iterator[tuple[str, str, Measure]]:
    """(suite, condition, figure) of one model, in the suites' order."""
    for info in figures.result.suites:
        for name, where, label in figures.leading(info.name):
            measure = figures.get(info.name, name, where, model)
            if measure is not None and (measure.value is not None or bounded(measure)):
                yield info.name, label, measure


def _line(figures: Figures, suite: str, condition: str, measure: Measure) -> dict[str, Any]:
    """The figure in plain words, and as a number."""
    info = figures.suite(suite)
    meaning = info.meanings.get(measure.measure)
    return {
        "name": f"{one_line(info.title)}, {condition}" if condition else one_line(info.title),
        "said": measure_label(measure.measure) if meaning is None else plain_sentence(measure, meaning),
        "remark": remark_on(figures, measure),
        "figure": f"{measure_label(measure.measure)} {figure(measure)}",
        # Without an interval nothing is said of anything but the items asked.
        "population": one_line(measure.spec.population) if measure.low is not None else "",
        "n_items": measure.n_items,
    }


def _metadata(figures: Figures, suite: str, condition: str, measure: Measure) -> dict[str, Any]:
    """One result of a ``model-index``; the value of a figure known only by bounds is a text with the bounds."""
    label = measure_label(measure.measure)
    metric = {
        "type": one_line(measure.measure),
        "name": f"{label} ({condition})" if condition else label,
        "value": figure(measure) if measure.value is None else float(f"{measure.value:.12g}"),
        "verified": False,
        "args": {
            "low": measure.low,
            "high": measure.high,
            "confidence": figures.result.confidence,
            "items": measure.n_items,
            "missing": measure.missing,
            "complete": figures.result.complete,
            "remark": remark_on(figures, measure),
        },
    }
    return {
        "task": {"type": "text-generation"},
        "dataset": {"type": one_line(suite.lower()), "name": one_line(figures.suite(suite).title)},
        "metrics": [metric],
    }
