"""The provenance of a figure: the prompts, raw answers and token log-probabilities of its items."""

from __future__ import annotations

import itertools
from typing import Any

from audit.report.formatting import figure
from audit.report.templating import environment
from audit.results import AuditResult, Measure, where_key
from audit.store import Store
from backends.errors import ConfigError


def provenance(store: Store, result: AuditResult, figure_id: str, limit: int) -> dict[str, Any]:
    """A figure and the first ``limit`` of its items, each with everything stored under its keys.

    Raises
    ------
    ConfigError
        If no figure of the run has this id.
    """
    measure = _figure(result, figure_id)
    where, quantity = where_key(measure.where), measure.spec.quantity
    behind = (
        stored
        for stored in store.runs.read_rows(result.run_id, measure.model, measure.suite)
        if where <= where_key(stored.row.factors)
        and (stored.row.missing or quantity in stored.row.values)
        and stored.keys
    )
    items = [
        {
            "item": stored.row.item_id,
            "factors": dict(stored.row.factors),
            "values": {name: [v.low, v.value, v.high] for name, v in stored.row.values.items()},
            "missing": stored.row.missing,
            "answers": [store.answers.inspect(key) or {"key": key, "answered": False} for key in stored.keys],
        }
        for stored in itertools.islice(behind, limit)
    ]
    return {"run": result.run_id, "figure": measure.model_dump(), "items": items}


def provenance_text(behind: dict[str, Any]) -> str:
    """The result of `provenance` as text for a terminal."""
    template = environment().get_template("provenance.txt.j2")
    return template.render(value=figure(Measure.model_validate(behind["figure"])), **behind).strip("\n")


def _figure(result: AuditResult, figure_id: str) -> Measure:
    matching = [m for m in result.measures if m.id.startswith(figure_id)]
    if len(matching) != 1:
        problem = f"{len(matching)} figures of run {result.run_id} match"
        raise ConfigError("FIGURE-ID", figure_id, problem, "See `id` in report.json")
    return matching[0]
