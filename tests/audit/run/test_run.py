"""The whole way, on fake models: planted truths come back, nothing is asked twice, a kill costs nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from dataclasses import replace

import pytest

from audit import Audit
from audit.prepare.forecast.estimate import dry_run_audit
from audit.report.exports.json import json_report
from audit.report.figures import Figures
from audit.report.provenance import provenance
from audit.results import AuditResult
from audit.store import Store
from backends import FakeBackend, PlantedBias
from backends.base import Backend, Description, ScoreRequest
from backends.errors import ConfigError
from backends.stand_ins.fake import Faults
from suites import OccuGender
from suites.base import IdentifiedInterval, Item, MeasureSpec, Row, Suite

SUITE = OccuGender()
NAMES = sorted((o.name for o in SUITE.occupations), key=len, reverse=True)
SHARE = {o.name: o.female_share for o in SUITE.occupations}


def words(prompt):
    explicit = prompt.endswith("A:")
    groups = SUITE.expressions["explicit" if explicit else "implicit"]
    return {g: sorted({form for w in some for form in (w, w[0].swapcase() + w[1:])}) for g, some in groups.items()}


def planted(prompt):
    share = SHARE[next(name for name in NAMES if name in prompt)]
    return {"male": 0.8 * (1 - share), "female": 0.8 * share, "diverse": 0.2}


def stereotyped(**options):
    return FakeBackend("stereotyped", score=PlantedBias(planted, words, coverage=0.4), **options)


def audit_of(tmp_path, backend, **options):
    return Audit({"m": backend}, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", **options)


def figures(result, **where):
    return {m.measure: m for m in result.measures if not m.is_subgroup and where.items() <= m.where.items()}


def same(a: AuditResult, b: AuditResult) -> bool:
    return [m.model_dump() for m in a.measures] == [m.model_dump() for m in b.measures]


def test_planted_bias_comes_back_exactly(tmp_path):
    result = audit_of(tmp_path, stereotyped()).run_sync()
    assert result.complete
    for bias in ("explicit", "implicit"):
        of_women = [SHARE[o.name] for o in SUITE.occupations if o.dominated_by == "female"]
        found = figures(result, bias=bias, dominated_by="female")
        assert found["p_female"].value == pytest.approx(0.8 * sum(of_women) / len(of_women), abs=1e-12)
        assert found["p_diverse"].value == pytest.approx(0.2, abs=1e-12)
        assert found["coverage"].value == pytest.approx(0.4, abs=1e-12)
        assert found["p_female"].probability_mass == pytest.approx(0.4, abs=1e-12)


def test_a_second_run_asks_nothing_and_says_the_same(tmp_path):
    first = audit_of(tmp_path, stereotyped()).run_sync()
    again = stereotyped()
    second = audit_of(tmp_path, again).run_sync()
    assert sum(again.asked.values()) == 0
    assert second.models[0].cached == first.models[0].asked == 2000
    assert same(first, second)


def test_one_more_expression_asks_for_that_expression_only(tmp_path):
    few = {"implicit": {"male": ["He"], "female": ["She"], "diverse": ["They"]}}
    more = {"implicit": {"male": ["He", "Man"], "female": ["She"], "diverse": ["They"]}}

    class Counting(FakeBackend):
        continuations = 0

        async def run(self, batch):
            self.continuations += sum(len(r.continuations) for r in batch)
            return await super().run(batch)

    for expressions, expected in ((few, 1000 * 6), (more, 1000 * 2)):
        backend = Counting()
        suite = OccuGender(("implicit",), expressions=expressions)
        assert Audit({"m": backend}, [suite], db=tmp_path / "a.db").run_sync().complete
        assert backend.continuations == expected


def test_faults_that_pass_change_no_figure(tmp_path):
    calm = Audit({"m": stereotyped()}, [SUITE], db=tmp_path / "calm.db", limit=200).run_sync()
    shaken = stereotyped(faults=Faults(0.2, ("server", "timeout"), retry_after=0.0))
    result = Audit({"m": shaken}, [SUITE], db=tmp_path / "shaken.db", limit=200).run_sync()
    assert result.models[0].retried > 20
    assert same(calm, result)


def test_questions_without_answer_are_missing_and_never_zero(tmp_path):
    backend = stereotyped(faults=Faults(0.1, ("context_length",), permanent=True))
    result = audit_of(tmp_path, backend, limit=500).run_sync()
    (entry,) = result.data_quality
    assert not result.complete
    assert entry.failures["context_length"] == sum(entry.failures_by.values()) == 500 - entry.answered > 20
    found = figures(result, bias="explicit", dominated_by="female")["p_diverse"]
    assert found.missing > 0
    assert found.value == pytest.approx(0.2, abs=1e-12)


class Levels(Suite):
    """Scored prompts under a factor whose levels are equal in Python, but are not the same level."""

    name = "levels"
    levels = (True, 1, False, 0, None)

    def items(self):
        for number, level in enumerate(self.levels):
            for i in range(number + 3):
                yield Item(f"{level}/{i}", ScoreRequest(f"{level} {i}", (" she",)), {"level": level})

    def signature(self):
        return {}

    def read(self, item, response):
        number = [repr(level) for level in self.levels].index(repr(item.factors["level"]))
        return Row(item.id, item.factors, {"p": IdentifiedInterval.exact(0.1 * number)})

    def measures(self, rows):
        for level in self.levels:
            yield MeasureSpec("gap", "p", {"level": level}, neutral=0.0)


def test_true_and_1_are_two_levels_all_the_way_to_the_report(tmp_path):
    result = Audit({"a": FakeBackend("a"), "b": FakeBackend("b")}, [Levels()], db=tmp_path / "a.db").run_sync()
    assert [repr(c.where["level"]) for c in result.comparisons] == [repr(level) for level in Levels.levels]
    index = Figures(result)
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        for number, level in enumerate(Levels.levels):
            found = index.get("levels", "gap", {"level": level}, "a")
            assert found.value == pytest.approx(0.1 * number)
            assert len(index.comparisons("levels", "gap", {"level": level})) == 1
            behind = provenance(store, result, found.id, 99)["items"]
            assert len(behind) == found.n_items == number + 3


class Questioning(Levels):
    """Asks a further question about each answer."""

    name = "questioning"

    def follow_ups(self, item, response):
        if "#" not in item.id:
            yield Item(f"{item.id}#more", ScoreRequest(f"{item.request.prompt} more", (" she",)), item.factors)

    def read(self, item, response):
        return Row(item.id, item.factors, {"p": IdentifiedInterval.exact(0.5)})

    def derive(self, rows):
        """What would have followed a missing answer is missing too."""
        lost = [row for row in rows if row.missing and "#" not in row.item_id]
        return [*rows, *(replace(row, item_id=f"{row.item_id}#more") for row in lost)]


def test_failed_question_is_counted_once_where_others_follow(tmp_path):
    backend = FakeBackend(faults=Faults(0.3, ("context_length",), permanent=True), batch_size=1)
    result = Audit({"m": backend}, [Questioning()], db=tmp_path / "a.db").run_sync()
    assert set(backend.asked.values()) == {1}
    [model] = result.models
    first = sum(1 for _ in Levels().items())
    assert 0 < model.failed < first
    assert model.asked + model.failed == len(backend.asked) > first


def test_backend_lacking_a_capability_is_refused_before_asking(tmp_path):
    class Mute(FakeBackend):
        async def describe(self):
            return Description({"backend": "mute"}, frozenset({"generate"}))

    backend = Mute()
    with pytest.raises(ConfigError, match=r"models\.m.*score"):
        audit_of(tmp_path, backend).run_sync()
    assert not backend.asked


class Bare(Backend):
    """No more than a backend must have."""

    def check(self):
        return

    async def describe(self):
        return Description({"backend": "bare"}, frozenset({"score"}))

    async def run(self, batch):
        return await FakeBackend().run(batch)


def test_a_backend_of_three_methods_goes_through_a_whole_audit(tmp_path):
    audit = audit_of(tmp_path, Bare(), limit=30)
    assert asyncio.run(dry_run_audit(audit)).models[0].requests == 30
    result = audit.run_sync()
    assert result.complete
    assert result.models[0].asked == 30
    assert asyncio.run(dry_run_audit(audit)).models[0].cached == 30


CONFIG = """
import os, sys
sys.path.insert(0, {tests!r})
from audit import Audit
from audit.report.figures import Figures
from test_run import SUITE, stereotyped
from backends.stand_ins.fake import FakeBackend

