"""The faults a server can have, chosen by (fault, trial, request, attempt), so that they replay.

A prompt names its own fate, ``fault|trial|index``, so one server serves every trial at once and
whoever reads a record knows what should have happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

#: fault → share of the requests it befalls, and how many attempts of such a request.
SERVER_FAULTS: Mapping[str, tuple[float, int]] = {
    "none": (0.0, 0),
    "hang": (0.1, 1),
    "truncated": (0.3, 2),
    "error-body-200": (0.3, 2),
    "empty-choices": (0.3, 1),
    "429": (0.1, 2),
    "429-retry-after-nan": (0.1, 2),
    "429-retry-after-1e9": (0.1, 1),
    "flapping-5xx": (0.4, 2),
    "permanent-5xx": (0.1, 99),
    "broken-utf8": (0.3, 1),
    "answered-twice": (0.3, 1),
    "answers-swapped": (0.1, 1),
    "late-answer": (0.1, 1),
    "other-model": (0.04, 1),
}
#: What a server that refuses everything for good says, by the fault's name: status, and the error's code.
REFUSED_FOR_GOOD: Mapping[str, tuple[int, str]] = {
    "401": (401, "invalid_api_key"),
    "quota-exhausted": (429, "insufficient_quota"),
    "model-not-found": (404, "model_not_found"),
}
#: These take longer than a request may.
SLOW = frozenset({"hang", "late-answer"})
#: After these a request may rightly end a run without an answer: the failure is stored, reported, and asked
#: again by the next run. What is broken for good stays a failure.
MAY_FAIL = frozenset(
    ("permanent-5xx", "429-retry-after-1e9", "empty-choices", "other-model", "answers-swapped", "answered-twice")
)


@dataclass(frozen=True, slots=True)
class Fate:
    """What is to happen to one request, as its prompt says."""

    fault: str
    trial: str
    index: int

    @classmethod
    def of(cls, prompt: str) -> Fate:
        """The fate that a prompt names."""
        fault, trial, index = prompt.split("|")
        return cls(fault, trial, int(index))

    @property
    def prompt(self) -> str:
        """The prompt that names this fate."""
        return f"{self.fault}|{self.trial}|{self.index}"

    def strikes(self, attempt: int) -> bool:
        """Whether the fault befalls this attempt (from 0)."""
        share, attempts = SERVER_FAULTS.get(self.fault, (0.0, 0))
        drawn = int.from_bytes(hashlib.sha256(self.prompt.encode()).digest()[:4], "big") / 2**32
        return drawn < share and attempt < attempts

    @property
    def truth(self) -> str:
        """The only right answer."""
        return hashlib.sha256(f"truth {self.prompt}".encode()).hexdigest()[:16]
