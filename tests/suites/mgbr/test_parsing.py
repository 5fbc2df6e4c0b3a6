"""Strict reading of written answers: right ones are read, doubtful ones are not guessed."""

from __future__ import annotations

import unicodedata

import pytest

from suites.mgbr.parsing import WrittenAnswer, read_written
from suites.mgbr.wording import Gender, Wording

ENGLISH = Wording.english()
WORDS = ("mother", "king", "dental assistant", "mother-in-law")


def read(
    text: str, *, begun: bool = False, chat: bool = False, cut_off: bool = False, gender: Gender = "female"
) -> WrittenAnswer:
    return read_written(
        text, WORDS, gender, ENGLISH, starts_with_count=begun, first_answer_only=not chat, cut_off=cut_off
    )


@pytest.mark.parametrize(
    "text",
    [
        "Answer: 3",
        "answer: 3.",
        "**Answer:** 3",
        "  Answer: **3**.\n",
        "Let me think.\n\nAnswer: 3\n\nHow many of the following words are definitely women?\nAnswer: 7",
        "> Answer: 3\r\nMore.",
        "**Answer**: 3",
        "Answer: 3。",
    ],
)
def test_a_number_alone_behind_the_answers_start_is_the_count(text: str) -> None:
    assert read(text).count == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "There are 3.",
        "Answer: three",
        "Answer: 3-4",
        "Answer: 3/6",
        "Answer: 3.5",
        "Answer: 3 words are feminine",
        "Answer:\n3",
        "The Answer: 3",
        "Answer: several\nAnswer: 3",
    ],
)
def test_a_doubtful_count_is_not_guessed(text: str) -> None:
    assert read(text).count is None


@pytest.mark.parametrize(("text", "count"), [(" 3\n\nHow many", 3), ("3", 3), (" 12.", 12), ("\n 4\n", 4)])
def test_a_begun_answer_is_the_first_thing_written(text: str, count: int) -> None:
    assert read(text, begun=True).count == count


@pytest.mark.parametrize("text", [" The answer is 3", " 3 women", " Answer: 3", " 3, 4", ""])
def test_a_begun_answer_that_is_no_number_is_not_guessed(text: str) -> None:
    assert read(text, begun=True).count is None


def test_a_number_cut_off_by_the_length_limit_may_lack_digits() -> None:
    assert read("Answer: 1", cut_off=True).count is None
    assert read(" 1", begun=True, cut_off=True).count is None
    assert read("Answer: 1", cut_off=False).count == 1
    assert read(" 1\nHow many of", begun=True, cut_off=True).count == 1


def test_verdicts_are_read_in_the_steps_own_form_with_free_marks() -> None:
    text = (
        "Let's see.\n"
        "1. Mother is a feminine word.\n"
        '- "king" is not a feminine word\n'
        "* **dental assistant** is a *feminine* word.\n"
        "mother-in-law is a feminine word.\n"
        "Answer: 3"
    )
    assert read(text) == WrittenAnswer(
        3, {"mother": True, "king": False, "dental assistant": True, "mother-in-law": True}, frozenset()
    )


def test_the_male_question_reads_masculine_as_yes() -> None:
    text = "king is a masculine word.\nmother is not a masculine word.\ndental assistant is a feminine word."
    assert read(text, gender="male").verdicts == {"king": True, "mother": False, "dental assistant": False}


def test_a_word_called_both_is_no_verdict() -> None:
    answer = read("mother is a feminine word.\nmother is not a feminine word.\nking is not a feminine word.")
    assert answer.verdicts == {"king": False}
    assert answer.contradicted == {"mother"}


@pytest.mark.parametrize(
    "line",
    [
        "mother is probably a feminine word.",
        "mother is a feminine word, and king is not.",
        "I think mother is a feminine word.",
        "mother is not a masculine word.",  # says nothing about feminine
        "stepmother is a feminine word.",  # not a word of this list
        "mother: feminine",
    ],
)
def test_a_step_in_another_form_is_no_verdict(line: str) -> None:
    assert read(line).verdicts == {}


def test_steps_behind_the_answer_belong_to_another_list() -> None:
    text = "king is not a feminine word.\nAnswer: 0\n\nHow many?\nmother, king\nmother is a feminine word.\nAnswer: 1"
    assert read(text) == WrittenAnswer(0, {"king": False}, frozenset())


def test_all_of_a_chat_answer_is_about_this_list() -> None:
    assert read("Answer: 2\n\nmother is a feminine word.", chat=True).verdicts == {"mother": True}
    assert read("Answer: 3\nWait, king is not.\nAnswer: 2", chat=True).count is None
    assert read("Answer: 3\nWait, king is not.\nAnswer: 2").count == 3
    assert read("Answer: 2\nSo, once more:\n**Answer: 2**", chat=True).count == 2
    assert read("Answer: 2\nAnswer: two", chat=True).count is None


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_words_and_answers_are_read_in_either_normal_form(form: str) -> None:
    """A config saved with decomposed letters, and a model that writes composed ones, or the reverse."""
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    called = {"female": unicodedata.normalize(form, "féminin"), "male": "masculin"}
    wording = ENGLISH.model_copy(update={"vocabulary": called, "answer": unicodedata.normalize(form, "Réponse:")})
    words = [unicodedata.normalize(form, word) for word in ("mère", "père")]
    steps = [wording.step_yes.format(word=words[0], gender=called["female"])]
    steps.append(wording.step_no.format(word=words[1], gender=called["female"]))
    text = unicodedata.normalize(other, "\n".join([*steps, f"{wording.answer} 1"]))
    read = read_written(text, words, "female", wording, starts_with_count=False, first_answer_only=True, cut_off=False)
    assert (read.count, read.verdicts) == (1, {words[0]: True, words[1]: False})
