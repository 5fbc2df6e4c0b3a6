"""Every benchmark through a whole audit: asked, read, compared, reported, correlated."""

from __future__ import annotations

from pathlib import Path

import pytest

import suites
from audit import Audit
from audit.analysis.comparing.agreement import agreement
from audit.report.page import report_page
from backends import FakeBackend
from suites.common.text_scorer import TextScorer
from tests.suites.benchmarks.invented import use


def test_every_benchmark_goes_through_an_audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, tmp_path)
    planted = TextScorer(FakeBackend("scorer"), {"toxicity": "negative"}, "planted")
    chosen = [
        suites.CrowSPairs(),
        suites.WinoQueer(),
        suites.StereoSet(),
        suites.WinoBias(),
        suites.BBQ(conditions=["zero-shot", "few-shot+cot"]),
        suites.BiasNLI(mode="generation"),
        suites.BOLD(toxicity=planted, regard=None),
    ]
    models = {name: FakeBackend(name, generate=lambda prompt, seed: "(b)") for name in ("one", "two")}
    result = Audit(models=models, suites=chosen, db=tmp_path / "a.db").run_sync()
    assert result.complete
    assert all(quality.failures == {} for quality in result.data_quality)
    primary = [measure for measure in result.measures if measure.spec.primary]
    assert {measure.suite for measure in primary} == {info.name for info in result.suites}
    assert all(measure.value is not None for measure in primary)
    page = report_page(result)
    assert all(info.title in page for info in result.suites)
    assert {figure.suite for figure in agreement([result]).figures} == {info.name for info in result.suites}
