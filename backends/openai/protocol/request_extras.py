"""What the user adds to every request, and which of it may change an answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator

from backends.base import Scalar
from backends.openai.capabilities import ServerCapabilities
from backends.options import OnError, refused, refused_at
from backends.reading.reasoning import DEFAULT_REASONING_TOKENS

#: Headers that only identify the client. All others may change who answers, or how.
_CLIENT_HEADERS = frozenset(
    (*("user-agent", "http-referer", "referer", "x-title", "openai-organization", "openai-project"),
     *("x-request-id", "x-client-request-id", "traceparent", "cookie"))
)  # fmt: skip
_KEY_HEADERS = frozenset(("authorization", "api-key", "x-api-key", "x-goog-api-key", "proxy-authorization"))
_KEY_FIELDS = frozenset(("key", "code", "token", "access_token", "api_key", "api-key", "subscription-key", "sig"))
#: In a body these name keys, and nothing else.
_KEY_NAMES = frozenset(("authorization", "api_key", "api-key", "apikey", "access_token", "x-api-key"))
#: Fields that this backend sets itself.
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


def _names(given: Any) -> Iterator[str]:
    """The names of all fields, also of nested ones."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            yield str(name)
            yield from _names(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _names(value)


def _body(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _names(given):
        if name.lower() in _KEY_NAMES:
            raise refused_at((name,), "…", "a field for keys", "Name the key by api_key_env")
    for name in given:
        if name in _OWN_FIELDS:
            raise refused_at((name,), given[name], "a field that the backend sets itself", "Remove it")
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
class RequestExtras:
    """What the user adds to the requests of one backend.

    Attributes
    ----------
    headers, query, extra_body : mapping
        As in `OpenAIBackend`.
    service_tier, reasoning_effort : str or None
        Fields of each request. The tier is not part of the fingerprint: it says how soon the same model answers.
    reasoning_tokens : int or None
        Added to the limit of a model that reasons. None: `DEFAULT_REASONING_TOKENS`.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    service_tier: str | None = None
    reasoning_effort: str | None = None
    reasoning_tokens: int | None = None

    @property
    def extra_tokens(self) -> int:
        """Tokens for reasoning, added to the limit of a model that reasons."""
        given = DEFAULT_REASONING_TOKENS if self.reasoning_tokens is None else self.reasoning_tokens
        return max(given, self.thinking_budget)

    @property
    def thinking_budget(self) -> int:
        """Tokens that Anthropic's models are given to think: each limit must be above it (simonw/llm-anthropic #15)."""
        thinking = self.extra_body.get("thinking")
        budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
        return budget if isinstance(budget, int) and not isinstance(budget, bool) else 0

    @property
    def body(self) -> dict[str, Any]:
        """The fields added to each request's body."""
        named = {"service_tier": self.service_tier, "reasoning_effort": self.reasoning_effort}
        return {**self.extra_body, **{name: value for name, value in named.items() if value is not None}}

    def identity(self) -> dict[str, Scalar]:
        """What may change an answer, as flat fields; empty when nothing is set."""
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _CLIENT_HEADERS}
        fields = {
            # A value may be secret: only its hash is kept.
            "headers": " ".join(f"{name}:{_hash(value)}" for name, value in sorted(headers.items())),
            "query": "&".join(f"{name}={value}" for name, value in sorted(self.query.items())),
            "extra_body": json.dumps(self.extra_body, sort_keys=True) if self.extra_body else "",
            "reasoning_effort": self.reasoning_effort or "",
        }
        return {name: value for name, value in fields.items() if value}

    def fingerprint(self, capabilities: ServerCapabilities) -> dict[str, Scalar]:
        """`identity`, and for a model that reasons its extra tokens.

        The default has a field name of its own (`RETIRED`): answers stored before there was a default stay valid.
        """
        name = "default_reasoning_tokens" if self.reasoning_tokens is None else "reasoning_tokens"
        return {**self.identity(), **({name: self.extra_tokens} if capabilities.reasons else {})}


#: The fingerprint field that answers stored by earlier versions lack.
RETIRED = frozenset(("default_reasoning_tokens",))


def _hash(text: str) -> str:
    return hashlib.sha256(b"bias-audit header\0" + text.encode()).hexdigest()[:8]
