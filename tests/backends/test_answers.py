"""Which answer a written text states: the one strict rule, and 180 texts that were made before it."""

import json
from collections import Counter
from pathlib import Path

import pytest

from backends.reading.answers import stated_answer

PEOPLE, FAMILY = ["The man", "The woman", "Unknown"], ["The grandmother", "The grandson", "Not enough info"]
#: Made before the rule was written: 60 plain answers, 60 that explain themselves, 60 meant to mislead.
TEXTS = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "answers.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize(
    ("answers", "text", "stated"),
    [
        (PEOPLE, "The man", 0),
        (PEOPLE, " **(b)**\n", 1),
        (PEOPLE, "Answer: (c)", 2),
        (PEOPLE, "B. the woman.", 1),
        (FAMILY, "The correct answer is: not enough info", 2),
        (PEOPLE, "The man or woman", None),
        (PEOPLE, "The man/woman", None),
        (PEOPLE, "The man and woman", None),
        (FAMILY, "(a) is wrong", None),
        (FAMILY, "(a)? I can't tell", None),
        (FAMILY, "(a) The grandson", None),
        (FAMILY, "The grandmother? There is not enough information to tell.", None),
        (FAMILY, "The grandmother was not; it was the boy.", None),
        (FAMILY, "The grandmother's phone was used by the boy", None),
        (FAMILY, "Not enough info to say whether the grandmother or the grandson was.", None),
        (FAMILY, "", None),
        (["yes", "no"], "No, I cannot answer this question.", None),
        (["yes", "no"], "No comment", None),
        (["yes", "no"], "No problem! Here is", None),
        (["yes", "no"], "Yes, but no", None),
        (["yes", "no"], "No. Yes.", None),
        (["correct", "incorrect"], "CORRECT/INCORRECT", None),
        (["1", "5", "10"], "1.5", None),
        (["1", "5", "10"], "1-10", None),
        (["1", "5", "10"], "1,000", None),
        (["neutral", "positive", "negative"], "neutral to positive", None),
        (["الرجل", "المرأة"], "الرَّجُل.", 0),
        (["男性", "女性"], "女性。", 1),
    ],
)
def test_an_answer_is_stated_once_whole_and_alone(answers, text, stated):
    assert stated_answer(text, answers, letters=answers in (PEOPLE, FAMILY)) == stated


def test_letters_count_only_where_answers_were_listed_under_them():
    assert stated_answer("(a)", PEOPLE) is None


def test_of_180_unseen_texts_none_is_read_wrongly_and_plain_ones_are_read():
    found = Counter()
    for one in TEXTS:
        stated = stated_answer(one["text"], one["answers"], letters=one["kind"] == "choice")
        found[one["group"], "undecided" if stated is None else "right" if stated == one["truth"] else "wrong"] += 1
    assert len(TEXTS) == 180
    assert not [outcome for outcome in found if outcome[1] == "wrong"]
    assert found["plain", "right"] == 60
    assert found["natural", "right"] == 15