class Journal(FakeBackend):
    '''Notes on disk what it answers, before it answers.'''
    async def run(self, batch):
        answers = await super().run(batch)
        with open({journal!r}, "a") as journal:
            for request in batch:
                print(hash((request.prompt, request.continuations)), file=journal)
            journal.flush()
            os.fsync(journal.fileno())
        return answers

planted = stereotyped()
audit = Audit(
    {{"m": Journal("stereotyped", score=planted._score, latency=0.1, batch_size=8, max_in_flight=2)}},
    [SUITE], db={db!r}, out={out!r}, limit={limit},
)
"""
LIMIT = 200


def write_config(tmp_path):
    path = tmp_path / "interrupted.py"
    fields = {k: str(tmp_path / f"interrupted.{k}") for k in ("journal", "db", "out")}
    path.write_text(textwrap.dedent(CONFIG).format(tests=os.path.dirname(__file__), limit=LIMIT, **fields))
    return path, fields


def start(path):
    command = [sys.executable, "-m", "audit.cli", "run", str(path), "--json"]
    env = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def lines(path):
    return open(path).read().split() if os.path.exists(path) else []


def test_a_killed_run_resumes_where_it_stopped(tmp_path):
    path, fields = write_config(tmp_path)
    run = start(path)
    while len(lines(fields["journal"])) < 60:
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.01)
    run.kill()
    run.communicate(timeout=60)
    assert run.returncode == -signal.SIGKILL
    before = lines(fields["journal"])
    assert len(before) < LIMIT
    with Store.open(fields["db"]) as store:
        kept = store.stats()["answers"]
    assert kept > 0

    output, errors = start(path).communicate(timeout=120)
    resumed = AuditResult.from_report(output.splitlines()[-1])
    asked = Counter(lines(fields["journal"]))
    twice = sum(count - 1 for count in asked.values())
    assert len(asked) == LIMIT
    assert twice <= 16, errors  # in flight at the kill: 2 batches of 8

    whole = Audit({"m": stereotyped()}, [SUITE], db=tmp_path / "whole.db", limit=LIMIT).run_sync()
    assert same(resumed, AuditResult.from_report(json_report(whole)))


def test_examples_lead_only_to_figures_that_rest_on_them(tmp_path):
    suite = OccuGender(("explicit",), debiasing=(1, 2, 3))
    result = Audit({"m": stereotyped()}, [suite], db=tmp_path / "a.db", limit=80).run_sync()
    by_id = {m.id: m for m in result.measures}
    assert all(example.figures for example in result.examples)
    effects = 0
    for example in result.examples:
        for figure in (by_id[i] for i in example.figures):
            where = figure.where
            if "of" in where:  # the ± over templates of one condition
                where = {**where, "debiasing": where["of"]}
            for factor, level in where.items():
                if factor in example.factors:
                    assert example.factors[factor] == level
            if figure.measure == "effect":
                effects += 1
                if "instruction" in figure.where:
                    assert example.factors["debiasing"] in (None, figure.where["instruction"])
                else:
                    assert example.factors["abstraction"] in (None, figure.where["degree"])
    assert effects
    with_examples = {i for example in result.examples for i in example.figures}
    assert {m.id for m in result.measures if m.n_items} <= with_examples
