"""A run that asks some of its own questions twice: a second model among the answers is seen, and said."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from audit import Audit
from audit.collect import Outcome
from audit.prepare.forecast.estimate import dry_run_audit
from audit.report.figures import Figures
from audit.report.phrases import next_steps, summary
from audit.report.phrases.checks.problems import failed_requests
from audit.store import Store
from backends.base import DrawsCompared
from backends.errors import BackendError
from backends.stand_ins.fake import FakeBackend
from suites import OccuGender
from tests.audit.mixed_model import Foreign, MixedBackend

SUITE = OccuGender(
    ("explicit",), expressions={"explicit": {"male": ["Male"], "female": ["Female"], "diverse": ["Non"]}}
)


def audited(backend, folder, limit=400):
    return Audit({"m": backend}, [SUITE], db=folder / "a.db", out=folder / "out", limit=limit).run_sync()


def never(number: int, in_flight: int, drawn: float) -> bool:
    return False


def test_one_model_agrees_with_itself_and_the_rest_is_said(tmp_path):
    backend = MixedBackend(never)
    result = audited(backend, tmp_path)
    (check,) = result.self_checks
    assert result.complete
    assert check.asked_again == 60
    assert (check.disagreed, check.unanswered, check.noise) == (0, 0, 0.0)
    assert backend.n_requests == 400 + check.asked_again
    assert result.models[0].asked == 400
    said, *_ = [s.text for s in summary(Figures(result)) if s.kind == "caution"]  # the page folds all but five
    assert f"{check.asked_again} questions asked a second time got the same answer" in said
    assert f"up to {100 * check.foreign_at_most:.1f} % of all answers" in said
    assert "If which model answers does not depend on the question" in said
    assert all(m.bound_low == m.bound_high for m in result.measures if m.value is not None)


def test_a_doubt_about_hidden_words_bounds_later_runs_too(tmp_path):
    backend = MixedBackend(never)
    backend.draws_compared = DrawsCompared(200, 0.1, None, left_out=0.01, doubted=True)
    first, later = audited(backend, tmp_path), audited(MixedBackend(never), tmp_path)
    assert (first.models[0].asked, later.models[0].asked) == (400, 0)
    for result in (first, later):
        (check,) = result.self_checks
        assert (check.left_out_doubted, check.left_out_at_most) == (True, 0.01)
        assert "more often than their last rank allows" in " ".join(s.text for s in summary(Figures(result)))
    figures = [
        [(m.bound_low, m.value, m.bound_high) for m in r.measures if m.value is not None] for r in (first, later)
    ]
    assert figures[0] == figures[1]
    assert all(low < value < high for low, value, high in figures[0])


def doubting(left_out=0.01):
    backend = MixedBackend(never)
    backend.draws_compared = DrawsCompared(200, 0.1, None, left_out=left_out, doubted=True)
    return backend


def bounds(result):
    return [(m.bound_low, m.bound_high) for m in result.measures if m.value is not None]


@pytest.mark.parametrize("left_out", [(0.01, None), (None, 0.01), (0.004, 0.01)])
def test_a_doubt_of_a_part_bounds_the_joined_report(left_out, tmp_path):
    def audited(backend, name, **options):
        return Audit({"m": backend}, [SUITE], db=tmp_path / name, out=tmp_path / "out", limit=200, **options).run_sync()

    for number, share in enumerate(left_out, 1):
        audited(MixedBackend(never) if share is None else doubting(share), f"{number}.db", shard=(number, 2))
    with Store.open(tmp_path / "all.db") as into:
        for number in (1, 2):
            with Store.open(tmp_path / f"{number}.db", read_only=True) as store:
                into.merge(store)
    joined = audited(MixedBackend(never), "all.db")
    (check,) = joined.self_checks
    assert joined.models[0].asked == 0
    assert (check.left_out_doubted, check.left_out_at_most) == (True, 0.01)
    assert bounds(joined) == bounds(audited(doubting(), "whole.db"))


def test_a_doubt_outlives_a_run_that_ends_before_its_report(tmp_path, monkeypatch):
    def killed(*_):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("audit.run.audit_run.evaluate_suite", killed)
        with pytest.raises(OSError, match="killed"):
            audited(doubting(), tmp_path)
    later = audited(MixedBackend(never), tmp_path)
    assert (later.models[0].asked, later.self_checks[0].left_out_doubted) == (0, True)


def test_second_questions_look_like_the_first_and_come_late(tmp_path):
    backend = MixedBackend(never)
    audited(backend, tmp_path)
    seen, gaps = {}, []
    for number, request in enumerate(backend.batches):
        if request in seen:
            gaps.append(number - seen[request])
        seen.setdefault(request, number)
    assert len(gaps) == backend.n_requests - 400
    assert max(gaps) > 100
    assert sum(gap > 10 for gap in gaps) > 0.7 * len(gaps)


def test_a_dry_run_counts_what_is_asked_again(tmp_path):
    audit = Audit({"m": MixedBackend(never)}, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", limit=400)
    (estimate,) = asyncio.run(dry_run_audit(audit)).models
    check = audited(MixedBackend(never), tmp_path).self_checks[0]
    assert (estimate.requests, estimate.asked_again) == (400, check.asked_again)


def test_the_same_config_run_again_asks_nothing(tmp_path):
    first = audited(MixedBackend(never), tmp_path)
    again = MixedBackend(never)
    second = audited(again, tmp_path)
    assert again.n_requests == 0
    assert second.self_checks == first.self_checks


def test_a_store_without_second_answers_is_not_asked_again(tmp_path):
    class Plain(FakeBackend):  # the same fingerprint, as an earlier version left it
        pass

    Audit({"m": Plain("mixed")}, [SUITE], db=tmp_path / "a.db", out=tmp_path / "out", limit=100).run_sync()
    backend = MixedBackend(never)
    result = audited(backend, tmp_path, 100)
    assert (backend.n_requests, result.self_checks[0].asked_again, result.complete) == (0, 0, True)


LIES: dict[str, Foreign] = {
    "requests 100 to 350": lambda number, in_flight, drawn: 100 <= number < 350,
    "half of the traffic": lambda number, in_flight, drawn: drawn < 0.5,
    "a tenth of the traffic": lambda number, in_flight, drawn: drawn < 0.1,
    "only at six in flight": lambda number, in_flight, drawn: in_flight >= 6,
    "from the middle on": lambda number, in_flight, drawn: number > 250,
}


@pytest.mark.parametrize("lie", LIES)
def test_another_model_among_the_answers_is_seen_and_said(lie, tmp_path):
    result = audited(MixedBackend(LIES[lie]), tmp_path)
    (check,) = result.self_checks
    assert check.disagreed
    assert not result.complete
    assert f"{check.disagreed} of {check.asked_again} questions" in " ".join(result.problems)
    texts = [s.text for s in summary(Figures(result)) if s.kind == "caution"]
    assert any("another model's" in text for text in texts[:5])
    assert all(m.bound_low < m.bound_high for m in result.measures if m.value is not None)


def test_the_bounds_hold_the_honest_figures(tmp_path):
    truth = audited(MixedBackend(never), tmp_path / "honest")
    mixed = audited(MixedBackend(LIES["a tenth of the traffic"], seed=3), tmp_path / "mixed")
    honest = {m.figure.key: m for m in truth.measures if not m.is_subgroup}
    held = [m.bound_low <= honest[m.figure.key].value <= m.bound_high for m in mixed.measures if not m.is_subgroup]
    assert sum(held) >= 0.95 * len(held)


def test_contradicted_answers_are_asked_again_and_still_said(tmp_path):
    audited(MixedBackend(LIES["a tenth of the traffic"]), tmp_path)
    backend = MixedBackend(never)
    result = audited(backend, tmp_path)
    assert result.complete
    assert backend.n_requests == result.self_checks[0].disagreed > 0
    assert any("another model's" in problem for problem in result.problems)


def test_noise_makes_scores_intervals(tmp_path):
    result = audited(MixedBackend(never, noise=0.1), tmp_path)
    assert result.complete
    exact = audited(MixedBackend(never), tmp_path)
    pairs = zip(result.measures, exact.measures, strict=True)
    assert all(
        a.bound_low < b.value < a.bound_high for a, b in pairs if b.value is not None and b.measure == "p_female"
    )
    (said,) = [s.text for s in summary(Figures(result)) if "none of them counts as exact" in s.text]
    within = result.self_checks[0].agreeing_within
    assert within > 0.1
    assert f"up to {within:.2f} nats apart count as the same" in said


def test_an_interrupted_run_asks_again_what_was_awaited(tmp_path):
    before = audited(MixedBackend(never), tmp_path)
    with Store.open(tmp_path / "a.db") as store:
        pairs = store.second_answers.read(before.models[0].fingerprint_id)[:20]
        for pair in pairs:
            asyncio.run(store.second_answers.write(dataclasses.replace(pair, second=None)))
    backend = MixedBackend(never)
    result = audited(backend, tmp_path)
    assert backend.n_requests == 20
    assert {request.prompt for request in backend.batches} <= {item.request.prompt for item in SUITE.items()}
    assert result.self_checks == before.self_checks


class _Contradicted(MixedBackend):
    unverified_reason = "drawn tokens do not fit its lists"

    async def verify_identity(self):
        self.unverified_since = 0.0

    def drain_ambiguous(self):
        return []


def test_quarantined_answers_are_not_said_to_be_checked(tmp_path):
    backend = _Contradicted(never)
    backend.draws_compared, backend.unverified_since = DrawsCompared(200, 0.1, None), None
    result = audited(backend, tmp_path)
    figures = Figures(result)
    (check,) = result.self_checks
    assert (check.contradicted, check.draws, result.complete) == (True, 200, False)
    said = " ".join([*(s.text for s in summary(figures)), *result.problems, *next_steps(figures)])
    assert "drawn tokens do not fit its lists; what was stored" in said
    assert "(quarantined)" in said
    assert "fit its scores" not in said
    assert "got the same answer" not in said
    assert "again to ask" not in said
    assert "find out why those of m are quarantined before you ask again" in said
    assert "Find out why the answers of m are quarantined" in said


class _Silent(FakeBackend):
    """Answers no question about a nurse."""

    async def run(self, batch):
        answers = await super().run(batch)
        failed = BackendError("bad_request", "not this")
        return [failed if "nurse" in str(one.prompt) else answer for one, answer in zip(batch, answers, strict=True)]


def test_failures_beside_a_quarantined_model_are_told_apart(tmp_path):
    backend = _Contradicted(never)
    backend.draws_compared, backend.unverified_since = DrawsCompared(200, 0.1, None), None
    result = Audit(
        {"liar": backend, "silent": _Silent("silent"), "well": FakeBackend("well")},
        [SUITE],
        db=tmp_path / "a.db",
        out=tmp_path / "out",
        limit=400,
    ).run_sync()
    failed = next(entry for entry in result.data_quality if entry.model == "silent").failures["bad_request"]
    assert 0 < failed < 400
    said = " ".join(result.problems)
    assert "400 questions have no answer that counts: find out why those of liar are quarantined" in said
    assert f"{failed} questions of silent have no answer; asking them again unchanged would fail the same way" in said


def test_others_may_be_asked_again_beside_a_quarantined_model():
    outcomes = {
        "liar": [Outcome("liar", items=400, answered=400)],
        "late": [Outcome("late", items=400, cached=100, answered=250, failed=50)],
    }
    first, second = failed_requests(outcomes, 450, ["liar"])
    assert first.startswith("400 questions have no answer that counts: find out why those of liar are quarantined")
    assert second == (
        "50 questions of late have no answer; run the same command again for these models alone to ask them"
    )
    assert [*failed_requests({"late": outcomes["late"]}, 50)] == [
        "50 questions have no answer; run the same command again to ask them"
    ]
