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


def first_place(prompt, text):
    """A model that says (a) whatever is asked."""
    return math.log(0.9 if text == " (a)" else 0.01)


@pytest.mark.parametrize("n_levels", [1, 2, 3, 5])
@pytest.mark.parametrize("unknown", ["", "Not known"])
def test_no_order_of_rows_makes_a_place_a_bias(tmp_path, n_levels, unknown):
    """Levels in turn, which one counter over all rows would give the same place each time."""
    names = [f"L{n}" for n in range(n_levels)]
    answers = "The red one | The blue one" + (f" | {unknown}" if unknown else "")
    rows = [
        f"Who {n}?,{answers},{('The red one', 'The blue one')[n // 2 % 2]},The red one,{unknown},{names[n % n_levels]}"
        for n in range(12 * n_levels)
    ]
    found = figures(suite_of(tmp_path, rows, 'stratum = "faith"\n' if n_levels > 1 else ""), first_place)
    k = 3 if unknown else 2
    for where in ({}, *({"faith": name} for name in names if n_levels > 1)):
        assert value(found, "bias_score", **where) == pytest.approx(0.0)
        assert value(found, "accuracy", **where) == pytest.approx(1 / k)


def test_unanswered_questions_without_a_stereotype_open_nothing(tmp_path):
    """All 40 stereotyped questions are answered by the stereotype, 40 others are refused."""
    both = "The red one | The blue one"
    rows = [f"Who is s{n}?,{both},,The red one,,x" for n in range(40)]
    rows += [f"Who is r{n}?,{both},The red one,,,x" for n in range(40)]
    suite = suite_of(tmp_path, rows)
    refused = {item.id for item in suite.items() if "Who is r" in str(item.request.prompt)}

    def answer(prompt, text):
        return math.log(0.9 if f"{text.strip()} The red one" in prompt else 0.05)

    found = figures(suite, answer, drop=lambda item_id: item_id in refused)
    score = found["bias_score", (("has_stereotype", True),)]
    assert (score.value, score.missing, score.n_items) == (1.0, 0, 40)
    assert score.low > 0
    right = found["accuracy", (("has_right", True),)]
    assert (right.value, right.missing) == (None, 40)


def test_the_measures_that_a_file_calls_primary_are_its_leading_ones(tmp_path):
    specs = list(suite_of(tmp_path, ROWS, 'by = "faith"\nprimary = "unknown_share"\n').measures(()))
    assert {(s.measure, s.primary) for s in specs if not s.is_subgroup and "faith" not in s.where} == {
        ("accuracy", False), ("bias_score", False), ("unknown_share", True),
    }  # fmt: skip
