"""The options of a model behind an OpenAI-style server, and what they add to every request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from backends.base import Scalar
from backends.http.options import AtLeastOne, ExtraBody, HttpOptions, OptionalText, Variable
from backends.options import OnError, refused_at
from backends.reading.reasoning import DEFAULT_REASONING_TOKENS

#: Fields that this backend sets itself.
_OWN_FIELDS = frozenset(
    (*("model", "messages", "prompt", "n", "stream", "echo", "logprobs", "top_logprobs", "prompt_logprobs"),
     *("max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed"))
)  # fmt: skip


def _without_own(given: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in given:
        if name in _OWN_FIELDS:
            raise refused_at((name,), given[name], "a field that the backend sets itself", "Remove it")
    return given


class OpenAIOptions(HttpOptions):
    """`HttpOptions`, and those of OpenAI-style servers.

    Attributes
    ----------
    samples : int, optional
        If the server gives no log-probabilities, draw this many answers per question and count them. This
        costs as many requests.
    tokenizer : str, optional
        Hub id of the model's own tokenizer: the server's counts of tokens are compared with it, without a request.
    reasoning_effort : str, optional
        Sent unchanged (``low``, ``none``…): how long the model may reason.
    reasoning_tokens : int, optional
        Extra tokens for reasoning, added to each answer's limit if the model reasons. Default: 4096.
    batch : bool
        Use the provider's batch API for texts and drawn answers: half the price, answers within a day.
    probe_folder : str or Path, optional
        Where what was found out about each server is kept. Default: the user's cache folder.
    """

    api_key_env: Variable = "OPENAI_API_KEY"
    extra_body: Annotated[ExtraBody, AfterValidator(_without_own)] = Field(default_factory=dict)
    samples: AtLeastOne | None = None
    tokenizer: OptionalText = None
    reasoning_effort: OptionalText = None
    reasoning_tokens: Annotated[int, Field(ge=0)] | None = None
    batch: bool = False
    probe_folder: Annotated[str | Path | None, OnError("not a text", "Write it in quotes")] = None

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
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return {**self.extra_body, **effort}

    def identity(self, *, reasons: bool = False) -> dict[str, Scalar]:
        """What may change an answer, as flat fields; for a model that reasons also the tokens that it gets for it."""
        headers = {name.lower(): hashlib.sha256(value.encode()).hexdigest() for name, value in self.headers.items()}
        fields: dict[str, Scalar] = {
            # A value may be secret: only its hash is kept.
            "headers": " ".join(f"{name}:{hashed[:8]}" for name, hashed in sorted(headers.items())),
            "query": "&".join(f"{name}={value}" for name, value in sorted(self.query.items())),
            "extra_body": json.dumps(self.extra_body, sort_keys=True) if self.extra_body else "",
            "reasoning_effort": self.reasoning_effort or "",
            "reasoning_tokens": self.extra_tokens if reasons else "",
        }
        return {name: value for name, value in fields.items() if value != ""}
