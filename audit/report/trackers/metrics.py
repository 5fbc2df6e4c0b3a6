"""The figures of one model as named numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from audit.results import AuditResult, Measure, ModelInfo


def figures_of(result: AuditResult, model: str) -> Iterator[Measure]:
    """A model's figures, without those of single levels."""
    return (m for m in result.measures if m.model == model and not m.is_subgroup)


def metrics_of(result: AuditResult, model: str) -> dict[str, float]:
    """``SUITE/MEASURE/FACTOR.LEVEL`` with its value, and ``….low``, ``….high``; what is not known is left out.

    Names hold letters, digits and ``_-./: `` only; where two would be alike each has its figure's id.
    """
    figures = list(figures_of(result, model))
    names = [_name(measure) for measure in figures]
    found: dict[str, float] = {}
    for name, measure in zip(names, figures, strict=True):
        own = name if names.count(name) == 1 else f"{name}/{measure.id}"
        numbers = {own: measure.value, f"{own}.low": measure.low, f"{own}.high": measure.high}
        found |= {key: value for key, value in numbers.items() if value is not None}
    return found


def facts_of(result: AuditResult, model: ModelInfo) -> dict[str, str]:
    """Everything needed to reproduce a model's figures, as strings."""
    suites = ", ".join(info.name for info in result.suites)
    facts = {"run": result.run_id, "title": result.title, "suites": suites, "complete": str(result.complete)}
    facts |= {"seed": str(result.seed), "limit": str(result.limit), "confidence": str(result.confidence)}
    return facts | {"model": model.name, "backend": model.backend, "fingerprint": model.fingerprint_id}


def _name(measure: Measure) -> str:
    where = [f"{factor}.{level}" for factor, level in measure.where.items()]
    return re.sub(r"[^A-Za-z0-9_\-./: ]", "_", "/".join([measure.suite, measure.measure, *where]))
