"""MLflow: a run for the audit with the report as its artefacts, and in it a run for each model with its metrics."""

from __future__ import annotations

import tempfile
from pathlib import Path

import mlflow

from audit.report.files import write_report
from audit.report.trackers.metrics import facts_of, metrics_of
from audit.results import AuditResult


def log(result: AuditResult, project: str) -> str:
    """Log into the experiment ``project``, or into the run that is active. Returns the MLflow run's id."""
    nested = mlflow.active_run() is not None
    if not nested:
        mlflow.set_experiment(project)
    with mlflow.start_run(run_name=result.run_id, nested=nested) as run:
        with tempfile.TemporaryDirectory() as folder:
            write_report(result, Path(folder))
            mlflow.log_artifacts(folder, "report")
        for model in result.models:
            with mlflow.start_run(run_name=model.name, nested=True):
                mlflow.log_params(facts_of(result, model))
                mlflow.log_metrics(metrics_of(result, model.name))
    return str(run.info.run_id)
