"""What goes with every request by the user's wish, and which of it may change an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator

from backends.base import Scalar
from backends.openai.capabilities import ServerCapabilities
from backends.options import OnError, refused, refused_at

#: Tokens that a thought may take where none are set.
DEFAULT_ROOM = 4096
#: Headers that say who asks. All others may change who answers, or how.
_WHO_ASKS = frozenset(
    (*("user-agent", "http-referer", "referer", "x-title", "openai-organization", "openai-project"),
     *("x-request-id", "x-client-request-id", "traceparent", "cookie"))
)  # fmt: skip
_KEY_HEADERS = frozenset(("authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization"))
_KEY_FIELDS = frozenset(("key", "code", "token", "access_token", "api_key", "api-key", "subscription-key", "sig"))
#: What the engine itself says in a request.
_OWN_FIELDS = frozenset(
    (*("model", "messages", "prompt", "n", "stream", "echo", "logprobs", "top_logprobs", "prompt_logprobs"),
     *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed"))
)  # fmt: skip


def _headers(given: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in given.items():
        if name.lower() in _KEY_HEADERS:
            raise refused_at((name,), "…", "a header for keys", "Name the key by api_key_env, its header by key_header")
        if not name.isascii() or not value.isascii() or not value.isprintable():
            raise refused_at((name,), value, "not a header", "Use printable ASCII")
    return dict(given)


def _query(given: Mapping[str, str]) -> Mapping[str, str]:
    for name in given:
        if name.lower() in _KEY_FIELDS:
            raise refused_at((name,), "…", "a field for keys", "Name the key by api_key_env")
    return dict(given)


def _body(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in given:
        if name in _OWN_FIELDS:
            raise refused_at((name,), given[name], "a field that the questions set", "Remove it")
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError):
        raise refused("not JSON", "Use texts, numbers, true, false, null, lists and tables") from None
    return dict(given)


Headers = Annotated[
    Mapping[str, str] | None,
    AfterValidator(lambda given: _headers(given) if given else None),
    OnError("not headers", "Write them as a table of texts"),
]
Query = Annotated[
    Mapping[str, str] | None,
    AfterValidator(lambda given: _query(given) if given else None),
    OnError("not fields of a query", "Write them as a table of texts"),
]
ExtraBody = Annotated[
    Mapping[str, Any] | None,
    AfterValidator(lambda given: _body(given) if given else None),
    OnError("not fields of a request", "Write them as a table"),
]


@dataclass(frozen=True)
class SentAlong:
    """What the user adds to the requests of one backend.

    Attributes
    ----------
    headers, query, extra_body : mapping
        As in `OpenAIBackend`.
    service_tier, reasoning_effort : str or None
        Fields of each question. The tier is no part of the fingerprint: it says how soon the same model answers.
    reasoning_tokens : int or None
        Added to the limit of a model that reasons. None: `DEFAULT_ROOM`.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    service_tier: str | None = None
    reasoning_effort: str | None = None
    reasoning_tokens: int | None = None

    @property
    def room(self) -> int:
        """Tokens for a thought."""
        return DEFAULT_ROOM if self.reasoning_tokens is None else self.reasoning_tokens

    @property
    def body(self) -> dict[str, Any]:
        """The fields of each question."""
        named = {"service_tier": self.service_tier, "reasoning_effort": self.reasoning_effort}
        return {**self.extra_body, **{name: value for name, value in named.items() if value is not None}}

    def identity(self) -> dict[str, Scalar]:
        """What may change an answer, as flat fields; none where nothing is set."""
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _WHO_ASKS}
        fields = {
            # A value may be secret: its hash tells it from others.
            "headers": " ".join(f"{name}:{_hash(value)}" for name, value in sorted(headers.items())),
            "query": "&".join(f"{name}={value}" for name, value in sorted(self.query.items())),
            "extra_body": json.dumps(self.extra_body, sort_keys=True) if self.extra_body else "",
            "reasoning_effort": self.reasoning_effort or "",
        }
        return {name: value for name, value in fields.items() if value}

    def fingerprint(self, capabilities: ServerCapabilities) -> dict[str, Scalar]:
        """`identity`, and the room for thoughts of a model that has any.

        The default has a name of its own (`RETIRED`), since answers from before there was one are the same model's.
        """
        name = "default_reasoning_tokens" if self.reasoning_tokens is None else "reasoning_tokens"
        return {**self.identity(), **({name: self.room} if capabilities.reasons else {})}


#: The field of the fingerprint that answers of earlier versions lack.
RETIRED = frozenset(("default_reasoning_tokens",))


def _hash(text: str) -> str:
    return hashlib.sha256(b"bias-audit header\0" + text.encode()).hexdigest()[:8]
