"""One list of next tokens under two different prompts: a cache, or another question's answer.

A model may give two prompts the same likeliest tokens, never the same numbers to the last digit. So where a list
comes a second time under another prompt, one of the two is not its own.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Request
from backends.openai.http.errors import inconsistent

_TRACKED_LISTS = 200_000
_RECENT = 4096
_COMPARED_ENTRIES = 32
#: Decimal digits, over all entries, from which on two lists do not agree by chance.
_MIN_DIGITS = 12


class ListTracker:
    """The lists of one run, and the prompts that they came for.

    Attributes
    ----------
    repeated : int
        How many lists came for a prompt that another prompt's list had come for.
    ambiguous : list of Request
        Requests that took a list while another prompt that got the same one was under way, or that got it again
        when it was asked again: whose the list is is unknown.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.ambiguous: list[Request] = []
        self._owners: dict[int, int] = {}  # list → prompt
        self._claimed: set[tuple[int, int]] = set()  # (list, prompt) that was refused once
        self._recent: deque[tuple[int, Request, float]] = deque(maxlen=_RECENT)  # list, who took it, and when

    def check(self, payload: Mapping[str, Any], response: Mapping[str, Any], request: Request, sent: float) -> None:
        """Raise ``inconsistent`` for a list that another prompt got; ``sent`` is when this was asked (monotonic)."""
        values = None if "echo" in payload or "prompt_logprobs" in payload else _listed(response)
        if values is None or not _is_unique(values):
            return
        listed, prompt = hash(values), _identity(payload)
        owner = self._owners.get(listed)
        if owner is None or owner == prompt:
            self._owners[listed] = prompt
            self._recent.append((listed, request, time.monotonic()))
            if len(self._owners) > _TRACKED_LISTS:
                self._owners.pop(next(iter(self._owners)))
            return
        self.repeated += 1
        is_claimed = (listed, prompt) in self._claimed
        self._claimed.add((listed, prompt))
        takers = [(first, taken) for of, first, taken in self._recent if of == listed and first != request]
        under_way = [first for first, taken in takers if sent < taken]
        if under_way:
            self.ambiguous += under_way
            del self._owners[listed]
        elif is_claimed:
            self.ambiguous += [first for first, _ in takers]
        message = "its list of next tokens is, bit for bit, that of another prompt"
        # The same list once more, for a prompt asked by itself, comes from a cache: it would come again and again.
        raise inconsistent(message, retryable=not is_claimed or bool(under_way))


def _listed(response: Mapping[str, Any]) -> tuple[tuple[str, float], ...] | None:
    """The first entries of the first token's list; None where there is none that can be read."""
    try:
        logprobs = response["choices"][0]["logprobs"]
        if isinstance(logprobs.get("content"), Sequence):
            entries = [(str(e["token"]), float(e["logprob"])) for e in logprobs["content"][0]["top_logprobs"]]
        else:
            entries = [(str(token), float(value)) for token, value in logprobs["top_logprobs"][0].items()]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    # The drawn token may stand first: in another draw of the same list it stands elsewhere.
    return tuple(sorted(entries, key=lambda entry: (-entry[1], entry[0]))[:_COMPARED_ENTRIES])


def _is_unique(values: Sequence[tuple[str, float]]) -> bool:
    """Whether the numbers have so many digits that no two prompts share them by chance.

    What a certain model leaves over, and values on a grid of sixteenths (16-bit logits), say little.
    """
    return sum(_digits(value) for _, value in values) >= _MIN_DIGITS


def _digits(value: float) -> float:
    if not math.isfinite(value) or value > -1e-4:
        return 0.0
    if (16 * value).is_integer():
        return 0.5
    return min(max(len(repr(value).partition(".")[2]) - 1, 0), 6)


def _identity(payload: Mapping[str, Any]) -> int:
    """Which prompt was asked: a template may drop blanks, so they distinguish none."""
    prompt = payload.get("prompt", payload.get("messages"))
    if isinstance(prompt, str):
        prompt = prompt.split()
    elif prompt and isinstance(prompt[0], Mapping):
        prompt = [[turn.get("role"), str(turn.get("content")).split()] for turn in prompt]
    digest = hashlib.sha256(json.dumps(prompt).encode()).digest()
    return int.from_bytes(digest[:8], "big")
