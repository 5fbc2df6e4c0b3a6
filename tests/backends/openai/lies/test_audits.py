"""Lies that begin when a whole audit is under way: no wrong score is accepted in a run that names no problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit import Audit
from audit.prepare.forecast.estimate import dry_run_audit
from audit.report.phrases.checks.self_checks import self_check_sentences
from audit.results import SelfCheck
from backends.openai import OpenAIBackend
from tests.backends.openai.lies.audits import Questions, audit_trials
from tests.backends.openai.lies.costs import cost
from tests.backends.openai.lies.direct import ask_directly
from tests.backends.openai.lies.server import MODEL, Style, WordServer


def test_an_honest_server_agrees_with_itself() -> None:
    (outcome,) = audit_trials("honest", "lists", range(1), 100)
    assert (outcome.ended, outcome.wrong, outcome.disagreed) == ("complete", 0, 0)
    assert outcome.asked_again == 25
    assert outcome.exact > 200


async def test_a_dry_run_counts_what_checking_takes(tmp_path: Path) -> None:
    async with WordServer("chat", seed=1).running() as server:  # one draw a request

        def backend() -> OpenAIBackend:
            return OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path)

        def audit(backend: OpenAIBackend) -> Audit:
            return Audit({"m": backend}, [Questions("chat", 40)], db=tmp_path / "a.db", out=tmp_path / "out")

        first = backend()
        (estimate,) = (await dry_run_audit(audit(first))).models
        probed = server.requests
        result = await audit(backend()).run()
    assert probed == estimate.probe_requests
    (check,) = result.self_checks
    again = check.asked_again
    # A draw comes with each list: of the questions, of those asked again, and of those compared at the end.
    assert check.draws >= 40
    assert check.drawn_probability is not None
    assert check.unseen_factor is None or check.unseen_factor > 2
    (said,) = [sentence for sentence in self_check_sentences([check]) if "tokens drawn after" in sentence]
    assert f"{check.draws} tokens drawn after its questions fit its scores" in said
    assert (estimate.requests, estimate.asked_again) == (result.models[0].asked, again) == (40, 10)
    more = server.requests - probed - 40 - again - estimate.checking_requests
    # The draws of one honest run in 50 do not fit at first: 300 more follow those beside lists, 15 those without. Up to
    # 60 are planned after questions where an audited word was drawn that its list leaves out, if there are any.
    assert any(drawn_anew - 62 <= more <= drawn_anew + 2 for drawn_anew in (0, 15, 300, 315))
    assert first.checking_requests(2000, 2000) > 0


@pytest.mark.parametrize(("style", "each"), [("echo", 4), ("ids", 3)])
async def test_one_of_three_separate_is_asked_again(style: Style, each: int, tmp_path: Path) -> None:
    async with WordServer(style, seed=0).running() as server:
        probing, backend = (
            OpenAIBackend(server.base_url, model=MODEL, api_key_env=None, probe_folder=tmp_path) for _ in range(2)
        )
        ask_directly(probing, server)
        await probing.describe()
        audit = Audit({"m": probing}, [Questions(style, 40)], db=tmp_path / "b.db", out=tmp_path / "out")
        (estimate,) = (await dry_run_audit(audit)).models
        ask_directly(backend, server)
        result = await Audit({"m": backend}, [Questions(style, 40)], db=tmp_path / "a.db", out=tmp_path / "out").run()
    (check,) = result.self_checks
    assert result.complete
    assert (check.asked_again, check.disagreed, check.one_of_several) == (10, 0, True)
    # An echo of the prompt alone and one request a continuation; one of those is repeated (planned with the prompt).
    assert estimate.calls == 40 * each + 10 * (2 if style == "echo" else 1)
    more = backend.usage.requests - 40 * each - 10 - backend.checking_requests(40, 50)
    # Later tokens are compared after at most ten questions, some of which have none. One honest run in 50 draws anew.
    assert any(drawn_anew - 10 <= more <= drawn_anew + 2 for drawn_anew in (0, 10, 20, 30))
    said = " ".join(self_check_sentences([check]))
    assert "10 questions asked a second time with one of their continuations got the same answer" in said
    assert f"up to {100 * check.foreign_at_most:.1f} % of all continuations' scores" in said
    assert ("no tokens drawn after its questions could be compared" in said) == (check.draws == 0)


def test_lists_without_some_audited_words_are_noticed() -> None:
    (outcome,) = audit_trials("audited women's words left out", "chat", range(1, 2), 160)
    assert outcome.ended != "complete"


@pytest.mark.parametrize("style", ["echo", "ids"])
def test_false_later_tokens_are_noticed(style: Style) -> None:
    (outcome,) = audit_trials("rows of an audited answer's later tokens", style, range(1), 40)
    assert "later tokens" in outcome.ended


@pytest.mark.parametrize("style", ["lists", "echo"])
def test_another_model_for_one_token_answers_is_noticed(style: Style) -> None:
    (outcome,) = audit_trials("another model for audited answers of one token", style, range(1), 40)
    assert "longer answers" in outcome.ended


@pytest.mark.parametrize("seed", [0, 1, 2])  # too little above their bounds for draws to show it each time
def test_what_hidden_words_may_have_is_stated(seed: int) -> None:
    (outcome,) = audit_trials("audited women's words left out", "lists", range(seed, seed + 1), 160)
    if outcome.ended == "complete":
        assert outcome.false_bounds > 0
        assert outcome.above_bounds / 160 < outcome.above_bounds_at_most < 0.15


def test_the_report_says_what_hidden_words_may_have() -> None:
    check = SelfCheck(
        model="m", asked_again=60, unanswered=0, disagreed=0, rate_low=0, rate_high=0.06, foreign_at_most=0.07,
        noise=0, largest_move=0, draws=200, drawn_probability=0.2, left_out_at_most=0.0312,
    )  # fmt: skip
    assert "only if they had more than 3.1 % together" in " ".join(self_check_sentences([check]))
    none = check.model_copy(update={"left_out_at_most": 0.0})
    assert "audited words are not in its lists" not in " ".join(self_check_sentences([none]))


def test_the_report_says_where_no_draws_were_compared() -> None:
    check = SelfCheck(
        model="m", asked_again=60, unanswered=0, disagreed=0, rate_low=0, rate_high=0.06, foreign_at_most=0.07,
        noise=0, largest_move=0,
    )  # fmt: skip
    assert "no tokens drawn after its questions" in " ".join(self_check_sentences([check]))
    drawn = check.model_copy(update={"draws": 100, "drawn_probability": 0.2})
    assert "no tokens drawn after its questions" not in " ".join(self_check_sentences([drawn]))


@pytest.mark.parametrize(
    ("style", "seed"),
    [
        ("lists", 0),
        ("chat", 1),
        ("echo", 0),
        ("ids", 1),
        *(pytest.param(style, 1, marks=pytest.mark.battery) for style in ("lists", "whole", "echo")),
    ],
)
async def test_checking_2000_questions_takes_400_requests_at_most(style: Style, seed: int) -> None:
    counted = [(await cost(style, seed)).together]
    if counted[0] > 400:  # of honest probes, one in 50 draws anew
        counted.append((await cost(style, seed)).together)
    assert min(counted) <= 400


@pytest.mark.parametrize(
    ("lie", "style"),
    [
        ("another model for 10 % after the probe", "lists"),
        ("another model but for the canary", "chat"),
        ("another model for requests 100 to 350", "lists"),
        ("5 % previous answers", "chat"),
        ("quantised twin for half", "lists"),
        ("canned refusal", "lists"),
        ("leading spaces lost", "lists"),
    ],
)
def test_a_lie_under_way_is_named_or_bounded(lie: str, style: Style) -> None:
    (outcome,) = audit_trials(lie, style, range(1), 160)
    assert outcome.accepted_wrong == 0
    assert outcome.ended != "complete"
