"""Notices the same list of next tokens for two different prompts: from a cache, or another request's answer.

A model may give two prompts the same likeliest tokens, but never the same numbers to the last digit. So if a list
comes a second time for another prompt, it is wrong for one of the two.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Request
from backends.http.errors import inconsistent

_TRACKED_LISTS = 50_000
_COMPARED_ENTRIES = 32
#: Total decimal digits of all entries beyond which two lists do not agree by chance.
_MIN_DIGITS = 12


class ListTracker:
    """The lists of one run, and the prompts that they answered.

    Attributes
    ----------
    repeated : int
        How many times a list had already answered another prompt.
    ambiguous : list of Request
        Requests that received a list which another prompt received too: it is unknown to which of them it belongs.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.ambiguous: list[Request] = []
        self._owners: dict[int, tuple[int, Request, float]] = {}  # list → prompt, who received it, and when
        self._refused: set[tuple[int, int]] = set()  # pairs (list, prompt)

    def check(self, payload: Mapping[str, Any], response: Mapping[str, Any], request: Request, sent: float) -> None:
        """Raise ``inconsistent`` for a list that another prompt received; ``sent``: when this was sent (monotonic)."""
        values = None if "echo" in payload or "prompt_logprobs" in payload else _listed(response)
        if values is None or sum(_digits(value) for _, value in values) < _MIN_DIGITS:
            return
        listed, prompt = hash(values), _identity(payload)
        owner, first, taken = self._owners.setdefault(listed, (prompt, request, time.monotonic()))
        if owner == prompt:
            if len(self._owners) > _TRACKED_LISTS:
                self._owners.pop(next(iter(self._owners)))
            return
        self.repeated += 1
        is_swapped, is_again = sent < taken, (listed, prompt) in self._refused
        self._refused.add((listed, prompt))
        if is_swapped or is_again:
            self.ambiguous.append(first)
        if is_swapped:  # both were under way: either may have the other's
            del self._owners[listed]
        # A prompt that receives the list again when it is sent alone gets it from a cache: retrying would not help.
        message = "its list of next tokens is, bit for bit, that of another prompt"
        raise inconsistent(message, retryable=is_swapped or not is_again)


def _listed(response: Mapping[str, Any]) -> tuple[tuple[str, float], ...] | None:
    """The first entries of the first token's list; None if there is no readable one."""
    try:
        logprobs = response["choices"][0]["logprobs"]
        if isinstance(logprobs.get("content"), Sequence):
            entries = [(str(e["token"]), float(e["logprob"])) for e in logprobs["content"][0]["top_logprobs"]]
        else:
            entries = [(str(token), float(value)) for token, value in logprobs["top_logprobs"][0].items()]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    # Sorted, because the drawn token may come first, and differs between draws of the same list.
    return tuple(sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:_COMPARED_ENTRIES])


def _digits(value: float) -> float:
    """How many digits a value carries: few near certainty, and on a grid of sixteenths (16-bit logits)."""
    if not math.isfinite(value) or value > -1e-4:
        return 0.0
    if (16 * value).is_integer():
        return 0.5
    return min(max(len(repr(value).partition(".")[2]) - 1, 0), 6)


def _identity(payload: Mapping[str, Any]) -> int:
    """Identifies a prompt up to white space, which a template may drop."""
    prompt = payload.get("prompt", payload.get("messages"))
    if isinstance(prompt, str):
        prompt = prompt.split()
    elif prompt and isinstance(prompt[0], Mapping):
        prompt = [[turn.get("role"), str(turn.get("content")).split()] for turn in prompt]
    digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return int.from_bytes(digest[:8], "big")
