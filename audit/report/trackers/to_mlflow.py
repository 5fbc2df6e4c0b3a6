"""MLflow: a run for the audit with the report as its artefacts, and in it a run for each model with its metrics."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import mlflow

from audit.report.files import write_report
from audit.report.trackers.metrics import facts_of, metrics_of
from audit.results import AuditResult
from backends.errors import ConfigError

_DATABASES = ("sqlite:", "postgresql", "mysql", "mssql")


def log(result: AuditResult, project: str) -> str:
    """Log into the experiment ``project``, or into the run that is active. Returns the MLflow run's id.

    Raises
    ------
    ConfigError
        Where the tracking store is a database (MLflow's default) and the package that opens it is missing.
    """
    store = mlflow.get_tracking_uri()
    if store.startswith(_DATABASES) and find_spec("sqlalchemy") is None:
        problem = "a database, which mlflow-skinny cannot open"
        hint = "Name a server, e.g. MLFLOW_TRACKING_URI=http://127.0.0.1:5000, or: pip install mlflow"
        raise ConfigError("MLFLOW_TRACKING_URI", store, problem, hint)
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
