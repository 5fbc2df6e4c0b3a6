"""Reasoning before an answer is recognised, cut off from texts, and refused where a first token counts."""

from __future__ import annotations

import pytest

from backends.reading.reasoning import (
    begins_with_reasoning,
    has_reasoned,
    reported_thought,
    split_reasoning,
    text_of,
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\nA nurse may be anyone.</think>\n\nOther", "Other"),
        (" <reasoning>x</reasoning> Male", "Male"),
        ("[THINK]hm[/THINK]Female", "Female"),
        ("◁think▷hm◁/think▷Female", "Female"),
        ("<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>Female", "Female"),
        ("<think>A nurse may be", None),
        ("<reasoning>He asks.</reasoning><reasoning>Hm.</reasoning>Female", "Female"),
        ("<reasoning>He asks.</reasoning>\n<reasoning>Hm", None),
        ("<|channel>thought\nhm\n<channel|>Female", "Female"),
        ("<|channel>thought\nhm", None),
        ("hm\n<channel|>Female", "Female"),
        ("<seed:think>hm</seed:think>Female", "Female"),
        ("<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Female<|END_RESPONSE|>", "Female"),
        ("<think>\nhm\n</think>\n<answer>\nFemale\n</answer>", "Female"),
        ("hm\n</thinking>\n\nOther", "Other"),
        ("<answer>Female</answer>", "<answer>Female</answer>"),
        ("A nurse may be anyone.\n</think>\n\nOther", "Other"),
        ("Male", "Male"),
        ("I think so", "I think so"),
        ("<b>Male</b>", "<b>Male</b>"),
    ],
)
def test_only_the_answer_is_left(text: str, answer: str | None) -> None:
    assert split_reasoning(text)[1] == answer


@pytest.mark.parametrize("token", ["<think>", "<|channel|>analysis", " <Thinking>", "[THINK]", "<|channel>thought"])
def test_an_opening_token_is_recognised(token: str) -> None:
    assert begins_with_reasoning(token)


@pytest.mark.parametrize(
    ("choice", "reasoned"),
    [
        ({"message": {"content": "Male", "reasoning_content": "hm"}}, True),
        ({"message": {"content": "Male", "reasoning": "hm"}}, True),
        ({"message": {"content": "<think>"}}, True),
        ({"text": "<think>"}, True),
        ({"message": {"content": "Male", "reasoning_content": ""}}, False),
        ({"message": {"content": None}}, False),
        ({"text": " Male"}, False),
        ({"message": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}}, True),
        ({"message": {"content": [{"type": "text", "text": "Male"}]}}, False),
    ],
)
def test_a_choice_that_reasoned_is_recognised(choice: dict[str, object], reasoned: bool) -> None:
    assert has_reasoned(choice) is reasoned


def test_a_content_in_parts_is_read_apart() -> None:
    """As Mistral's reasoning models answer (https://docs.mistral.ai/capabilities/reasoning)."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "He, "}, {"type": "text", "text": "or she."}]}
    choice = {"message": {"content": [thinking, {"type": "text", "text": "Female"}]}}
    assert (reported_thought(choice), text_of(choice)) == ("He, or she.", "Female")
    assert text_of({"message": {"content": [thinking]}}) is None
    assert text_of({"message": {"content": None}}) is None
