"""Models that cannot be loaded: one error each, the other models go on, and nothing is reported of no model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audit import Audit
from audit.collect.limiter import CircuitBreaker
from audit.report.figures import Figures
from audit.report.phrases.problems import problems_of
from audit.report.phrases.summary import summary
from audit.results import AuditResult
from audit.run import run_audit
from backends import FakeBackend
from backends.base import Answer, Request
from backends.errors import BackendError
from suites import OccuGender
from tests.audit.cli.conftest import audit as audit

__all__ = ["audit"]
PROBLEM = "its weights are missing"


class Unloadable(FakeBackend):
    """A model that cannot be loaded until ``is_fixed``."""

    is_fixed = False
    batches = 0

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        self.batches += 1
        if self.is_fixed:
            return await super().run(batch)
        return [BackendError("unsupported", PROBLEM, hint="Put them there", unloaded=True)] * len(batch)


def audit_of(folder: Path, *models: FakeBackend, **options: Any) -> Audit:
    suites = [OccuGender(("implicit",))]
    return Audit({model.name: model for model in models}, suites, db=folder / "a.db", out=folder / "out", **options)


def run(audit: Audit) -> AuditResult:
    return asyncio.run(run_audit(audit))


def test_an_unloaded_model_is_asked_once_and_told_once(tmp_path: Path) -> None:
    broken = Unloadable("broken", batch_size=8)
    result = run(audit_of(tmp_path, broken, FakeBackend("whole")))
    assert broken.batches <= 2, "a second batch may be on its way"
    assert not result.complete
    told = [problem for problem in problems_of(result) if PROBLEM in problem]
    assert told == [f"broken could not be loaded, and has no figures: {PROBLEM}. Put them there"]
    assert [sentence.text for sentence in summary(Figures(result)) if PROBLEM in sentence.text] == told
    assert not [sentence.text for sentence in summary(Figures(result)) if "broken: 1,000 of" in sentence.text]
    (model,) = (model for model in result.models if model.unloaded)
    assert (model.name, model.asked) == ("broken", 0)
    values = {measure.model for measure in result.measures if measure.value is not None}
    assert values == {"whole"}


def test_a_later_run_tries_to_load_the_model_again(tmp_path: Path) -> None:
    broken = Unloadable("broken")
    assert run(audit_of(tmp_path, broken)).is_unloaded
    broken.is_fixed = True
    result = run(audit_of(tmp_path, broken))
    assert result.complete
    assert not result.is_unloaded


def test_models_that_load_are_asked_until_decided(tmp_path: Path) -> None:
    alone = run(audit_of(tmp_path / "alone", FakeBackend("whole"), until=0.3, limit=150))
    models = (Unloadable("broken"), FakeBackend("whole"))
    beside = run(audit_of(tmp_path / "beside", *models, until=0.3, limit=150))
    assert beside.models[-1].asked == alone.models[-1].asked > 0


def test_a_model_of_which_some_is_stored_keeps_its_figures(tmp_path: Path) -> None:
    broken = Unloadable("broken")
    broken.is_fixed = True
    run(audit_of(tmp_path, broken, limit=100))
    broken.is_fixed = False
    result = run(audit_of(tmp_path, broken))
    assert not result.is_unloaded
    assert any(measure.value is not None for measure in result.measures)
    assert "could not be loaded" in next(iter(problems_of(result)))


def test_an_actor_that_cannot_load_ends_no_running_model() -> None:
    breaker, unloaded = CircuitBreaker(), BackendError("unsupported", PROBLEM, unloaded=True)
    assert breaker.update(None) is None
    assert not any(breaker.update(unloaded) for _ in range(300))
    assert PROBLEM in (CircuitBreaker().update(unloaded) or "")
