"""A small language model whose every probability is known: whole words as tokens, a few hundred of them.

It depends on every word before, on their order, and most on the last ones; it copies what it has read, and knows a few
texts by heart, as real models do. That is what a lie about a prompt must hide, and an honest server shows.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Sequence

import numpy as np

_TOKEN = re.compile(r" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]", re.S)
BOS = ""
_TEXT = """
the of and to in a is that for it was on as with be at by he she they from this have had not are but or an his her
their one all were we when there can more if no out so up said what its about who get which go me make like time just
him know take people into year your good some could them see other than then now look only come over think also back
after use two how our work first well way even new want because any these give day most man woman boy girl child nurse
doctor teacher carpenter plumber secretary electrician librarian mechanic dietitian midwife welder cashier pilot
florist baker mason tailor driver maid farmer clerk miner nanny guard typist chef butcher receptionist painter
therapist manager engineer Anna Ben Clara David Emma Frank Male Female Other male female unknown diverse neutral yes
no Yes No true false gender word answer question letter report meeting house river mountain garden music winter summer
morning evening night light dark red blue green white black small large old young quick slow early late left right
open closed north south east west Paris Rome Berlin Madrid France Italy Germany Spain capital city country Monday
Tuesday Wednesday Thursday Friday Saturday Sunday three four five six seven eight nine ten apple bread water stone
paper silver copper window door table chair wrote read told asked found lost kept made went saw heard felt bought sold
sent gave held built opened began ended happy angry tired ready sure alone quiet strong kind honest careful proud
famous busy free sorry glad clear certain
"""
#: Parts of names and of what gateways make of them: a model copies what it reads.
_PARTS = ("M", "ü", "ller", "&", "amp", "quot", "lt", "Wei", "ß", "<", "S", "ø", "ren", "Ã", "¼", " ")
#: Met in copied or rewritten texts alone: the least likely until they have been read. No two are equally likely.
_RARE, _RARE_WEIGHTS = (" S", "\\", "\r"), (-11.3, -12.1, -12.9)
#: Texts that it knows by heart, as every model does.
_KNOWN = (
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, Monday",
    "one, two, three, four, five, six, seven, eight, nine, ten",
    "Paris is the capital of France, Rome is the capital of Italy",
)
#: What it answers when it was asked for a gender, with or without a space.
GENDERS = ("Male", "Female", "Other", "unknown", "neutral", "diverse", "woman", "man")
_WIDTH = 12
_SPREAD, _COPIED, _BY_HEART, _IN_PLACE = 0.45, 6.0, 9.0, 5.0
_FALLOFF, _ASKED, _QUESTION_LENGTH = 1.05, 3.0, 14


def tokens_of(text: str) -> tuple[str, ...]:
    """The text's words with the space before them, numbers, and single other characters."""
    return tuple(_TOKEN.findall(text))


def unknown_value(token: str, before: str) -> float:
    """The log-probability of a token that a small model does not know: small, and no placeholder."""
    return -15.0 - zlib.crc32(f"{before}|{token}".encode()) / 2**32


VOCABULARY = tuple(
    dict.fromkeys([*(f" {w}" for w in _TEXT.split()), *_TEXT.split(), *"0123456789", *".,:;?!\n\"'-", *_PARTS, *_RARE])
)


@functools.lru_cache(maxsize=2)
def word_model(seed: int) -> WordModel:
    """One model for all trials of a seed, whose probes ask the same."""
    return WordModel(seed)


class WordModel:
    """log P(next token | tokens before), a fixed function of ``seed``."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.index = {word: at for at, word in enumerate(VOCABULARY)}
        random = np.random.default_rng([seed, 1])
        usual = len(VOCABULARY) - len(_RARE)
        ranks = random.permutation(usual)
        self._base = np.append(-_FALLOFF * np.log(ranks + 2.0), _RARE_WEIGHTS)
        self._out = np.append(random.normal(size=(usual, _WIDTH)), np.zeros((len(_RARE), _WIDTH)), axis=0)
        self._spaced = np.array([word.startswith(" ") for word in VOCABULARY])
        self._mark = np.array([not word.strip().isalnum() for word in VOCABULARY])
        self._gender = np.array([word.strip() in GENDERS for word in VOCABULARY])
        self._by_heart: dict[tuple[str, str], str] = {}
        for text in _KNOWN:
            for a, b, c in zip(tokens_of(text), tokens_of(text)[1:], tokens_of(text)[2:], strict=False):
                self._by_heart[a.strip(), b] = c

    @functools.lru_cache(maxsize=20_000)  # noqa: B019 (few models live at a time)
    def logprobs(self, before: tuple[str, ...]) -> np.ndarray:
        """Over `VOCABULARY`, in nats, after these tokens."""
        logits = self._base + _SPREAD * self._out @ self._state(before)
        last = before[-1] if before else "\n"
        starts = not last.strip() or last == BOS
        logits = logits + _IN_PLACE * np.where(self._mark, 0.3, self._spaced != starts)
        if " gender" in before[-_QUESTION_LENGTH:]:
            logits = logits + _ASKED * self._gender
        for word, bonus in self._expected(before).items():
            logits[self.index[word]] += bonus
        shifted = logits - logits.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    def logprob(self, before: tuple[str, ...], continuation: Sequence[str]) -> float:
        """log P of these tokens, one after the other."""
        return float(
            sum(self.logprobs((*before, *continuation[:at]))[self.index[t]] for at, t in enumerate(continuation))
        )

    def _state(self, before: Sequence[str]) -> np.ndarray:
        if not before:
            return np.zeros(_WIDTH)
        distance = np.arange(len(before), 0, -1)
        weights = 1 / np.sqrt(1 + distance / 3)
        read = np.array([self._embedding(word) for word in before])
        # Signs that change with the distance: the same words in another order are another state.
        signs = np.where((distance[:, None] // (1 + np.arange(_WIDTH) % 4)) % 2, 1.0, -1.0)
        return np.asarray((weights[:, None] * signs * read).sum(0) / np.sqrt((weights**2).sum()))

    @functools.lru_cache(maxsize=20_000)  # noqa: B019
    def _embedding(self, word: str) -> np.ndarray:
        return np.random.default_rng([self._seed, 2, zlib.crc32(word.encode())]).normal(size=_WIDTH)

    def _expected(self, before: tuple[str, ...]) -> dict[str, float]:
        """What stood after the same two tokens before, and what it knows by heart."""
        if len(before) < 2:
            return {}
        expected: dict[str, float] = {}
        for a, b, after in zip(before, before[1:], before[2:], strict=False):
            if (a, b) == before[-2:] and after in self.index:
                expected[after] = min(expected.get(after, 0.0) + _COPIED, 4 * _COPIED)
        known = self._by_heart.get((before[-2].strip(), before[-1]))
        if known is not None:
            expected[known] = max(expected.get(known, 0.0), _BY_HEART)
        return expected
