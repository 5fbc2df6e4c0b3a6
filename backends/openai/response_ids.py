"""Notices the response of another model or provider, and one that was given before."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from backends.base import Request
from backends.errors import BackendError
from backends.http.errors import inconsistent

_TRACKED_RESPONSES = 20_000
_KEPT_ENDS = 8


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


class ResponseIdTracker:
    """The model's name, its provider and the ids of the responses of one server.

    Attributes
    ----------
    model, provider : str or None
        Their names in the responses (a gateway names the provider). Once set, another name is refused.
    unique : bool
        Whether the server gives each response its own id: the same id with the same content is then a repetition.
    ambiguous : list of Request
        Requests that received a response which came again for a request in flight at the time: it is
        unknown to which of the two the response belongs.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.provider: str | None = None
        self.unique = False
        self.ambiguous: list[Request] = []
        # (id, content), since Ollama has only 999 ids → the request that received the response, and when.
        self._taken: dict[tuple[str, int], tuple[Request | None, float]] = {}

    @property
    def distinct(self) -> int:
        """How many different ids were seen."""
        return len({response_id for response_id, _ in self._taken})

    def check(self, response: Mapping[str, Any], *, request: Request | None = None, sent: float = math.inf) -> None:
        """Raise ``inconsistent`` for the response of another model or provider, and for one that was given before.

        ``request`` is what it answers, ``sent`` when that was sent (monotonic seconds).
        """
        self._check_names(response)
        response_id = response.get("id")
        if not isinstance(response_id, str) or not response_id:
            return
        key = response_id, hash(str(_abridged([response.get("created"), response.get("choices")])))
        if key in self._taken and self.unique:
            first, taken = self._taken[key]
            if first is not None and first is not request and sent < taken:
                self.ambiguous.append(first)
            raise inconsistent("an answer that was given before, under the same id", retryable=True)
        self._taken[key] = request, time.monotonic()
        if len(self._taken) > _TRACKED_RESPONSES:
            self._taken.pop(next(iter(self._taken)))

    def _check_names(self, response: Mapping[str, Any]) -> None:
        model, provider = response.get("model"), response.get("provider")
        if isinstance(model, str):
            self.model = self.model or model
            if model != self.model:
                message = f"the answer is from model {model[:80]!r}, but the audited one is {self.model[:80]!r}"
                raise ModelChangedError(message)
        if isinstance(provider, str) and provider:
            self.provider = self.provider or provider[:80]
            if provider[:80] != self.provider:
                raise OtherProviderError(provider, self.provider)


def _abridged(value: Any) -> Any:
    """A response without the middle of its long lists: enough to distinguish it from others."""
    if isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple):
        parts = value if len(value) <= 2 * _KEPT_ENDS else [*value[:_KEPT_ENDS], *value[-_KEPT_ENDS:]]
        return [_abridged(part) for part in parts]
    return value
