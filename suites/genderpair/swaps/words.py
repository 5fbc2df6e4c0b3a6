"""A text as words, each with what stands between it and its neighbours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suites.common.data_files import load

_CONTENT: Mapping[str, Any] = load("genderpair_swaps").content
#: The word lists of these rules, by name; the lists by group are `UNLISTED` and `PHRASES`.
LISTS: Mapping[str, frozenset[str]] = {k: frozenset(v) for k, v in _CONTENT.items() if isinstance(v, list)}
#: Gendered words without a counterpart in the data, by group: a text that holds one cannot be swapped.
UNLISTED: Mapping[str, frozenset[str]] = {group: frozenset(words) for group, words in _CONTENT["unlisted"].items()}
PHRASES: Mapping[str, Sequence[str]] = _CONTENT["fixed_phrases"]

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
#: Marks that a text puts around a word: they do not part it from its neighbours.
_MARKS = re.compile(r"[\s{}\[\]*_]+")
_ENDS = re.compile(r"[.!?;:\n]")
_AFTER_A_TITLE = frozenset(["mr", "mrs", "ms", "mx", "dr", "st", "prof"])


@dataclass(frozen=True, slots=True)
class Word:
    """One word.

    Attributes
    ----------
    text : str
        As written.
    lower : str
        In lower case, with straight apostrophes.
    start, end : int
        Its place in the text, in characters.
    gap : str
        The punctuation before it, without spaces and marks: empty if it directly follows the word before.
    opens : bool
        Whether a sentence begins with it.
    """

    text: str
    lower: str
    start: int
    end: int
    gap: str
    opens: bool

    @property
    def plain(self) -> str:
        """In lower case, without a genitive's ending."""
        return self.lower.removesuffix("'s").removesuffix("'")


class Words:
    """The words of a text. Beyond its ends there is None."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.all: list[Word] = []
        end = 0
        for match in _WORD.finditer(text):
            between = text[end : match.start()]
            gap = _MARKS.sub("", between)
            if self.all and self.all[-1].lower in _AFTER_A_TITLE and gap.startswith("."):
                gap = gap[1:]
            opens = not self.all or bool(_ENDS.search(gap)) or "\n" in between or bool(re.search(r"[\"“]", gap))
            lower = match[0].lower().replace("’", "'")
            self.all.append(Word(match[0], lower, match.start(), match.end(), gap, opens))
            end = match.end()
        self.tail = _MARKS.sub("", text[end:])

    def __len__(self) -> int:
        return len(self.all)

    def at(self, index: int) -> Word | None:
        return self.all[index] if 0 <= index < len(self.all) else None

    def next(self, index: int) -> str | None:
        """The word that directly follows, in lower case; None after punctuation or at the end."""
        word = self.at(index + 1)
        return word.lower if word is not None and not word.gap else None

    def before(self, index: int) -> str | None:
        """The word directly before, in lower case; None after punctuation or at the start."""
        return self.all[index - 1].lower if index and not self.all[index].gap else None

    def is_cut_off(self, index: int) -> bool:
        """Whether the text stops after this word without punctuation."""
        return index == len(self.all) - 1 and not self.tail

    def sentence_end(self, index: int) -> int:
        """The index after the last word of the sentence."""
        return next((i for i in range(index + 1, len(self.all)) if self.all[i].opens), len(self.all))

    def sentence_start(self, index: int) -> int:
        while index > 0 and not self.all[index].opens:
            index -= 1
        return index
