"""A result in experiment trackers: MLflow, Weights & Biases and OpenTelemetry (extras of these names).

Takes an `AuditResult` and hands its figures to a tracker, as its own environment variables or calls configure that.
"""

from __future__ import annotations

import datetime
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from audit.report.files import write_report
from audit.results import AuditResult, Measure, ModelInfo
from backends.errors import ConfigError

Tracker = Literal["mlflow", "wandb", "opentelemetry"]


def log_result(result: AuditResult, tracker: Tracker, project: str = "bias-audit") -> str:
    """Log a result: a run for the audit, and one for each model. Returns where to find it.

    ``project`` is MLflow's experiment, W&B's project or OpenTelemetry's tracer. Figures known only by bounds have no
    value there: they are left out, never 0. Figures of single levels of a factor are left out.

    Raises
    ------
    ConfigError
        When there is no such tracker, or it is not installed.
    """
    if tracker not in _TRACKERS:
        raise ConfigError("tracker", tracker, "unknown", f"Use {', '.join(_TRACKERS)}")
    try:
        return _TRACKERS[tracker](result, project)
    except ImportError as error:
        hint = f'pip install "bias-audit[{tracker}]"'
        raise ConfigError("tracker", tracker, f"cannot be imported ({error})", hint) from None


def metrics_of(result: AuditResult, model: str) -> dict[str, float]:
    """``SUITE/MEASURE/FACTOR.LEVEL`` with its value, and ``….low``, ``….high``; what is not known is left out.

    Names hold letters, digits and ``_-./: `` only; where two would be alike each has its figure's id.
    """
    figures = _figures_of(result, model)
    names = [_name(measure) for measure in figures]
    found: dict[str, float] = {}
    for name, measure in zip(names, figures, strict=True):
        own = name if names.count(name) == 1 else f"{name}/{measure.id}"
        numbers = {own: measure.value, f"{own}.low": measure.low, f"{own}.high": measure.high}
        found |= {key: value for key, value in numbers.items() if value is not None}
    return found


def _figures_of(result: AuditResult, model: str) -> list[Measure]:
    return [m for m in result.measures if m.model == model and not m.is_subgroup]


def _name(measure: Measure) -> str:
    where = [f"{factor}.{level}" for factor, level in measure.where.items()]
    return re.sub(r"[^A-Za-z0-9_\-./: ]", "_", "/".join([measure.suite, measure.measure, *where]))


def _facts_of(result: AuditResult, model: ModelInfo) -> dict[str, str]:
    """Everything needed to reproduce a model's figures, as strings."""
    suites = ", ".join(info.name for info in result.suites)
    facts = {"run": result.run_id, "title": result.title, "suites": suites, "complete": str(result.complete)}
    facts |= {"seed": str(result.seed), "limit": str(result.limit), "confidence": str(result.confidence)}
    return facts | {"model": model.name, "backend": model.backend, "fingerprint": model.fingerprint_id}


def _to_mlflow(result: AuditResult, project: str) -> str:
    """A run with the report as its artefacts, in the experiment or the active run; in it a run for each model."""
    import mlflow

    nested = mlflow.active_run() is not None
    if not nested:
        mlflow.set_experiment(project)
    with mlflow.start_run(run_name=result.run_id, nested=nested) as run:
        with tempfile.TemporaryDirectory() as folder:
            write_report(result, Path(folder))
            mlflow.log_artifacts(folder, "report")
        for model in result.models:
            with mlflow.start_run(run_name=model.name, nested=True):
                mlflow.log_params(_facts_of(result, model))
                mlflow.log_metrics(metrics_of(result, model.name))
    return str(run.info.run_id)


def _to_wandb(result: AuditResult, project: str) -> str:
    """A run for each model, grouped by the audit's run; its figures are the run's summary."""
    import wandb

    for model in result.models:
        facts = _facts_of(result, model)
        with wandb.init(
            project=project, group=result.run_id, name=model.name, config=facts, reinit="create_new"
        ) as run:
            run.summary.update(metrics_of(result, model.name))
    return result.run_id


def _to_opentelemetry(result: AuditResult, project: str) -> str:
    """A span for the audit, in it one for each model with an event for each figure, named by the semantic conventions.

    Returns the trace's id in hexadecimal. Without a tracer provider nothing would be recorded: an error.
    """
    from opentelemetry import trace

    tracer = trace.get_tracer(project)
    start, end = (_nanoseconds(time) for time in (result.started, result.finished))
    whole = tracer.start_span("bias audit", start_time=start, attributes={"bias_audit.run": result.run_id})
    if not whole.get_span_context().is_valid:
        problem = "no tracer provider is set up, so that nothing would be recorded"
        hint = "Set one in Python, or run the command by opentelemetry-instrument with OTEL_EXPORTER_OTLP_ENDPOINT"
        raise ConfigError("tracker", "opentelemetry", problem, hint)
    context = trace.set_span_in_context(whole)
    for model in result.models:
        about = {f"bias_audit.{name}": value for name, value in _facts_of(result, model).items()}
        about["gen_ai.request.model"] = model.name
        span = tracer.start_span(f"audit {model.name}", context, start_time=start, attributes=about)
        for measure in _figures_of(result, model.name):
            if measure.value is not None:
                span.add_event("gen_ai.evaluation.result", _event(measure, measure.value), timestamp=end)
        span.end(end)
    whole.end(end)
    return format(whole.get_span_context().trace_id, "032x")


def _event(measure: Measure, value: float) -> dict[str, str | float]:
    numbers = {"low": measure.low, "high": measure.high, "neutral": measure.neutral}
    return {
        "gen_ai.evaluation.name": f"{measure.suite}: {measure.figure.title}",
        "gen_ai.evaluation.score.value": value,
        "bias_audit.figure": measure.id,
        **{f"bias_audit.{name}": number for name, number in numbers.items() if number is not None},
    }


def _nanoseconds(time: str) -> int:
    return int(datetime.datetime.fromisoformat(time).timestamp() * 1e9)


_TRACKERS: Mapping[str, Callable[[AuditResult, str], str]] = {
    "mlflow": _to_mlflow,
    "wandb": _to_wandb,
    "opentelemetry": _to_opentelemetry,
}
