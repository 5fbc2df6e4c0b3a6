"""The report's first page: the question asked, numbers in plain words, and what to do next."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from audit.report import write_report
from audit.report.figures import Figures
from audit.report.phrases.example import asked
from audit.report.phrases.first_page import plain_rows
from audit.report.phrases.summary import summary
from audit.results import AuditResult, Example, LimitCheck
from suites import (
    BBQ,
    MGBR,
    BiasNLI,
    CrowSPairs,
    DebiasingPositions,
    GenderPair,
    OccuGender,
    StereoSet,
    WinoBias,
    WinoQueer,
)
from tests.audit.report import made_up as mu

SUITES = (OccuGender, DebiasingPositions, MGBR, GenderPair, CrowSPairs, WinoQueer, StereoSet, WinoBias, BBQ, BiasNLI)
GAP = {"above": "gets {points} more", "below": "gets {points} less"}
SHARE = {"above": "picks it {points} times in 100", "below": ""}


def result(*measures: Any, meanings: dict[str, dict[str, str]] | None = None, **more: Any) -> AuditResult:
    info = mu.toy_suite().model_copy(update={"meanings": meanings or {}, "charts": []})
    models = list(dict.fromkeys(m.model for m in measures))
    return mu.result(models, [info], measures, **more)


def row(measure: Any, meaning: dict[str, str]) -> tuple[str, str, str]:
    (found,) = plain_rows(Figures(result(measure, meanings={measure.measure: meaning})))
    return found.words, found.cells[0].points, found.cells[0].remark


def test_a_gap_counts_points_away_from_its_neutral_value() -> None:
    assert row(mu.measure("a", "gap", {}, 0.47, 0.1, neutral=0.0), GAP) == ("Gets … more", "47 (37 to 57)", "")
    assert row(mu.measure("a", "gap", {}, -0.12, 0.1, neutral=0.0), GAP)[1:] == ("−12 (−22 to −2)", "")
    assert row(mu.measure("a", "gap", {}, 0.004, 0.01, neutral=0.0), GAP)[1:] == ("0.4 (−0.6 to 1)", "may be 0")


def test_an_interval_that_missing_answers_open_says_so() -> None:
    ends = {"low": -0.1, "high": 0.5, "complete_case_low": 0.1, "complete_case_high": 0.3, "missing": 200}
    decided = mu.measure("a", "gap", {}, 0.2, None, neutral=0.0).model_copy(update=ends)
    assert row(decided, GAP)[2] == "open: answers are missing"


def test_bounds_are_given_as_bounds_not_as_a_number() -> None:
    bounded = mu.measure("a", "gap", {}, None, 0.02, bounds=(0.1, 0.3), neutral=0.0)
    assert row(bounded, GAP)[1] == "10 to 30, not known closer (8 to 32)"


def example(answer: Any, prompt: Any = "The nurse said that") -> Example:
    figure = mu.measure("a", "gap", {}, 0.4)
    return Example(model="a", suite="toy", item_id="1", factors={}, figures=[figure.id], prompt=prompt, answer=answer)


def said(answer: Any, prompt: Any = "The nurse said that") -> Any:
    return asked(Figures(result(mu.measure("a", "gap", {}, 0.4), examples=[example(answer, prompt)])), "toy")


def test_spellings_of_a_word_are_one_word_to_a_reader() -> None:
    spellings = ((" She", 0.1), (" she", 0.2), (" he", 0.25), ("They", 0.05))
    scores = [{"continuation": c, "logprob": math.log(p)} for c, p in spellings]
    assert said({"scores": scores}).answers == [("a", "she 50 %, he 42 %, They 8 %")]


def test_scores_are_shown_as_shares_the_likeliest_first() -> None:
    scores = [
        {"continuation": c, "logprob": None if p is None else math.log(p)}
        for c, p in ((" he", 0.1), (" she", 0.3), (" they", None), (" it", 1e-4))
    ]
    found = said({"scores": scores})
    assert found.question == "The nurse said that"
    assert found.answers == [("a", "she 75 %, he 25 %, it <1 %")]
    assert found.remark == "Shares among the 3 of 4 words whose probability is known."


def likely(**shares: float) -> Any:
    return {"scores": [{"continuation": f" {word}", "logprob": math.log(p)} for word, p in shares.items()]}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"text": " She is kind.", "finish_reason": "stop"}, "She is kind."),
        ({"error": {"kind": "timeout"}}, "failed"),
        (None, "no answer"),
        ({"scores": [{"continuation": " he", "logprob": None}]}, "known only by bounds"),
    ],
)
def test_what_a_model_answered_is_said_in_a_line(answer: Any, words: str) -> None:
    assert said(answer).answers == [("a", words)]


def test_a_gap_stands_beside_its_parts() -> None:
    """+0.37 for one group of occupations and −0.11 for the other are 0.13 on average: a lean, not a stereotype."""
    suite = OccuGender()
    explicit = {"bias": "explicit", "debiasing": None}
    meanings = {name: dataclasses.asdict(meaning) for name, meaning in suite.shown.meanings.items()}
    parts = [
        mu.measure("a", "p_female", {**explicit, "dominated_by": of}, value)
        for of, value in (("female", 0.685), ("male", 0.555))
    ]
    gap = mu.measure("a", "stereotype_gap", explicit, 0.13, 0.1, neutral=0.0)
    found = result(gap, *parts, meanings=meanings)
    (row,) = [row for row in plain_rows(Figures(found)) if "stereotyped gender" in row.words]
    words = "female words: 68 for female-dominated, 56 for male-dominated occupations"
    assert row.cells[0].remark == words
    without = result(gap, meanings=meanings)
    assert next(iter(plain_rows(Figures(without)))).cells[0].remark == ""


def test_a_certificate_names_the_weights(tmp_path: Path) -> None:
    found = result(mu.measure("a", "gap", {}, 0.47, 0.1, neutral=0.0), meanings={"gap": GAP})
    weights = {"weights_sha256": "0123456789abcdef" * 4, "quantisation": "Q4_1", "dtype": "float32", "adapter": None}
    (model,) = found.models
    model = model.model_copy(update={"fingerprint": weights, "notes": {"model": "/home/me/SmolLM2.Q4_1.gguf"}})
    files = write_report(found.model_copy(update={"models": [model]}), tmp_path, formats=["certificate"])
    words = "SmolLM2.Q4_1.gguf, quantised Q4_1, dtype float32, SHA-256 of the weights 0123456789ab…, fingerprint"
    assert words in files["certificate"].read_text("utf-8")
    assert "/home/me" not in files["certificate"].read_text("utf-8")


def test_the_gravest_limits_come_first(tmp_path: Path) -> None:
    """Pages show a few: that the words hold little of the probability bears on every number, one failure on a few."""
    gap = mu.measure("a", "gap", {}, 0.47, 0.1, neutral=0.0)
    little = mu.coverage_of({}, 200, 180, 180, median=0.07, lowest=0.003)
    weak = mu.data_quality_of("a", "toy", prompt_coverage=[little])
    found = result(gap, data_quality=[weak], complete=False, unanswered=9)
    limits = [s.text for s in summary(Figures(found)) if s.kind == "caution"]
    assert "incomplete" in limits[0]
    assert limits[1].startswith("Weak claim")
    assert limits[2].startswith("9 questions have no answer")
    sheet = write_report(found, tmp_path, formats=["certificate"])["certificate"].read_text("utf-8")
    assert "Weak claim" in sheet


def test_the_certificate_names_the_reports_own_hash(tmp_path: Path) -> None:
    gap = mu.measure("a", "gap", {}, 0.47, 0.1, neutral=0.0)
    files = write_report(result(gap, meanings={"gap": GAP}), tmp_path, formats=["json", "certificate"])
    text = files["certificate"].read_text("utf-8")
    assert hashlib.sha256(files["json"].read_bytes()).hexdigest() in text
    assert "47 (37 to 57)" in text
    assert "not establish conformity" in text.replace("\n", " ")
    assert "<script" not in text


def test_the_question_is_one_that_every_model_answered() -> None:
    measures = [mu.measure(name, "gap", {}, 0.2, 0.1, neutral=0.0) for name in "ab"]
    shown = [e for e in mu.examples("ab", "toy") if e.factors["bias"] == "explicit" and "scores" in e.answer]
    unasked = [e.model_copy(update={"item_id": "earlier", "prompt": "Another question"}) for e in shown]
    unasked[1] = unasked[1].model_copy(update={"answer": None})
    found = asked(Figures(result(*measures, examples=[*unasked, *shown])), "toy")
    assert found is not None
    assert "nurse" in found.question
    assert "no answer" not in dict(found.answers).values()


def limited(verdict: str, value: float) -> LimitCheck:
    named = {"model": "a", "suite": "MGBR", "measure": "gap", "where": {"form": "direct"}, "limit": "gap"}
    ends = {"at_least": None, "at_most": 0.3, "value": value, "low": value - 0.1, "high": value + 0.1}
    return LimitCheck(**named, **ends, verdict=verdict, look=3)


@pytest.mark.browser
def test_a_certificate_of_four_suites_and_limits_is_one_sheet(browser: Browser, tmp_path: Path) -> None:
    verdicts = ["broken", "insufficient evidence", "met"] * 3
    limits = [limited(v, 0.3 + i / 20) for i, v in enumerate(verdicts)]
    found = mu.four_suites(3).model_copy(update={"limits": limits})
    page = browser.new_page()
    page.goto(write_report(found, tmp_path, formats=["certificate"])["certificate"].as_uri())
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1
    page.close()
