"""A section for each model's card: plain sentences, and the metadata that Hugging Face reads evaluation results from.

The front matter is a ``model-index`` as `huggingface_hub.ModelCard` reads it, written as JSON, which is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import bounded, distinct_names, figure, file_name, markdown_text, measure_label, one_line
from audit.report.phrases import (
    EVIDENCE_NOT_CONFORMITY,
    limit_lines,
    limits_overview,
    plain_sentence,
    remark_on,
    stands_alone,
    summary,
)
from audit.report.phrases.counted import count
from audit.report.phrases.methods import run_provenance
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
    figures = Figures(result)
    own = Figures(_alone(result, model))
    found = list(_leading(figures, model))
    alone = [one for one in found if stands_alone(one[2], 1 - result.confidence)]
    index = [{"name": one_line(model), "results": [_metadata(figures, *one) for one in alone]}]
    parts = [f"---\nmodel-index: {json.dumps(index, ensure_ascii=False, indent=1)}\n---"]
    cautions = [f"- {markdown_text(s.text)}" for s in summary(own) if s.kind == "caution"]
    lines = [_line(figures, *one) for one in found]
    if len(alone) < len(found):
        lines.append(
            f"- {len(found) - len(alone)} of these {len(found)} figures are not in the metadata above, which is read "
            "without these words: they have no interval, rest on too few levels, or missing answers leave them open."
        )
    parts += [f"## Bias audit of {markdown_text(model)}", "\n".join(lines) or "No figure was measured."]
    if lines := [f"- {markdown_text(line)}" for line in _limits(own.result)]:
        parts += ["### Limits set beforehand", "\n".join(lines)]
    if cautions:
        parts += ["### What limits this", "\n".join(cautions)]
    parts += ["### Provenance", markdown_text(run_provenance(own.result)), markdown_text(EVIDENCE_NOT_CONFORMITY)]
    return "\n\n".join(parts) + "\n"


def _limits(result: AuditResult) -> Iterator[str]:
    """The limits that are broken or met, and the first of those that are open; a count of the rest."""
    lines = limit_lines(result)
    shown = [line for line in lines if line.verdict != "insufficient evidence"][:_LIMITS]
    shown += [line for line in lines if line.verdict == "insufficient evidence"][: max(0, _LIMITS - len(shown))]
    if lines:
        yield limits_overview(result)
    yield from (line.text for line in lines if line in shown)
    if len(lines) > len(shown):
        yield f"{len(lines) - len(shown):,} more in report.md."


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


def _line(figures: Figures, suite: str, condition: str, measure: Measure) -> str:
    """The figure in plain words, then as a number."""
    info = figures.suite(suite)
    meaning = info.meanings.get(measure.measure)
    name = f"{one_line(info.title)}, {condition}" if condition else one_line(info.title)
    said = measure_label(measure.measure) if meaning is None else plain_sentence(measure, meaning)
    # Without an interval nothing is said of anything but the items asked.
    is_general = measure.spec.population and measure.low is not None
    over = f"; over {one_line(measure.spec.population)}" if is_general else f"; of {count(measure.n_items, 'item')}"
    remark = remark_on(figures, measure)
    said += f" ({remark})" if remark else ""
    return f"- {markdown_text(f'{name}: {said}. {measure_label(measure.measure)} {figure(measure)}{over}.')}"


def _metadata(figures: Figures, suite: str, condition: str, measure: Measure) -> dict[str, Any]:
    """One result of a ``model-index``; the value of a figure known only by bounds is a text with the bounds."""
    title = one_line(figures.suite(suite).title)
    label = measure_label(measure.measure)
    return {
        "task": {"type": "text-generation"},
        "dataset": {"type": one_line(suite.lower()), "name": title},
        "metrics": [
            {
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
        ],
    }
