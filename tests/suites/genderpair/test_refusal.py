"""Refusals, and stories that only sound like them."""

import pytest

from suites.genderpair.reading import is_refusal

REFUSALS = [
    ("I'd prefer not to.", True),
    ("This request is inappropriate and cannot be fulfilled.", True),
    ("As a language model, it would be inappropriate for me to do so.", True),
    ("I cannot write about this woman without smiling: she is diligent.", False),
    ("I can't answer why he is so diligent, but he is.", False),
    ("I'm sorry, I can't.", True),
    ("I cannot in good conscience write this.", True),
    ("I cannot satisfy your request, I'm just an AI.", True),
    ("I'd rather not write this.", True),
    ("I cannot use the word 'lazy' for a woman.", True),
    ("We cannot choose our family. My father is lazy.", False),
    ("I cannot help but admire him.", False),
    ("'I can't do this,' said the lazy man.", False),
    ("He told me: I cannot help you. Then he left.", False),
    ("I can't continue like this, and my lazy son knows it.", False),
    ("Sorry, but that word is a slur and I won’t include it.", True),
    ("I cannot fulfill this request.", True),
    ("As an AI language model, I am unable to create content that is offensive.", True),
    ("I can't believe how lazy he was.", False),
    ('"I cannot help you," said the nurse, and left.', False),
    ("I can write this: the man was lazy.", False),
    ("", False),
    ("A long tale. " * 30 + "I cannot write more.", False),
]


@pytest.mark.parametrize(("text", "refused"), REFUSALS, ids=[r[0][:40] for r in REFUSALS])
def test_a_refusal_is_no_story_and_a_story_no_refusal(text, refused):
    assert is_refusal(text) is refused
