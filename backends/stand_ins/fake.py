"""A deterministic model with planted, known answers: for tests, dry runs and teaching.

It goes through the same interface as a real model. What is planted is known exactly, so a suite
or a statistic can be checked against the truth; latency and seeded faults show how an audit
behaves when a server misbehaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backends.base import (
    Answer,
    Backend,
    Capability,
    ClassifyRequest,
    ClassifyResponse,
    ContinuationScore,
    Description,
    GenerateRequest,
    GenerateResponse,
    Prompt,
    Request,
    ScoreRequest,
    ScoreResponse,
    TokenLogprob,
    prompt_to_json,
)
from backends.errors import BackendError, ConfigError, ErrorKind
from backends.options import checked_options

Words = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class PlantedBias:
    """Probabilities of continuations that add up to known group probabilities.

    Parameters
    ----------
    groups : callable
        ``prompt text → {group: P̃(group)}``; the values of one prompt sum to 1.
    words : mapping or callable
        Each group's expressions, in every spelling that is scored; or a function of the
        prompt text giving them. A group's probability is shared evenly among them.
    coverage : float
        Raw mass ΣP of all groups together, in (0, 1].
    """

    groups: Callable[[str], Mapping[str, float]]
    words: Words | Callable[[str], Words]
    coverage: float = 0.8
    _last: dict[str, dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.coverage <= 1:
            raise ConfigError("PlantedBias.coverage", self.coverage, "not a probability mass", "Give a value in (0, 1]")

    def __call__(self, prompt: str, continuation: str) -> float:
        if prompt not in self._last:  # a prompt's continuations are asked one after the other
            self._last.clear()
            self._last[prompt] = self._shares(prompt)
        word = continuation.strip()
        if word not in self._last[prompt]:
            raise KeyError(f"no group of the planted bias has the expression {word!r}")
        return self._last[prompt][word]

    def _shares(self, prompt: str) -> dict[str, float]:
        """The probability of each expression; one of several groups has that of the first."""
        words, groups, found = self.words(prompt) if callable(self.words) else self.words, self.groups(prompt), {}
        for group, expressions in words.items():
            if group in groups:
                share = self.coverage * groups[group] / len(expressions)
                found.update({word: share for word in expressions if word not in found})
        return found


@dataclass(frozen=True)
class Faults:
    """Seeded failures, the same in every run: decided by (request, attempt), not by time.

    A request is faulty with probability ``rate``. It then fails once with each of ``kinds``
    and is answered afterwards; with ``permanent``, it is never answered.
    """

    rate: float
    kinds: tuple[ErrorKind, ...] = ("server",)
    retry_after: float | None = None
    permanent: bool = False
    seed: int = 0

    def at(self, request: str, attempt: int) -> BackendError | None:
        """The failure of this attempt (counted from 0), or None."""
        if _uniform("fault", str(self.seed), request) >= self.rate:
            return None
        if attempt >= len(self.kinds) and not self.permanent:
            return None
        kind = self.kinds[attempt % len(self.kinds)]
        return BackendError(
            kind, "planted fault", retryable=not self.permanent, retry_after=self.retry_after, hint="planned by Faults"
        )


def _uniform(*parts: str) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _random_probabilities(prompt: str, continuations: Sequence[str]) -> list[float]:
    """For each continuation 0.001 + 0.05 · `_uniform` of "score", the prompt and the continuation."""
    of_prompt, found = hashlib.sha256(f"score\x1f{prompt}\x1f".encode("utf-8", "surrogatepass")), []
    for continuation in continuations:
        digest = of_prompt.copy()
        digest.update(continuation.encode("utf-8", "surrogatepass"))
        found.append(0.001 + 0.05 * (int.from_bytes(digest.digest()[:8], "big") / 2**64))
    return found


def _random_text(prompt: str, seed: int) -> str:
    subject = ("She", "He", "They")[int(3 * _uniform("text", prompt, str(seed)))]
    return f" {subject} told me about a long day at work."


def _random_labels(text: str) -> Mapping[str, float]:
    positive = _uniform("label", text)
    return {"positive": positive, "negative": 1 - positive}


class FakeBackend(Backend):
    """A model whose answers are functions that you give.

    Parameters
    ----------
    name : str
        Its identity. The fingerprint holds only the name: fakes that answer differently need
        different names, or they share cached answers.
    score : callable
        ``(prompt text, continuation) → probability`` in (0, 1], e.g. a `PlantedBias`. Default:
        a fixed pseudo-random probability. Chat prompts arrive as their turns, a line each.
    generate : callable
        ``(prompt text, seed) → text``.
    classify : callable
        ``text → {label: probability}``.
    latency : float
        Seconds that each `run` takes.
    faults : Faults, optional
        Planted failures.
    device, batch_size, max_in_flight
        As in `Backend`: set ``device`` to take turns like a local model.
    """

    @checked_options
    def __init__(
        self,
        name: str = "fake",
        *,
        score: Callable[[str, str], float] | None = None,
        generate: Callable[[str, int], str] = _random_text,
        classify: Callable[[str], Mapping[str, float]] = _random_labels,
        latency: float = 0.0,
        faults: Faults | None = None,
        device: str | None = None,
        batch_size: int = 32,
        max_in_flight: int = 4,
    ) -> None:
        self.name, self._score, self._generate, self._classify = name, score, generate, classify
        self._latency, self._faults = latency, faults
        self.device, self.batch_size, self.max_in_flight = device, batch_size, max_in_flight
        self.asked: Counter[str] = Counter()  # attempts by request, for tests that count what was paid

    def check(self) -> None:
        if self._latency < 0:
            raise ConfigError("latency", self._latency, "negative seconds", "Give 0 or more")

    async def describe(self) -> Description:
        capabilities: frozenset[Capability] = frozenset({"score", "score_alone", "generate", "chat", "classify"})
        return Description(
            {"backend": "fake", "name": self.name, "version": 1},
            capabilities,
            {"model": "planted answers, no real model"},
        )

    async def run(self, batch: Sequence[Request]) -> list[Answer]:
        await asyncio.sleep(self._latency)
        return [self._answer(request) for request in batch]

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        return [len(_text(p).split()) for p in prompts]

    def _answer(self, request: Request) -> Answer:
        identity = _identity(request)
        attempt = self.asked[identity]
        self.asked[identity] += 1
        if self._faults and (error := self._faults.at(identity, attempt)):
            return error
        match request:
            case ScoreRequest(prompt, continuations):
                text = _text(prompt)
                return ScoreResponse(self._scored(text, continuations), prompt_tokens=len(text.split()))
            case GenerateRequest(prompt, seed=seed, repeat=repeat):
                text = self._generate(_text(prompt), seed + repeat)
                return GenerateResponse(text, "stop", len(_text(prompt).split()), len(text.split()))
            case ClassifyRequest(text):
                return ClassifyResponse(dict(self._classify(text)))

    def _scored(self, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        if self._score is None:
            probabilities = _random_probabilities(prompt, continuations)
        else:
            probabilities = [self._score(prompt, continuation) for continuation in continuations]
        found = []
        for continuation, probability in zip(continuations, probabilities, strict=True):
            if not 0 < probability <= 1:
                raise ValueError(f"planted probability {probability!r} of {continuation!r}: must be in (0, 1]")
            value = math.log(probability)
            token = TokenLogprob(continuation, 0, len(continuation), value)
            found.append(ContinuationScore(value, value, value, tokens=(token,), route="planted"))
        return tuple(found)


def _text(prompt: Prompt) -> str:
    return prompt if isinstance(prompt, str) else "\n".join(m.content for m in prompt)


def _identity(request: Request) -> str:
    match request:
        case ScoreRequest(prompt, continuations):
            parts: list[Any] = ["score", prompt_to_json(prompt), *continuations]
        case GenerateRequest(prompt, sampling, seed, repeat):
            parts = ["generate", prompt_to_json(prompt), repr(sampling), seed, repeat]
        case ClassifyRequest(text):
            parts = ["classify", text]
    return repr(parts)
