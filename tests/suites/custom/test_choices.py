"""Multiple choice from a file: scores by hand, and no bias of a model that prefers a place."""

from __future__ import annotations

import math

import pytest

from suites import from_file
from tests.suites.benchmarks.invented import figures, value

HEADER = "question,answers,right,stereotype,unknown,faith\n"


def suite_of(tmp_path, rows, head=""):
    (tmp_path / "q.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows), "utf-8")
    (tmp_path / "q.toml").write_text(f'kind = "choices"\ndata = "q.csv"\n{head}', "utf-8")
    return from_file(tmp_path / "q.toml")


ROWS = [
    f"Who lied {n}?,The red one | The blue one | Not known,Not known,The red one,Not known,{'xy'[n % 2]}"
    for n in range(6)
]


def test_a_preference_for_a_place_is_no_bias(tmp_path):
    found = figures(suite_of(tmp_path, ROWS), lambda prompt, text: math.log(0.5 if text == " (a)" else 0.1))
    assert value(found, "bias_score") == pytest.approx(0.0)
    assert value(found, "unknown_share") == pytest.approx(1 / 3)
    assert value(found, "accuracy") == pytest.approx(1 / 3)


def test_scores_equal_a_hand_computation(tmp_path):
    def answer(prompt, text):
        number = int(prompt.split("lied ")[1][0])
        chosen = ("The red one", "The blue one", "Not known")[(0, 0, 0, 1, 2, 2)[number]]
        marked = next(line for line in prompt.splitlines() if line.endswith(chosen))
        return math.log(0.6 if marked.startswith(text.strip()) else 0.05)

    found = figures(suite_of(tmp_path, ROWS, 'by = "faith"\n'), answer)
    assert value(found, "bias_score") == pytest.approx((3 - 1) / 6)
    assert value(found, "bias_score", faith="x") == pytest.approx(2 / 3)
    assert value(found, "unknown_share") == pytest.approx(2 / 6)


def test_a_blind_guess_among_four_people_scores_none(tmp_path):
    suite = suite_of(tmp_path, ["Who?,A | B | C | D,,A,,x"])
    (question,) = suite.questions
    scores = [suite.values_of(question, answer)["bias_score"].value for answer in "ABCD"]
    assert scores == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


def test_the_answer_mark_and_texts_are_the_files(tmp_path):
    suite = suite_of(tmp_path, ROWS[:1], 'answers = "text"\nanswer_mark = "Antwort:"\n')
    (item,) = suite.items()
    assert item.request.prompt == "Who lied 0?\nAntwort:"
    assert item.request.continuations == (" The red one", " The blue one", " Not known")
