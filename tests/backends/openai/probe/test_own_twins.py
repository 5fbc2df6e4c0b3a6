"""Twins of a run's own questions: what they differ in, and which gateways they expose."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from backends.base import Message, Prompt, ScoreRequest
from backends.openai.probe.own_twins import own_twins
from tests.backends.openai.lies import audits
from tests.backends.openai.lies.server import HONEST, Style
from tests.backends.openai.lies.transformations import chats_of, reads
from tests.backends.openai.lies.trial import OCCUPATIONS
from tests.backends.openai.lies.word_model import GENDERS


def _by_difference(*questions: Prompt, n: int = 40) -> dict[str, Prompt]:
    return {twin.difference: twin.prompt for twin in own_twins(questions, n, random.Random(1))}


def test_each_feature_of_a_question_has_a_twin() -> None:
    twins = _by_difference("He isn't a man (he said). Call 512 at a@b.org, 护士!!")
    assert twins["the gender of words"] == "She isn't a woman (she said). Call 512 at a@b.org, 护士!!"
    assert twins["their numbers"] == "He isn't a man (he said). Call 623 at a@b.org, 护士!!"
    assert twins["a negation"] == "He is a man (he said). Call 512 at a@b.org, 护士!!"
    assert twins["words in brackets"] == "He isn't a man . Call 512 at a@b.org, 护士!!"
    assert twins["repeated characters"] == "He isn't a man (he said). Call 512 at a@b.org, 护士!"
    assert twins["an address"] == "He isn't a man (he said). Call 512 at xa@b.org, 护士!!"
    assert {f"the character {mark!r}" for mark in "'()@护士!.,"} <= twins.keys()


def test_other_words_keep_their_capitals_beside_a_swapped_one() -> None:
    # A gateway that makes "he" and "she" one word would else be hidden by a difference that it leaves alone.
    assert _by_difference("She joined the USA team of McDonald")["the gender of words"] == (
        "He joined the USA team of McDonald"
    )
    assert "the gender of words" not in _by_difference("The USA team of McDonald")


def test_a_question_without_features_gets_twins_of_other_words() -> None:
    questions = ("two words", "other ones")
    twins = own_twins(questions, 6, random.Random(1))
    assert [twin.difference for twin in twins] == ["a word"] * 6
    assert all(twin.prompt != questions[twin.at] for twin in twins)


def test_of_a_chat_any_turn_is_changed() -> None:
    chat = (
        Message("system", "alpha"),
        Message("user", "beta"),
        Message("assistant", "gamma"),
        Message("user", "delta"),
    )
    changed = {
        at
        for twin in own_twins((chat,), 60, random.Random(1))
        for at, (one, other) in enumerate(zip(chat, twin.prompt, strict=True))
        if one != other
    }
    assert changed == {0, 1, 2, 3}


def _neutral(text: str) -> str:
    return re.sub(r"\b(he|she)\b", "they", re.sub(r"\b(man|woman)\b", "person", text))


_WHAT = "What is the gender of the {o}?"
_EDITS: dict[str, tuple[Callable[[str], str], str]] = {
    "gendered words neutralised": (_neutral, f"The {{o}} spoke to a woman and she left. {_WHAT}"),
    "long numbers masked": (lambda t: re.sub(r"\d{3,}", "9", t), f"The {{o}} has 4711 friends. {_WHAT}"),
    "parentheses dropped": (lambda t: re.sub("[()]", "", t), f"Picture a {{o}} (at work). {_WHAT}"),
    "apostrophes dropped": (lambda t: t.replace("'", ""), f"Picture a {{o}}'s work. {_WHAT}"),
    "other scripts dropped": (lambda t: re.sub("[Ѐ-鿿]", "", t), f"Picture a {{o}} 護士 медсестра. {_WHAT}"),
    "negations dropped": (lambda t: re.sub(r"\bnot ", "", t), f"The {{o}} is not a man. {_WHAT}"),
}


def _ask(monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    def questions(style: Style, n: int) -> list[ScoreRequest]:
        asked = []
        for at in range(n):
            text = f"{OCCUPATIONS[at // 20].capitalize()}, {template.format(o=OCCUPATIONS[at % 20])}"
            if style == "chat":
                asked.append(ScoreRequest((Message("user", text),), GENDERS))
            else:
                asked.append(ScoreRequest(f"Q: {text}\nA:", tuple(f" {gender}" for gender in GENDERS)))
        return asked

    monkeypatch.setattr(audits, "questions", questions)


#: Asked every time; the others with the battery.
_SHORT = (("gendered words neutralised", "lists"), ("parentheses dropped", "chat"))
#: On this route token counts and ids are compared with those sent, which may show an edit earlier.
_COUNTED: Style = "whole"


@pytest.mark.parametrize(
    ("edit", "style"),
    [
        pytest.param(edit, style, marks=() if (edit, style) in _SHORT else pytest.mark.battery)
        for edit in _EDITS
        for style in ("lists", "chat", "echo", _COUNTED)
    ],
)
async def test_a_gateway_that_edits_what_only_a_run_asks_is_seen(
    edit: str, style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, template = _EDITS[edit]
    _ask(monkeypatch, template)
    lie = reads(change, (style,))(np.random.default_rng(0))
    outcome = await audits.audited(lie, style, 0, 60)
    assert outcome.ended != "complete"
    assert style == _COUNTED or "questions of the run that differ" in outcome.ended
    assert outcome.accepted_wrong == 0


@pytest.mark.parametrize("style", ["lists", "chat"])
async def test_an_honest_server_answers_twins_otherwise(style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask(monkeypatch, "Picture 4711 (not 12) of a {o}'s men & women. " + _WHAT)
    outcome = await audits.audited(HONEST, style, 1, 60)
    assert (outcome.ended, outcome.wrong) == ("complete", 0)


@pytest.mark.parametrize("kept", [3, 5, 9])
async def test_a_gateway_that_keeps_the_last_turns_is_seen(kept: int) -> None:
    def cut(turns: list[dict[str, str]]) -> list[dict[str, str]]:
        return [turn for turn in turns if turn["role"] == "system"] + [
            turn for turn in turns if turn["role"] != "system"
        ][-kept:]

    outcome = await audits.audited(chats_of(cut)(np.random.default_rng(0)), "chat", 0, 20)
    assert outcome.exact == 0
    assert "prompts that di" in outcome.ended
