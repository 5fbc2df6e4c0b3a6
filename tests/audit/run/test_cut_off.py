"""A large run that is interrupted ends at once, without figures, and resumes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from audit import Audit, load_result
from audit.collect import ShutdownRequest, job_run
from audit.report import write_report
from audit.run import audit_run
from audit.store import Store
from backends import FakeBackend
from backends.errors import ConfigError
from suites import OccuGender


class Stopping(FakeBackend):
    """Asks for a stop with its first batch."""

    stop: ShutdownRequest

    async def run(self, batch):
        self.stop.request("SIGTERM")
        return await super().run(batch)


def interrupted(tmp_path: Path, limit: int = 400, **options):
    """The result of a run that is stopped at its first batch."""

    async def run():
        Stopping.stop = ShutdownRequest()
        backend = Stopping("even", batch_size=4)
        audit = Audit({"m": backend}, [OccuGender()], db=tmp_path / "a.db", out=tmp_path, limit=limit, **options)
        return await audit.run(stop=Stopping.stop)

    return asyncio.run(run())


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(audit_run, "MOST_AFTER_STOP", 300)


def test_a_large_run_that_is_stopped_evaluates_nothing(tmp_path, few_are_many):
    result = interrupted(tmp_path)
    assert (result.interrupted, result.complete, result.is_cut_off, result.measures) == (True, False, True, [])
    assert 0 < result.models[0].asked < 400


def test_without_figures_there_is_no_report_to_mistake(tmp_path, few_are_many):
    result = interrupted(tmp_path)
    assert "no figures" in repr(result)
    assert "there are no figures and no report yet" in result._repr_html_()
    with pytest.raises(ConfigError, match="it has no figures: interrupted"):
        write_report(result, tmp_path)
    with pytest.raises(ConfigError, match=r"no figures: interrupted.* it resumes"):  # not: run an audit first
        load_result(tmp_path / "a.db")
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        (run,) = store.runs.all()
        with pytest.raises(ConfigError, match=r"no figures: interrupted.* it resumes"):
            store.runs.finished_result(run.id)
    assert run.status == "interrupted"


def test_a_cut_off_run_resumes_and_has_all_figures(tmp_path, few_are_many):
    asked = interrupted(tmp_path).models[0].asked
    again = FakeBackend("even")
    audit = Audit({"m": again}, [OccuGender()], db=tmp_path / "a.db", out=tmp_path, limit=400)
    result = audit.run_sync()
    assert (result.complete, result.is_cut_off, result.models[0].asked) == (True, False, 400 - asked)
    assert result.measures


def test_a_small_run_that_is_stopped_has_figures(tmp_path):
    result = interrupted(tmp_path)
    assert (result.interrupted, result.is_cut_off) == (True, False)
    assert result.measures


def test_a_stopped_search_that_is_cut_off_decides_nothing(tmp_path, few_are_many, monkeypatch):
    monkeypatch.setattr(job_run, "CHUNK", 8)
    result = interrupted(tmp_path, limit=1000, until="decided", limits={"p_female": (0.1, 0.9)})
    assert (result.is_cut_off, result.until, result.measures) == (True, None, [])
