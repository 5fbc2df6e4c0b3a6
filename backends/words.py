"""Where a word ends, in any script: the one rule for answers that are drawn, expressions and readings of texts.

Letters, digits, the underscore and combining marks are inside words. Python's ``\\w`` leaves marks out, so that
"नर" would be a word of "नर्स". Texts are compared in the composed normal form (NFC), apostrophes straight.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache


def is_word_character(character: str) -> bool:
    """Whether a character is part of a word."""
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def comparable(text: str) -> str:
    """The text as it is compared: composed letters, straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("\u2019", "'")


def begins_with_words(text: str, words: str) -> bool:
    """Whether a text begins with these words: "Male", not "Males"."""
    text, words = comparable(text), comparable(words)
    rest = text[len(words) :][:1]
    return text.startswith(words) and not (rest and is_word_character(rest) and is_word_character(words[-1]))


def any_of_words(words: Sequence[str], *, whole: bool) -> re.Pattern[str]:
    """A pattern of a `comparable` text: any of these, in whatever case; ``whole``: not inside a longer word."""
    any_of = "|".join(re.escape(comparable(word)) for word in words)
    inside = f"[\\w{combining_marks()}]"
    return re.compile(rf"(?<!{inside})(?:{any_of})(?!{inside})" if whole else any_of, re.IGNORECASE)


@cache
def combining_marks() -> str:
    """All combining marks, as ranges of a regular expression's class."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith("M"):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
