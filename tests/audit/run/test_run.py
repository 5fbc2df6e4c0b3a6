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
from audit.collect.shutdown import ShutdownRequest
from audit.prepare.forecast.estimate import dry_run_audit
from audit.report.exports.json import json_report
from audit.report.figures import Figures
from audit.report.phrases.next_steps import next_steps
from audit.report.phrases.summary import summary
from audit.report.provenance import provenance
from audit.results import AuditResult
from audit.store import Store
from backends.base import Backend, Description, ScoreRequest, ScoreResponse
from backends.errors import ConfigError
from backends.stand_ins.fake import FakeBackend, Faults, PlantedBias
from suites import GenderPair, OccuGender
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
    assert entry.failures["context_length"] == 500 - entry.answered > 20
    found = figures(result, bias="explicit", dominated_by="female")["p_diverse"]
    assert found.missing > 0
    assert found.value == pytest.approx(0.2, abs=1e-12)


def test_what_would_fail_again_is_not_proposed_again(tmp_path):
    """The first page said both that asking again fails the same way, and to ask again."""
    backend = stereotyped(faults=Faults(0.1, ("server",), permanent=True))
    result = audit_of(tmp_path, backend, limit=500).run_sync()
    (model,) = result.models
    assert model.failed == model.failed_for_good > 20
    said = [sentence.text for sentence in summary(Figures(result))] + list(next_steps(Figures(result)))
    assert not [text for text in said if "Run the audit again" in text or "only what is unanswered" in text]
    assert any("would fail the same way" in text for text in said)


def test_a_lost_row_without_sources_is_no_derived_one(tmp_path):
    backend = FakeBackend("m", faults=Faults(0.3, ("server",), permanent=True), batch_size=1)
    result = Audit({"m": backend}, [Questioning()], db=tmp_path / "a.db").run_sync()
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        every, items = (list(store.runs.read_rows(result.run_id, "m", "questioning", derived=d)) for d in (True, False))
    assert len(every) == len(items) == 2 * sum(1 for _ in Levels().items())


def test_suites_of_one_kind_are_titled_by_their_names(tmp_path):
    suites = {"explicit": OccuGender(bias=("explicit",)), "both": OccuGender()}
    result = Audit({"m": FakeBackend()}, suites, db=tmp_path / "a.db", out=tmp_path / "out", limit=30).run_sync()
    assert [s.title for s in result.suites] == ["OccuGender (explicit)", "OccuGender (both)"]
    alone = Audit({"m": FakeBackend()}, {"mine": OccuGender()}, db=tmp_path / "a.db", out=tmp_path / "out", limit=30)
    assert [s.title for s in alone.run_sync().suites] == ["OccuGender"]


class Levels(Suite):
    """Scored prompts under a factor whose levels are equal in Python, but are not the same level."""

    name = "levels"
    needs = frozenset({"score"})
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


def test_swapped_models_answers_are_quarantined_and_asked_again(tmp_path):
    class Swapped(FakeBackend):
        unverified_since, unverified_reason = None, "another model answers under this name"

        async def verify_identity(self):
            self.unverified_since = self.last_sure

        def drain_ambiguous(self):
            return []

        async def run(self, batch):
            self.last_sure, self.last = time.time(), len(batch)  # the canary was right until the last batch
            return await super().run(batch)

    swapped = Swapped("stereotyped", score=PlantedBias(planted, words, coverage=0.4), batch_size=100, max_in_flight=1)
    result = audit_of(tmp_path, swapped, limit=500).run_sync()
    assert not result.complete
    assert any("another model answers" in problem for problem in result.problems())
    assert result.data_quality[0].failures["not asked"] == swapped.last

    again = stereotyped()
    assert audit_of(tmp_path, again, limit=500).run_sync().complete
    assert 0 < sum(again.asked.values()) == swapped.last < 500


def test_interrupted_run_still_evaluates_what_is_stored(tmp_path):
    whole = Audit({"m": FakeBackend()}, [Questioning()], db=tmp_path / "a.db").run_sync()

    class Stopping(FakeBackend):
        async def run(self, batch):
            stop.request("SIGINT")
            return await super().run(batch)

    class More(Questioning):
        """One more item, before the others."""

        def items(self):
            yield Item("first", ScoreRequest("first", (" she",)), {"level": True})
            yield from super().items()

    async def interrupted():
        nonlocal stop
        stop = ShutdownRequest()
        return await Audit({"m": Stopping()}, [More()], db=tmp_path / "a.db").run(stop=stop)

    stop = None
    result = asyncio.run(interrupted())
    assert result.interrupted
    assert result.data_quality[0].failures == {"not asked": 1}  # what follows from the new answer
    assert result.data_quality[0].answered == whole.data_quality[0].answered + 1


def test_follow_ups_of_a_swapped_models_answers_are_dropped(tmp_path):
    class Swapped(FakeBackend):
        unverified_since, unverified_reason = None, "another model answers under this name"

        async def verify_identity(self):
            self.unverified_since = 0.0

        def drain_ambiguous(self):
            return []

    result = Audit({"m": Swapped()}, [Questioning()], db=tmp_path / "a.db").run_sync()
    first = sum(1 for _ in Levels().items())
    assert result.data_quality[0].failures == {"not asked": first}
    assert result.data_quality[0].n_items == first
    assert all(example.answer is None for example in result.examples)


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


def test_provenance_holds_only_items_with_the_quantity(tmp_path):
    refusing = FakeBackend("b", generate=lambda *_: "I cannot help with that request.")
    models = {"a": FakeBackend("a"), "b": refusing}
    result = Audit(models, [GenderPair()], db=tmp_path / "a.db", limit=40).run_sync()
    with Store.open(tmp_path / "a.db", read_only=True) as store:
        for figure in result.measures[:: len(result.measures) // 20]:
            behind = provenance(store, result, figure.id, 999)["items"]
            quantity = figure.spec.quantity
            assert all(quantity in item["values"] or item["missing"] for item in behind)
            for example in result.examples:
                if figure.id in example.figures:
                    keys = {answer["key"] for item in behind for answer in item["answers"]}
                    assert any(store.answers.inspect(key)["prompt"] == example.prompt for key in keys)
    entry = next(entry for entry in result.data_quality if entry.model == "b")
    assert sum(entry.failures_by.values()) == sum(entry.failures.values()) > 0


class Refusing(OccuGender):
    """Reads every answer about a mostly female occupation as a refusal."""

    def read(self, item, response):
        row = super().read(item, response)
        return replace(row, values={}, missing="refusal") if item.factors["dominated_by"] == "female" else row


def test_unreadable_answers_are_counted_by_group(tmp_path):
    suite = Refusing(("explicit",))
    (entry,) = Audit({"m": stereotyped()}, [suite], db=tmp_path / "a.db", limit=40).run_sync().data_quality
    assert entry.failures == {"refusal": entry.failures_by["female"]}
    assert set(entry.failures_by) == {"female"}


def test_only_items_are_counted_as_bounded(tmp_path):
    class Bounding(FakeBackend):
        async def run(self, batch):
            return [
                ScoreResponse(tuple(replace(s, logprob=None, low=s.high - 1, exactness="bounded") for s in a.scores))
                for a in await super().run(batch)
            ]

    backend = Bounding("b", score=PlantedBias(planted, words, coverage=0.4))
    suite = OccuGender(("explicit",), debiasing=(1, 2, 3))
    (entry,) = Audit({"m": backend}, [suite], db=tmp_path / "a.db", limit=40).run_sync().data_quality
    assert entry.censored == entry.n_items
