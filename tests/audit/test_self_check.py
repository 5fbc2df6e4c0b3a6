"""A run that asks some of its own questions twice: noise widens the figures, another model's answers do not count."""

from __future__ import annotations

import asyncio

import pytest

from audit import Audit
from audit.prepare.forecast.estimate import dry_run_audit
from audit.report.figures import Figures
from audit.report.phrases.next_steps import next_steps
from audit.report.phrases.summary import summary
from backends.base import ChecksMade
from suites import OccuGender
from tests.audit.mixed_model import MixedBackend

SUITE = OccuGender(
    ("explicit",), expressions={"explicit": {"male": ["Male"], "female": ["Female"], "diverse": ["Non"]}}
)


def config(backend, folder, limit=400):
    return Audit({"m": backend}, [SUITE], db=folder / "a.db", out=folder / "out", limit=limit)


def audited(backend, folder, limit=400):
    return config(backend, folder, limit).run_sync()


def cautions(result) -> str:
    return " ".join(s.text for s in summary(Figures(result)) if s.kind == "caution")


def test_one_model_repeats_itself_and_what_was_checked_is_said_once(tmp_path):
    backend = MixedBackend()
    backend.made = ChecksMade(prompts=4, questions=12, draws=96)
    estimate = asyncio.run(dry_run_audit(config(MixedBackend(), tmp_path))).models[0]
    result = audited(backend, tmp_path)
    (check,) = result.self_checks
    assert result.complete
    assert len(backend.seen) == 400 + check.asked_again
    assert (estimate.requests, estimate.asked_again) == (400, check.asked_again)
    assert (check.disagreed, check.unanswered, check.noise) == (0, 0, 0.0)
    assert all(m.bound_low == m.bound_high for m in result.measures if m.value is not None)
    assert (
        f"answers differently to different prompts, repeats itself ({check.asked_again} questions asked again) and "
        "draws words as often as it claims on 12 of your questions. We cannot see a changed prompt"
    ) in cautions(result)
    again = MixedBackend()
    assert audited(again, tmp_path).self_checks[0].asked_again == check.asked_again
    assert again.seen == []


def test_repeats_come_late_and_are_spread(tmp_path):
    backend = MixedBackend()
    audited(backend, tmp_path, 900)
    first, gaps = {}, []
    for number, request in enumerate(backend.seen):
        if request in first:
            gaps.append(number - first[request])
        first.setdefault(request, number)
    assert len(gaps) == len(backend.seen) - 900 >= 12
    assert max(gaps) > 100


def test_noise_widens_the_figures_by_no_more_than_scores_move(tmp_path):
    exact = audited(MixedBackend(), tmp_path / "exact")
    noisy = audited(MixedBackend(noise=0.1), tmp_path / "noisy")
    (check,) = noisy.self_checks
    assert noisy.complete
    assert 0.01 < check.noise <= check.largest_move
    pairs = [(a, b) for a, b in zip(noisy.measures, exact.measures, strict=True) if b.measure == "p_female"]
    assert all(a.bound_low < b.value < a.bound_high for a, b in pairs)
    assert "which its intervals hold" in cautions(noisy)


@pytest.mark.parametrize(
    "foreign",
    [
        lambda number, drawn: 100 <= number < 350,
        lambda number, drawn: drawn < 0.5,
        lambda number, drawn: number > 250,
    ],
)
def test_answers_of_another_model_are_seen_quarantined_and_asked_again(foreign, tmp_path):
    result = audited(MixedBackend(foreign), tmp_path)
    (check,) = result.self_checks
    assert check.disagreed
    assert check.contradicted
    assert not result.complete
    assert all(m.value is None for m in result.measures)
    assert f"{check.disagreed} of {check.asked_again} questions asked a second time" in " ".join(result.problems())
    assert "We checked" not in cautions(result)
    honest = MixedBackend()
    later = audited(honest, tmp_path)
    assert later.complete
    assert len(honest.seen) >= 400
    assert not later.self_checks[0].contradicted


def test_a_failed_check_of_the_backend_is_said_and_nothing_counts(tmp_path):
    class Contradicted(MixedBackend):
        async def verify_identity(self):
            self.unverified_since, self.unverified_reason = 0.0, "the words drawn do not fit its lists"

    result = audited(Contradicted(), tmp_path)
    figures = Figures(result)
    said = " ".join([cautions(result), *result.problems(), *next_steps(figures)])
    assert result.self_checks[0].contradicted
    assert not result.complete
    assert "the words drawn do not fit its lists; what was stored" in said
    assert "Find out why the answers of m are quarantined" in said
    assert "We checked" not in said
    assert "again to ask" not in said
