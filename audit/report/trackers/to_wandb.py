"""Weights & Biases: a run for each model, grouped by the audit's run; its figures are the run's summary."""

from __future__ import annotations

import wandb

from audit.report.trackers.metrics import facts_of, metrics_of
from audit.results import AuditResult


def log(result: AuditResult, project: str) -> str:
    """Log into ``project``. Returns the group's name."""
    for model in result.models:
        facts = facts_of(result, model)
        with wandb.init(
            project=project, group=result.run_id, name=model.name, config=facts, reinit="create_new"
        ) as run:
            run.summary.update(metrics_of(result, model.name))
    return result.run_id
