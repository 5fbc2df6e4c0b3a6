"""Tracks the model names and ids of responses, to notice another model and repeated responses."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from backends.base import Request
from backends.errors import BackendError
from backends.http.errors import inconsistent

_TRACKED_RESPONSES = 20_000
_KEPT_ENDS = 8
#: Different ids of a server that was not probed, after which its ids count as its own.
_FEWEST_IDS = 4


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
    """The model's name, its provider and the ids of the responses of one server, or of replicas of it.

    Attributes
    ----------
    model, provider : str or None
        Their names in the responses (a gateway names the provider). Once set, another name is refused.
    unique : bool
        Whether the server gives each response its own id: the same id with the same content is then a repetition.
    server : str
        The server that was probed for that. Another one gives its own ids if it gave several, and none of them twice.
    ambiguous : list of Request
        Requests that received a response which came again for a request in flight at the time: it is
        unknown to which of the two the response belongs.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.provider: str | None = None
        self.unique, self.server = False, ""
        self.ambiguous: list[Request] = []
        # (server, id, content), since Ollama has only 999 ids → the request that received the response, and when.
        self._taken: dict[tuple[str, str, int], tuple[Request | None, float]] = {}
        self._ids: dict[str, set[str]] = defaultdict(set)  # by server, the latest
        self._reusing: set[str] = set()

    @property
    def distinct(self) -> int:
        """How many different ids were seen."""
        return len({(server, response_id) for server, response_id, _ in self._taken})

    def check(
        self,
        response: Mapping[str, Any],
        *,
        request: Request | None = None,
        sent: float = math.inf,
        server: str = "",
    ) -> None:
        """Raise ``inconsistent`` for the response of another model or provider, and for one that was given before.

        ``request`` is what it answers, ``sent`` when that was sent (monotonic seconds), ``server`` who answered.
        """
        model, response_id = response.get("model"), response.get("id")
        if isinstance(model, str) and self.model is None:
            self.model = model
        elif isinstance(model, str) and model != self.model:
            raise ModelChangedError(
                f"the answer is from model {model[:80]!r}, but the audited one is {str(self.model)[:80]!r}"
            )
        provider = response.get("provider")
        if isinstance(provider, str) and provider:
            self.provider = self.provider or provider[:80]
            if provider[:80] != self.provider:
                raise OtherProviderError(provider, self.provider)
        if not isinstance(response_id, str) or not response_id:
            return
        key = server, response_id, hash(str(_abridged([response.get("created"), response.get("choices")])))
        if key in self._taken and self._gives_own_ids(server):
            first, taken = self._taken[key]
            if first is not None and first is not request and sent < taken:
                self.ambiguous.append(first)
            raise inconsistent("an answer that was given before, under the same id", retryable=True)
        if response_id in self._ids[server]:
            self._reusing.add(server)
        self._ids[server].add(response_id)
        self._taken[key] = request, time.monotonic()
        if len(self._taken) > _TRACKED_RESPONSES:
            other, oldest, _ = next(iter(self._taken))
            self._taken.pop(next(iter(self._taken)))
            self._ids[other].discard(oldest)

    def _gives_own_ids(self, server: str) -> bool:
        if not self.unique or server == self.server:
            return self.unique
        return server not in self._reusing and len(self._ids[server]) >= _FEWEST_IDS


def _abridged(value: Any) -> Any:
    """A response without the middle of its long lists: enough to distinguish it from others."""
    if isinstance(value, Mapping):
        value = [*value.items()]
    if isinstance(value, list | tuple):
        parts = value if len(value) <= 2 * _KEPT_ENDS else [*value[:_KEPT_ENDS], *value[-_KEPT_ENDS:]]
        return [_abridged(part) for part in parts]
    return value
