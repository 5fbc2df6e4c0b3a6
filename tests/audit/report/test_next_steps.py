"""What to do next: only what helps, as a command that can be pasted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit import Audit, load_audit
from audit.cli.run import given_audit
from audit.report.figures import Figures
from audit.report.phrases.next_steps import next_steps, run_command
from audit.results import AuditResult, AuditSource, DataQuality, LimitCheck, SelfCheck, UntilDecided, VarianceComponents
from audit.run.facts import audit_source
from backends import FakeBackend
from suites import OccuGender
from tests.audit.report import made_up as mu

CONFIG = AuditSource(config="my audits/mine.py", db="mine.db")
COMPONENTS = VarianceComponents(
    suite="toy", measure="gap", where={}, model="a", of_items=0.0, in_figure={},
    levels={"item": 60}, n_items=60,
)  # fmt: skip


def result(asked: int = 60, of: int | None = 400, open_because: str | None = None, **more: Any) -> AuditResult:
    """Two models, 0.01 ± 0.03 apart in a primary figure, which is inconclusive."""
    a, b = (mu.measure(model, "gap", {}, value) for model, value in (("a", 0.4), ("b", 0.41)))
    compared = mu.comparison(a, b, 0.05, primary=True, verdict="inconclusive", open_because=open_because)
    info = mu.toy_suite().model_copy(update={"charts": [], "n_items": asked, "of_items": of})
    fields = {"source": CONFIG, "limit": 60, "components": [COMPONENTS], **more}
    return mu.result(["a", "b"], [info], [a, b], comparisons=[compared], **fields)


def steps(found: AuditResult) -> str:
    return " ".join(next_steps(Figures(found)))


def failed(**failures: int) -> list[DataQuality]:
    whole = mu.data_quality_of("a", "toy")
    return [whole.model_copy(update={"failures": failures, "probability_mass": 0.5})]


def test_a_sample_is_planned_on_and_completed_by_its_config() -> None:
    assert "`audit plan 'my audits/mine.py' --run run-1` says what difference" in steps(result())
    in_file = steps(result())
    assert "`audit run 'my audits/mine.py' --limit 400` asks only the rest" in in_file
    by_hand = CONFIG.model_copy(update={"changed": {"limit": 60, "seed": 3, "models": ["a", "b"]}})
    said = steps(result(source=by_hand))
    assert "`audit run 'my audits/mine.py' --seed 3 --models a --models b --limit 400` asks only the rest" in said


def test_a_run_of_named_suites_is_completed_by_its_command() -> None:
    audit = given_audit(None, ["OccuGender"], ["embedded:smollm2"], None).only(limit=60)
    said = steps(result(source=audit_source(audit)))
    assert "`audit run --suite OccuGender --model embedded:smollm2 --limit 400` asks only the rest" in said
    assert "`audit plan" not in said  # a plan takes a config


@pytest.mark.parametrize(
    "more",
    [
        {"asked": 400},
        {"open_because": "missing answers"},
        {"open_because": "unpaired items"},
    ],
)
def test_no_plan_where_more_items_cannot_help(more: dict[str, Any]) -> None:
    assert "audit plan" not in steps(result(**more))
    assert "more items" not in steps(result(**more))


def test_another_store_than_the_configs_is_named() -> None:
    moved = CONFIG.model_copy(update={"changed": {"db": "b.db"}, "db": "b.db"})
    said = steps(result(asked=400, source=moved))
    assert "`audit baseline save first --db b.db`" in said
    assert "audit plan" not in steps(result(source=moved)), "it reads the config's own store"
    assert "--db 'my audits/mine.py'" in steps(result(asked=400))
    assert "--db" not in steps(result(asked=400, source=None))


def test_a_whole_run_is_kept_as_a_baseline() -> None:
    whole = steps(result(asked=400))
    assert "`audit gate --baseline first --db 'my audits/mine.py'` says what got worse" in whole
    assert "sample" not in whole
    assert "NAME" not in whole
    assert "CONFIG" not in whole


def test_a_run_about_a_baseline_names_the_gate_and_its_whole() -> None:
    until = UntilDecided(question="baseline", decided=True, look=1, looks=7, items=100, of_items=400, confidence=0.95)
    about = CONFIG.model_copy(update={"changed": {"until": "decided", "baseline": "last night"}})
    said = steps(result(source=about).model_copy(update={"until": until}))
    assert "`audit gate --baseline 'last night' --db 'my audits/mine.py'` says what got worse" in said
    assert "--until" not in said
    assert run_command(about).endswith("--until decided --baseline 'last night'")


@pytest.mark.parametrize(("reason", "helps"), [("timeout", True), ("not asked", True), ("context_length", False)])
def test_asking_again_is_proposed_where_it_may_help(reason: str, helps: bool) -> None:
    found = result(complete=False, data_quality=failed(**{reason: 3}))
    assert ("`audit run 'my audits/mine.py'` again: it asks only what is unanswered" in steps(found)) is helps
    assert "baseline save" not in steps(found)


def test_a_broken_limit_is_shown_from_the_runs_own_store() -> None:
    check = LimitCheck(
        model="a", suite="toy", measure="gap", where={}, limit="gap", at_least=None, at_most=0.1,
        value=0.4, low=0.3, high=0.5, verdict="broken",
    )  # fmt: skip
    command = f"`audit show {check.figure.id} --run run-1 --db 'my audits/mine.py'`"
    assert command in steps(result(limits=[check]))


def test_a_run_knows_its_config_and_what_it_replaced(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f'db = "{tmp_path}/a.db"\nout = "{tmp_path}/out"\n[models.fake]\nbackend = "fake"\n'
        '[suites.OccuGender]\nsuite = "OccuGender"\nbias = ["implicit"]\n'
    )
    found = load_audit(config).only(limit=60, small_sample=True).run_sync()
    assert found.source == AuditSource(
        config=str(config), db=f"{tmp_path}/a.db", out=f"{tmp_path}/out", changed={"limit": 60, "small_sample": True}
    )
    assert [(info.n_items, info.of_items) for info in found.suites] == [(60, 1000)]
    in_python = Audit({"a": FakeBackend()}, [OccuGender(("implicit",))], db=tmp_path / "b.db", out=tmp_path, limit=100)
    assert in_python.run_sync().source == AuditSource(config=None, db=str(tmp_path / "b.db"), out=str(tmp_path))


def test_a_quarantined_server_is_looked_at_before_it_is_asked_again() -> None:
    check = SelfCheck(model="a", asked_again=60, unanswered=0, disagreed=0, noise=0, largest_move=0, contradicted=True)
    assert "Find out why the answers of a are quarantined" in steps(result(self_checks=[check]))
