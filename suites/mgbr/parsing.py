"""Parses what a model wrote about a list: its count, and its verdict on each word.

Parsing is strict: an ambiguous answer is unreadable (None), never guessed. A count is a number in digits, alone after
the start of the answer: "Answer: 3", "**Answer:** 3.". Not accepted: "Answer: three", "Answer: 3 or 4", "Answer:
3/6", a number cut off by the length limit, two different answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backends.reading.words import comparable
from suites.mgbr.wording import Wording

_MARKUP = r"[*_`\"'“”‘’]*"
_COUNT = re.compile(rf"[ \t]*{_MARKUP}[ \t]*(\d{{1,3}}){_MARKUP}[.。]?{_MARKUP}[ \t]*(?=\r?\n|$)")
_BULLET = r"(?:[-*•]|\d{1,2}[.)])?[ \t]*"


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The result of parsing a text.

    ``count`` is None if no count could be read. ``verdicts`` holds, for each word that the text
    classifies, whether it is called a word of the group asked for; a word that is called both
    is in ``contradicted`` instead.
    """

    count: int | None
    verdicts: dict[str, bool]
    contradicted: frozenset[str]


def read_written(
    text: str,
    words: Sequence[str],
    group: str,
    wording: Wording,
    *,
    starts_with_count: bool,
    first_answer_only: bool,
    cut_off: bool,
) -> WrittenAnswer:
    """Read a written answer to the question about ``words``.

    ``starts_with_count``: the prompt ended with the start of the answer: the count must be the first thing written.
    ``first_answer_only``: read only the text up to the first answer: a base model may continue with questions of
    its own, which are not about this list. Otherwise the whole text is read. ``cut_off``: the text ended at the
    length limit, so a number at its very end may lack digits.
    """
    text = comparable(text)
    if starts_with_count:
        return WrittenAnswer(_count_at(text, len(text) - len(text.lstrip()), cut_off), {}, frozenset())
    name, colon = re.fullmatch(r"(.*?)([:：]?)", comparable(wording.answer), re.DOTALL).groups()  # type: ignore[union-attr]
    start = re.compile(rf"^[ \t>#]*{_MARKUP}{re.escape(name)}{_MARKUP}{colon}", re.IGNORECASE | re.MULTILINE)
    answers = [*start.finditer(text)]
    answers = answers[:1] if first_answer_only else answers
    counts = {_count_at(text, answer.end(), cut_off) for answer in answers}
    count = counts.pop() if len(counts) == 1 else None
    steps = text[: answers[0].start()] if answers and first_answer_only else text
    return WrittenAnswer(count, *_verdicts(steps, words, group, wording))


def _count_at(text: str, position: int, cut_off: bool) -> int | None:
    match = _COUNT.match(text, position)
    if match is None or (cut_off and match.end() == len(text) and text[-1].isdigit()):
        return None
    return int(match.group(1))


def _verdicts(text: str, words: Sequence[str], group: str, wording: Wording) -> tuple[dict[str, bool], frozenset[str]]:
    """The verdicts of steps in the wording's own form, one step per line.

    Yes: the group asked for; no: its negation, or another group.
    """
    forms = [
        (_form(wording.step_yes, wording.vocabulary[group]), True),
        (_form(wording.step_no, wording.vocabulary[group]), False),
        *((_form(wording.step_yes, called), False) for other, called in wording.vocabulary.items() if other != group),
    ]
    spelling = {comparable(word).casefold(): word for word in words}
    by_word: dict[str, set[bool]] = {}
    for line in text.splitlines():
        for form, verdict in forms:
            match = form.fullmatch(line.strip())
            if match and (word := spelling.get(match.group("word").casefold())) is not None:
                by_word.setdefault(word, set()).add(verdict)
    verdicts = {word: next(iter(v)) for word, v in by_word.items() if len(v) == 1}
    return verdicts, frozenset(by_word) - frozenset(verdicts)


def _form(step: str, gender: str) -> re.Pattern[str]:
    """A step's template as a pattern; quotes, emphasis, a bullet and the final full stop are optional."""
    word, gender_word = rf"{_MARKUP}(?P<word>[^\n]+?){_MARKUP}", rf"{_MARKUP}{re.escape(comparable(gender))}{_MARKUP}"
    body = re.escape(comparable(step).removesuffix("."))
    body = body.replace(re.escape("{word}"), word).replace(re.escape("{gender}"), gender_word)
    return re.compile(rf"{_BULLET}{body}{_MARKUP}\.?{_MARKUP}", re.IGNORECASE)
