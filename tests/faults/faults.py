"""The faults a server can have, chosen by (fault, trial, request, attempt), so that they replay.

A prompt names its own fate, ``fault|trial|index``, so one server serves every trial at once and
whoever reads a record knows what should have happened. Where log-probabilities are asked for, a
continuation follows it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tests.backends.openai.lying_server import distribution

#: fault → share of the requests it befalls, and how many attempts of such a request.
SERVER_FAULTS: Mapping[str, tuple[float, int]] = {
    "none": (0.0, 0),
    "hang": (0.1, 1),
    "half-close": (0.3, 2),
    "reset": (0.3, 2),
    "slow-loris": (0.1, 1),
    "slicing": (1.0, 99),
    "truncated-with-length": (0.3, 2),
    "truncated-without-length": (0.3, 2),
    "error-body-200": (0.3, 2),
    "html-200": (0.3, 2),
    "empty-choices": (0.3, 1),
    "429": (0.1, 2),
    "429-retry-after-0": (0.1, 2),
    "429-retry-after--1": (0.1, 2),
    "429-retry-after-nan": (0.1, 2),
    "429-retry-after-date": (0.05, 1),
    "429-retry-after-1e9": (0.1, 1),
    "flapping-5xx": (0.4, 2),
    "permanent-5xx": (0.1, 99),
    "broken-utf8": (0.3, 1),
    "lone-surrogate": (0.1, 99),
    "nul": (1.0, 99),
    "bom": (1.0, 99),
    "huge-body": (0.05, 1),
    "gzip": (1.0, 99),
    "gzip-bomb": (0.05, 1),
    "answered-twice": (0.3, 1),
    "answers-swapped": (0.1, 1),
    "late-answer": (0.1, 1),
    "other-model": (0.04, 1),
    "logprob-nan": (0.1, 1),
    "logprob-null": (0.1, 1),
    "logprob-positive": (0.1, 1),
    "logprob--9999": (0.1, 1),
    "logprobs-swapped": (0.1, 1),
}
#: What a server that refuses everything for good says, by the fault's name: status, and the error's code.
REFUSED_FOR_GOOD: Mapping[str, tuple[str, str]] = {
    "401": ("401 Unauthorized", "invalid_api_key"),
    "quota-exhausted": ("429 Too Many Requests", "insufficient_quota"),
    "model-not-found": ("404 Not Found", "model_not_found"),
}
#: What follows the prompts of the faults that are about log-probabilities.
CONTINUATIONS = (" Male", " Female")
#: These take longer than a request may.
SLOW = frozenset({"hang", "slow-loris", "late-answer"})
#: After these a request may rightly end a run without an answer: the failure is stored, reported, and asked
#: again by the next run. What is broken for good stays a failure.
MAY_FAIL = frozenset(
    {
        "permanent-5xx",
        "429-retry-after-1e9",
        "empty-choices",
        "huge-body",
        "gzip-bomb",
        "other-model",
        "answers-swapped",
        "answered-twice",
        "lone-surrogate",
        "logprob-nan",
        "logprob-null",
        "logprob-positive",
        "logprob--9999",
        "logprobs-swapped",
    }
)


@dataclass(frozen=True, slots=True)
class Fate:
    """What is to happen to one request, as its prompt says."""

    fault: str
    trial: str
    index: int
    continuation: str = ""

    @classmethod
    def of(cls, prompt: str) -> Fate:
        """The fate that a prompt names."""
        fault, trial, rest = prompt.split("|")
        index = re.match(r"\d+", rest)
        assert index is not None
        return cls(fault, trial, int(index[0]), rest[index.end() :])

    @property
    def prompt(self) -> str:
        """The prompt that names this fate."""
        return f"{self.fault}|{self.trial}|{self.index}{self.continuation}"

    @property
    def scored(self) -> bool:
        """Whether log-probabilities are asked for."""
        return self.fault.startswith("logprob")

    def strikes(self, attempt: int) -> bool:
        """Whether the fault befalls this attempt (from 0)."""
        share, attempts = SERVER_FAULTS.get(self.fault, (0.0, 0))
        drawn = int.from_bytes(hashlib.sha256(self.prompt.encode()).digest()[:4], "big") / 2**32
        return drawn < share and attempt < attempts

    @property
    def truth(self) -> str:
        """The only right answer, where a text is asked for."""
        text = hashlib.sha256(f"truth {self.prompt}".encode()).hexdigest()[:16]
        return text + (" \x00 end" if self.fault == "nul" else "")

    @property
    def true_logprobs(self) -> tuple[float, ...]:
        """The only right log-probabilities of the `CONTINUATIONS`."""
        after = distribution(self.prompt)
        return tuple(after[c] for c in CONTINUATIONS)
