"""Models in this process that think: the template is told, a thought has room, and is no part of the answer."""

from __future__ import annotations

import pytest

from backends.base import GenerateRequest, GenerateResponse, Message, Prompt, Sampling
from backends.errors import BackendError
from backends.local.chat_template import render_chat
from backends.local.thinking import with_extra_tokens, without_thought

#: As Qwen3's: thinking is opened by the model, or closed by the template.
HYBRID = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
ASKED = (Message("user", "Who?"),)
THOUGHT = "She, or he.\n</think>\n\n"
REQUEST = GenerateRequest(ASKED, Sampling(max_tokens=8, stop=("\n",)))


class Encoder:
    """Renders chats so that the prompt ends by this."""

    def __init__(self, end: str = "") -> None:
        self._end = end

    def text(self, prompt: Prompt) -> str:
        return f"<assistant>{self._end}"


@pytest.mark.parametrize(("thinking", "end"), [(None, "<assistant>"), (True, "<assistant>"), (False, "</think>\n\n")])
def test_the_template_is_told_whether_to_think(thinking: bool | None, end: str) -> None:
    assert render_chat(HYBRID, ASKED, {}, thinking).endswith(end)


def test_a_thought_has_room_and_no_stop_string() -> None:
    asked = with_extra_tokens(REQUEST, 100)
    assert (asked.sampling.max_tokens, asked.sampling.stop) == (108, ())


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("", "<think>\nShe, or he.\n</think>\n\nFemale\nBecause"),
        ("<think>\n", "She, or he.\n</think>\n\nFemale\nBecause"),
    ],
    ids=["opened by the model", "opened by the template"],
)
def test_an_answer_comes_without_its_thought(end: str, text: str) -> None:
    answer = without_thought(REQUEST, GenerateResponse(text, "length", 3, 30), Encoder(end), had_extra_tokens=True)
    assert isinstance(answer, GenerateResponse)
    assert (answer.text, answer.finish_reason) == ("Female", "stop")
    assert "She, or he." in answer.thought
    assert answer.completion_tokens == 30, "what was generated is counted whole"


@pytest.mark.parametrize(("end", "text"), [("", "<think>\nShe, or"), ("<think>\n", "She, or")])
def test_a_local_thought_without_an_end_is_no_answer(end: str, text: str) -> None:
    answer = without_thought(REQUEST, GenerateResponse(text, "length", 3, 8), Encoder(end), had_extra_tokens=False)
    assert isinstance(answer, BackendError)
    assert "thought" in answer.message


def test_a_text_without_a_thought_is_as_it_was() -> None:
    given = GenerateResponse("Female\nBecause", "length", 3, 8)
    assert without_thought(REQUEST, given, Encoder(), had_extra_tokens=False) == given
