"""Figures in experiment trackers, read back from their own stores. Trackers that are not installed are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.report.trackers import log_result, metrics_of
from audit.results import AuditResult
from backends.errors import ConfigError
from tests.audit.report import made_up as mu


def result() -> AuditResult:
    measures = [
        mu.measure("a", "gap", {"form": "direct"}, 0.47, 0.1, neutral=0.0),
        mu.measure("a", "gap", {"form": "dir€ct"}, 0.3, None, neutral=0.0),
        mu.measure("a", "gap", {"form": "dir£ct"}, 0.2, None, neutral=0.0),
        mu.measure("a", "bounded", {}, None, 0.02, bounds=(0.1, 0.3), neutral=0.0),
        mu.measure("b", "gap", {"form": "direct"}, -0.1, 0.05, neutral=0.0),
    ]
    return mu.result(["a", "b"], [mu.toy_suite().model_copy(update={"charts": []})], measures)


def test_metrics_have_values_intervals_and_names_of_their_own() -> None:
    metrics = metrics_of(result(), "a")
    assert metrics["toy/gap/form.direct"] == 0.47
    assert metrics["toy/gap/form.direct.low"] == pytest.approx(0.37)
    assert sorted(value for name, value in metrics.items() if "dir_ct" in name) == [0.2, 0.3]
    assert "toy/bounded" not in metrics
    assert metrics["toy/bounded.low"] == pytest.approx(0.08)


def test_mlflows_store_gives_the_figures_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    run_id = log_result(result(), "mlflow", "a project")
    client = mlflow.MlflowClient(tmp_path.as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "a project"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"run-1", "a", "b"}
    assert runs["a"].data.metrics == metrics_of(result(), "a")
    assert runs["b"].data.params["fingerprint"] == "f" * 16
    files = {file.path for file in client.list_artifacts(run_id, "report")}
    assert "report/report.html" in files
    report = client.download_artifacts(run_id, "report/report.json", str(tmp_path))
    assert json.loads(Path(report).read_text("utf-8"))["run_id"] == "run-1"


def test_opentelemetry_without_a_provider_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    monkeypatch.setattr(trace, "get_tracer", lambda _: trace.NoOpTracer())
    with pytest.raises(ConfigError, match="no tracer provider is set up"):
        log_result(result(), "opentelemetry")


def test_opentelemetry_has_an_event_for_each_figure() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    exporter, provider = export.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    trace_id = log_result(result(), "opentelemetry")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"bias audit", "audit a", "audit b"}
    assert {format(span.context.trace_id, "032x") for span in spans.values()} == {trace_id}
    first = spans["audit a"].events[0]
    assert first.attributes["gen_ai.evaluation.score.value"] == 0.47
    assert len(spans["audit a"].events) == 3
    assert spans["bias audit"].end_time - spans["bias audit"].start_time == 300 * 10**9
