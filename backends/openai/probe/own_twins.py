"""Twins of a run's own questions: each differs in what a gateway may rewrite, drop or mask without saying so.

The probe's near twins only show what happens to its own prompts. A filter that only touches gendered words, digits or
brackets would go unnoticed if only the audited prompts have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from backends.base import Prompt

#: Of the twins, those that replace some word: they also show a long prompt that is cut.
_WORDS = 3
_GENDERED = (
    *(("he", "she"), ("him", "her"), ("his", "her"), ("himself", "herself"), ("man", "woman"), ("men", "women")),
    *(("boy", "girl"), ("male", "female"), ("father", "mother"), ("son", "daughter"), ("brother", "sister")),
    *(("husband", "wife"), ("mr", "mrs"), ("gentleman", "lady"), ("king", "queen"), ("uncle", "aunt")),
)
_OTHER_GENDER = {one: other for pair in reversed(_GENDERED) for one, other in (pair, pair[::-1])}
_WORD = re.compile(r"[^\W\d_]{3,}")


def _swapped(match: re.Match[str]) -> str:
    word = match.group()
    other = _OTHER_GENDER.get(word.lower())
    if other is None:
        return word
    return other.capitalize() if word[0].isupper() else other


#: What differs, and how a text is changed; a text that stays the same has no such twin.
_CHANGES: Sequence[tuple[str, Callable[[str], str]]] = (
    ("the gender of words", lambda text: re.sub(r"\b[A-Za-z]+\b", _swapped, text)),
    ("their numbers", lambda text: re.sub(r"[0-9]", lambda digit: str((int(digit.group()) + 1) % 10), text)),
    ("a negation", lambda text: re.sub(r"\bnot |n['’]t\b", "", text)),
    ("capital letters", lambda text: re.sub(r"(?<=[a-z] )[A-Z]\w", lambda first: first.group().lower(), text)),
    ("repeated characters", lambda text: re.sub(r"([^\w\s]|_)\1+", r"\1", text)),
    ("words in brackets", lambda text: re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>", "", text)),
    ("an address", lambda text: re.sub(r"(?=\b\w[\w.+-]*@\w|\bhttps?://)", "x", text)),
)


@dataclass(frozen=True)
class OwnTwin:
    """A changed question, the position of the one that it was made of, and in what they differ."""

    at: int
    prompt: Prompt
    difference: str


def own_twins(questions: Sequence[Prompt], n: int, random: Random) -> list[OwnTwin]:
    """At most ``n`` twins of these questions, one per difference that any of them can have, in random order."""
    order = random.sample(range(len(questions)), len(questions))
    found: dict[str, OwnTwin] = {}
    for at in order:
        for difference, prompt in _changed(questions[at]):
            found.setdefault(difference, OwnTwin(at, prompt, difference))
    twins = random.sample([*found.values()], min(len(found), n - _WORDS))
    words = sorted({word for prompt in questions for text in _texts(prompt) for word in _WORD.findall(text)})
    for number in range(n - len(twins) if len(words) > 1 else 0):
        at = order[number % len(order)]
        if (other := _with_another_word(questions[at], words, random)) is not None:
            twins.append(OwnTwin(at, other, "a word"))
    return twins


def _changed(prompt: Prompt) -> Iterator[tuple[str, Prompt]]:
    """Each difference that the prompt can have, and its twin."""
    for difference, change in _CHANGES:
        if (twin := _each_text(prompt, change)) != prompt:
            yield difference, twin
    for mark in sorted({mark for text in _texts(prompt) for mark in text if _is_mark(mark)}):
        yield f"the character {mark!r}", _each_text(prompt, lambda text, mark=mark: text.replace(mark, ""))  # type: ignore[misc]


def _is_mark(character: str) -> bool:
    return character.isprintable() and not character.isspace() and not (character.isascii() and character.isalnum())


def _with_another_word(prompt: Prompt, words: Sequence[str], random: Random) -> Prompt | None:
    """The prompt with one word, anywhere in it, replaced by another one of ``words``; None if it has none."""
    found = [(at, word.span()) for at, text in enumerate(_texts(prompt)) for word in _WORD.finditer(text)]
    if not found:
        return None
    changed, (start, stop) = random.choice(found)
    texts = _texts(prompt)
    text = texts[changed]
    other = random.choice([word for word in words if word != text[start:stop]])
    return _with_texts(prompt, [*texts[:changed], text[:start] + other + text[stop:], *texts[changed + 1 :]])


def _texts(prompt: Prompt) -> list[str]:
    return [prompt] if isinstance(prompt, str) else [message.content for message in prompt]


def _with_texts(prompt: Prompt, texts: Sequence[str]) -> Prompt:
    if isinstance(prompt, str):
        return texts[0]
    return tuple(replace(message, content=text) for message, text in zip(prompt, texts, strict=True))


def _each_text(prompt: Prompt, change: Callable[[str], str]) -> Prompt:
    return _with_texts(prompt, [change(text) for text in _texts(prompt)])
