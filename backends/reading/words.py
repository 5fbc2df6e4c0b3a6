"""Where a word ends, in any script: the one rule for answers that are drawn, expressions and readings of texts.

Letters, digits, the underscore and combining marks are inside words. Python's ``\\w`` leaves marks out, so that
"नर" would be a word of "नर्स". Texts are compared in the composed normal form (NFC), apostrophes straight.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

#: Zero-width signs between the letters of one word.
_JOINERS = "\u200c\u200d"
_HYPHENS = re.compile("[\u2010-\u2012]")
#: Vowel signs and the stretching stroke of Arabic, and the points of Hebrew: a text may have them or not.
_OPTIONAL_MARKS = re.compile("[\u0640\u064b-\u0652\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]")


def is_word_character(character: str) -> bool:
    """Whether a character is part of a word."""
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def comparable(text: str) -> str:
    """The text as it is compared: composed letters, straight apostrophes."""
    return unicodedata.normalize("NFC", text).replace("\u2019", "'")


def visible(text: str) -> str:
    """The text without signs that nobody sees, such as a soft hyphen. Joiners shape letters and stay."""
    return "".join(sign for sign in text if sign in _JOINERS or unicodedata.category(sign) != "Cf")


def begins_with_words(text: str, words: str) -> bool:
    """Whether a text begins with these words: "Male", not "Males"."""
    text, words = comparable(text), comparable(words)
    rest = text[len(words) :][:1]
    return text.startswith(words) and not (rest and is_word_character(rest) and is_word_character(words[-1]))


def finder_of(words: Sequence[str], *, whole: bool) -> Callable[[str], bool]:
    """Whether a text contains any of these words as a reader sees them; ``whole``: not inside a longer word.

    Case, line breaks, kinds of spaces and hyphens, and the vowel signs that Arabic and Hebrew may leave out make no
    difference. An underscore ends a word, as in ``_poor_``; a joiner of Persian does not.
    """
    any_of = "|".join(re.escape(as_read(word)) for word in words)
    inside = f"(?:[^\\W_]|[{combining_marks()}{_JOINERS}])"
    pattern = re.compile(rf"(?<!{inside})(?:{any_of})(?!{inside})" if whole else any_of)
    return lambda text: pattern.search(as_read(text)) is not None


def folded(text: str) -> str:
    """The words of a text alone: two texts with the same fold differ in case, spaces, punctuation or Unicode form."""
    plain = unicodedata.normalize("NFKC", as_read(text)).casefold()
    return " ".join("".join(sign if is_word_character(sign) else " " for sign in plain).split())


def as_read(text: str) -> str:
    """The text as a reader sees it: whatever its case, spaces, hyphens, invisible signs and optional vowel signs."""
    folded = comparable(comparable(text).casefold()).replace("i\u0307", "i").replace("ı", "i")  # Turkish capitals
    plain = _HYPHENS.sub("-", _OPTIONAL_MARKS.sub("", folded))
    return " ".join(visible(plain).split())


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
