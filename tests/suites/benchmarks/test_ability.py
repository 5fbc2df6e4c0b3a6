"""General ability: nats per token of plain passages, and the questions of a file."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from backends.base import ScoreRequest
from backends.errors import ConfigError
from suites import GeneralAbility
from suites.common.data_files import load
from tests.suites.benchmarks.invented import figures, value

PASSAGES = load("plain_passages").content["passages"]
QUESTION = {"question": "Two and two?", "choices": ["three", "four"], "answer": 1}


def written(path: Path, *entries: object) -> Path:
    file = path / "questions.jsonl"
    file.write_text("".join((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in entries))
    return file


def test_nats_per_token_is_the_mean_over_passages() -> None:
    lengths = {passage["text"]: len(passage["text"].split(" ")) for passage in PASSAGES}
    found = figures(
        GeneralAbility(), lambda prompt, text: -3.0 * lengths[text] if "comet" in text else -2.0 * lengths[text]
    )
    assert value(found, "nats_per_token", kind="passage") == pytest.approx((3 + 23 * 2) / 24)


def test_a_question_lists_its_choices_or_scores_their_texts(tmp_path: Path) -> None:
    file = written(tmp_path, QUESTION)
    *_, letter = GeneralAbility(questions=file).items()
    assert letter.request == ScoreRequest("Two and two?\n(a) three\n(b) four\nAnswer:", (" (a)", " (b)"))
    *_, text = GeneralAbility(questions=file, answers="text").items()
    assert text.request == ScoreRequest("Two and two?\nAnswer:", (" three", " four"))


def test_accuracy_is_the_share_of_right_answers(tmp_path: Path) -> None:
    entries = [{**QUESTION, "answer": place} for place in (0, 1, 1, 1)]
    suite = GeneralAbility(questions=written(tmp_path, *entries))
    found = figures(suite, lambda prompt, text: -1.0 if text == " (b)" else -2.0)
    assert value(found, "accuracy", kind="question") == 0.75
    tie = figures(suite, lambda prompt, text: math.log(0.5))
    assert tie["accuracy", (("kind", "question"),)].missing == 4


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        {"question": "Q", "choices": ["a", "b"]},
        {**QUESTION, "answer": 2},
        {**QUESTION, "answer": "B"},
        {**QUESTION, "choices": ["four", "four"]},
    ],
)
def test_a_line_that_is_no_question_is_refused_with_its_number(tmp_path: Path, line: object) -> None:
    with pytest.raises(ConfigError, match="line 2") as caught:
        GeneralAbility(questions=written(tmp_path, QUESTION, line))
    assert caught.value.field == "questions"


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    for file in (written(tmp_path, ""), tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ConfigError) as caught:
            GeneralAbility(questions=file)
        assert caught.value.field == "questions"
