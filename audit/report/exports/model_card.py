"""A section for each model's card: plain sentences, and the metadata that Hugging Face reads evaluation results from.

The front matter is a ``model-index`` as `huggingface_hub.ModelCard` reads it, written as JSON, which is YAML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from audit.report.figures import Figures
from audit.report.formatting import figure, markdown_text, measure_label, one_line
from audit.report.phrases import EVIDENCE_NOT_CONFORMITY, limit_lines, plain_sentence, summary
from audit.report.phrases.methods import run_provenance
from audit.results import AuditResult, Measure


def model_card(result: AuditResult) -> str:
    """Front matter with every model's results, then a section for each model."""
    figures = Figures(result)
    index = [
        {"name": one_line(name), "results": [_metadata(figures, *found) for found in _headline(figures, name)]}
        for name in figures.models
    ]
    parts = [f"---\nmodel-index: {json.dumps(index, ensure_ascii=False, indent=1)}\n---"]
    cautions = [f"- {markdown_text(s.text)}" for s in summary(figures) if s.kind == "caution"]
    for name in figures.models:
        lines = [_line(figures, *found) for found in _headline(figures, name)]
        parts += [f"## Bias audit of {markdown_text(name)}", "\n".join(lines) or "No figure was measured."]
    if lines := [f"- {markdown_text(line.text)}" for line in limit_lines(result)]:
        parts += ["### Limits set beforehand", "\n".join(lines)]
    if cautions:
        parts += ["### What limits this", "\n".join(cautions)]
    parts += ["### Provenance", markdown_text(run_provenance(result)), markdown_text(EVIDENCE_NOT_CONFORMITY)]
    return "\n\n".join(parts) + "\n"


def _headline(figures: Figures, model: str) -> Iterator[tuple[str, str, Measure]]:
    """(suite, condition, figure) of one model, in the suites' order."""
    for info in figures.result.suites:
        for (name, where), label in zip(figures.headline(info.name), figures.headline_labels(info.name), strict=True):
            measure = figures.get(info.name, name, where, model)
            if measure is not None:
                yield info.name, label, measure


def _line(figures: Figures, suite: str, condition: str, measure: Measure) -> str:
    """The figure in plain words, then as a number."""
    info = figures.suite(suite)
    meaning = info.meanings.get(measure.measure)
    name = f"{one_line(info.title)}, {condition}" if condition else one_line(info.title)
    said = measure_label(measure.measure) if meaning is None else plain_sentence(measure, meaning)
    over = f"; over {one_line(measure.spec.population)}" if measure.spec.population else ""
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
                "value": figure(measure) if measure.value is None else measure.value,
                "verified": False,
            }
        ],
    }
