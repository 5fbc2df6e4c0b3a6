"""OpenTelemetry: a span for the audit, one in it for each model, and an event for each figure.

Events are named and described as the semantic conventions of generative models say of evaluation results.
"""

from __future__ import annotations

import datetime

from opentelemetry import trace

from audit.report.trackers.metrics import facts_of, figures_of
from audit.results import AuditResult, Measure
from backends.errors import ConfigError


def log(result: AuditResult, project: str) -> str:
    """Log with the tracer of this name. Returns the trace's id in hexadecimal.

    Raises
    ------
    ConfigError
        Where no tracer provider is set up: nothing would be recorded.
    """
    tracer = trace.get_tracer(project)
    start, end = (_nanoseconds(time) for time in (result.started, result.finished))
    whole = tracer.start_span("bias audit", start_time=start, attributes={"bias_audit.run": result.run_id})
    if not whole.get_span_context().is_valid:
        problem = "no tracer provider is set up, so that nothing would be recorded"
        hint = "Set one in Python, or run the command by opentelemetry-instrument with OTEL_EXPORTER_OTLP_ENDPOINT"
        raise ConfigError("tracker", "opentelemetry", problem, hint)
    context = trace.set_span_in_context(whole)
    for model in result.models:
        about = {f"bias_audit.{name}": value for name, value in facts_of(result, model).items()}
        about["gen_ai.request.model"] = model.name
        span = tracer.start_span(f"audit {model.name}", context, start_time=start, attributes=about)
        for measure in figures_of(result, model.name):
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
