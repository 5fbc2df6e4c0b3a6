"""Notices the response of another model or provider, one that was given before, and another prompt's list."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Request
from backends.errors import BackendError
from backends.http.errors import inconsistent

_TRACKED = 50_000
#: Entries of a list that are compared, and decimal digits of them all beyond which two lists do not agree by chance.
_COMPARED_ENTRIES, _MIN_DIGITS = 32, 12


class ModelChangedError(BackendError):
    """Another model answers under the same name: its responses are not the audited model's."""

    def __init__(self, message: str) -> None:
        super().__init__("inconsistent", message, hint="Audit the current model as a new one")


class OtherProviderError(BackendError):
    """A gateway passed a question to another provider of the model: other weights, perhaps, and another engine."""

    def __init__(self, provider: str, audited: str) -> None:
        pinned = f'extra_body={{"provider": {{"only": ["{audited}"], "allow_fallbacks": False}}}}'
        message = f"the answer is from provider {provider[:80]!r}, those before are from {audited!r}"
        super().__init__("inconsistent", message, retryable=True, hint=f"Pin one, as OpenRouter allows by {pinned}")


class ResponseTracker:
    """The names, ids and lists of the responses of one server.

    A model may give two prompts the same likeliest tokens, but never the same numbers to the last digit: a list that
    comes a second time for another prompt is wrong for one of the two (a cache, or an answer that was swapped).

    Attributes
    ----------
    model, provider : str or None
        Their names in the responses (a gateway names the provider). Once set, another name is refused.
    unique : bool
        Whether the server gives each response its own id: the same id with the same content is then a repetition.
    ambiguous : list of Request
        Requests that received a list which another prompt received too.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.provider: str | None = None
        self.unique = False
        self.ambiguous: list[Request] = []
        self._ids: dict[tuple[str, int], None] = {}  # with their content, since Ollama has only 999 ids
        self._lists: dict[int, tuple[int, Request]] = {}  # list → prompt, and who received it

    @property
    def distinct(self) -> int:
        """How many different ids were seen."""
        return len({response_id for response_id, _ in self._ids})

    def check(self, response: Mapping[str, Any]) -> None:
        """Raise ``inconsistent`` for the response of another model or provider, and for one that was given before."""
        model, provider, response_id = (response.get(name) for name in ("model", "provider", "id"))
        if isinstance(model, str):
            self.model = self.model or model
            if model != self.model:
                message = f"the answer is from model {model[:80]!r}, but the audited one is {self.model[:80]!r}"
                raise ModelChangedError(message)
        if isinstance(provider, str) and provider:
            self.provider = self.provider or provider[:80]
            if provider[:80] != self.provider:
                raise OtherProviderError(provider, self.provider)
        if isinstance(response_id, str) and response_id:
            key = response_id, hash(json.dumps([response.get("created"), response.get("choices")]))
            if key in self._ids and self.unique:
                raise inconsistent("an answer that was given before, under the same id", retryable=True)
            _remember(self._ids, key, None)

    def check_list(self, payload: Mapping[str, Any], response: Mapping[str, Any], request: Request) -> None:
        """Raise ``inconsistent`` for a list that another prompt received; both requests are then in doubt."""
        values = None if "echo" in payload or "prompt_logprobs" in payload else _listed(response)
        if values is None or sum(_digits(value) for _, value in values) < _MIN_DIGITS:
            return
        prompt = _identity(payload)
        owner, first = self._lists.get(hash(values), (prompt, request))
        if owner != prompt:
            self.ambiguous.append(first)
            raise inconsistent("its list of next tokens is, bit for bit, that of another prompt", retryable=True)
        _remember(self._lists, hash(values), (prompt, first))


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    if len(known) > _TRACKED:
        known.pop(next(iter(known)))


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
