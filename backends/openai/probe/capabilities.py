"""What a probe found out about a server, and the report made of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from backends.openai.scoring.tokenizer import Dialect

TextRoute = Literal["prompt_logprobs", "echo", "top_k_ids", "top_k", "sampled"]
ChatRoute = Literal["rendered", "chat_prefill", "chat_first", "sampled"]
Prefill = Literal["repeated", "continued", "flags"]


class CanaryValue(NamedTuple):
    """A log-probability that the same model must give again: None where only ``high``, its upper bound, is known."""

    value: float | None
    high: float


@dataclass(frozen=True, slots=True)
class Check:
    """One experiment. ``passed`` None: it could not be made, or is only worth knowing."""

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """What the routes need to know.

    Attributes
    ----------
    text_route, chat_route
        The best route that was proven, None where there is none.
    family : str or None
        Whose words the server understands: a tokenizer's dialect.
    largest_k, largest_chat_k : int
        The longest list of next tokens that it gives; the vocabulary's size when it gives all.
    identity : str or None
        What tells listed tokens apart: ids, bytes or text.
    bos : bool or None
        Whether a text's tokens begin with one of their own; None where that is not known.
    spread : float
        How far its own numbers move from one asking to the next, in nats.
    uncached : bool
        Whether it is asked without its cache of earlier prompts, because that moves its numbers.
    temperature : float
        At which lists are the model's own.
    prefill
        How a chat goes on with a last assistant turn.
    """

    text_route: TextRoute | None = None
    chat_route: ChatRoute | None = None
    completions: bool = False
    chat: bool = False
    family: Dialect | None = None
    largest_k: int = 0
    largest_chat_k: int = 0
    identity: str | None = None
    takes_ids: bool = False
    bos: bool | None = None
    spread: float = 0.0
    uncached: bool = False
    prefill: Prefill | None = None
    temperature: float = 0.0
    seed_works: bool = False
    answers_numbered: bool = False
    answered_model: str | None = None

    @property
    def always_sent(self) -> dict[str, Any]:
        """What goes with every question."""
        return {"cache_prompt": False} if self.uncached else {}


#: Checks whose outcome may change with the server's noise: no part of its identity.
_OF_NOISE = ("repetition and order", "chat repeated")


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The result of a probe: readable, JSON-ready, and a part of the model's fingerprint."""

    base_url: str
    model: str
    findings: ServerCapabilities
    checks: tuple[Check, ...]
    canary: tuple[CanaryValue, ...] = ()
    canary_id: str = ""
    requests: int = 0
    version: int = 3

    #: Raised when findings mean something else than before: older reports are not read.
    VERSION: ClassVar[int] = 3

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; `from_json` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeReport:
        """Read back what `to_json` wrote. Raises KeyError or TypeError for anything else."""
        return cls(
            **{
                **data,
                "findings": ServerCapabilities(**data["findings"]),
                "checks": tuple(Check(**c) for c in data["checks"]),
                "canary": tuple(CanaryValue(*c) for c in data["canary"]),
            }
        )

    def identity(self) -> dict[str, str | int | float | bool | None]:
        """What was found, but for the noise: the probe's part of the model's fingerprint."""
        found = dataclasses.asdict(self.findings)
        del found["spread"]
        signs = {True: "ok", False: "failed", None: "-"}
        checks = sorted(f"{c.name}: {signs[c.passed]}" for c in self.checks if c.name not in _OF_NOISE)
        return {**found, "checks": "; ".join(checks), "canary": self.canary_id}

    def render_text(self) -> str:
        """The report for a terminal."""
        found = self.findings
        lines = [
            f"{self.model} at {self.base_url}",
            f"  scores of texts by    {found.text_route or 'none: not possible'}",
            f"  scores of chats by    {found.chat_route or 'none: not possible'}",
            f"  own spread            {found.spread:.2g} nats",
            f"  list of next tokens   {found.largest_k} (chat {found.largest_chat_k}), told apart by {found.identity}",
            f"  requests spent        {self.requests}",
            "",
        ]
        signs = {True: "ok  ", False: "FAIL", None: "-   "}
        width = max((len(c.name) for c in self.checks), default=0)
        lines += [f"  {signs[c.passed]} {c.name:<{width}}  {c.detail}" for c in self.checks]
        return "\n".join(lines)
