"""The result of a probe: readable, JSON-ready, and part of the model's fingerprint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter

from backends.openai.capabilities import ServerCapabilities
from backends.openai.probe.advice import next_step, proofs

#: Since version 5, lists are compared with draws, and near-identical prompts with each other. Since 6, lists may come
#: with a draw. Since 7, one list is compared with that of a longer answer; since 8, with those of two lengths, and
#: chosen tokens with all lists at hand. Since 9, a model that refuses temperature 0 alone is sent others, and chats of
#: several turns are compared with their rendered texts; llama.cpp's noise is that of a long text. Since 10, so is
#: llama-cpp-python's; a chat is watched beside texts, and the name of the limit is kept where chats have lists. Since
#: 11, some draws come after long prompts and such of many characters, and single draws are compared with lists too.
VERSION = 11
#: The experiment that finds which parameters chats accept.
PARAMETERS = "parameters of chats"
#: Fingerprint fields written by earlier versions that change no answer, on some servers or on any.
_RETIRED = frozenset(
    ("checks", "chat", "takes_ids", "answers_numbered", "identity", "temperature", "largest_k", "largest_chat_k")
)
#: Names of fields in reports of version 3 → their names now.
_CAPABILITIES_OF_3 = {"spread": "repeat_noise", "answers_numbered": "unique_response_ids"}


class CanaryValue(NamedTuple):
    """A log-probability (nats) that the same model must repeat; ``value`` None: only its upper bound is known."""

    value: float | None
    high: float


class Watched(NamedTuple):
    """A random question of one probe, and the log-probabilities of its continuations."""

    prompt: str
    is_chat: bool
    continuations: tuple[str, ...]
    values: tuple[CanaryValue, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one experiment. ``passed`` None: it could not be run, or is informative only."""

    name: str
    passed: bool | None
    message: str


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a probe showed about one server and model.

    Attributes
    ----------
    statements : tuple of str
        What a reader of figures must know: how disagreements were decided, and what is not used and why.
    limits : tuple of str
        What the probe cannot detect, and how large an undetected lie could be.
    without_scores : str
        Why no answer can be scored; empty if some can.
    version : int
        Version of the probe. An earlier one preserves a model's identity, but the server is probed again.
    """

    base_url: str
    model: str
    capabilities: ServerCapabilities
    checks: tuple[Check, ...]
    canary: tuple[CanaryValue, ...] = ()
    canary_id: str = ""
    requests: int = 0
    watched: tuple[Watched, ...] = ()
    version: int = VERSION
    statements: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    without_scores: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form; `from_json` reads it back."""
        return {**dataclasses.asdict(self), "capabilities": self.capabilities.model_dump()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote, in this version or the eight before. Raises ValueError for anything else."""
        if data.get("version") == 3:
            data = _from_version_3(data)
        if data.get("version") not in (4, 5, 6, 7, 8, 9, 10, VERSION):
            raise ValueError(f"a probe report of version {data.get('version')!r}")
        return TypeAdapter(cls).validate_python(data)

    def fingerprint(self, samples: int | None) -> dict[str, str | int | float | bool | None]:
        """Everything that may change an answer; ``samples`` is the number of draws of the route ``sampled``."""
        return {
            "backend": "openai",
            "base_url": self.base_url,
            "model": self.model,
            **self.capabilities.fingerprint(),
            "canary": self.canary_id,
            "samples": samples if "sampled" in self.capabilities.routes else None,
        }

    @property
    def knows_parameters(self) -> bool:
        """Whether the probe tested which parameters chats accept; early versions did not."""
        return any(check.name == PARAMETERS for check in self.checks)

    def retired_fields(self) -> frozenset[str]:
        """Fields that earlier versions wrote into this server's fingerprint although they change no answer."""
        return _RETIRED - self.capabilities.fingerprint().keys()

    @property
    def noise(self) -> str:
        """How far repeated numbers differed; a noise that nothing measured is not 0."""
        noise = self.capabilities.repeat_noise
        return f"{noise:.2g} nats" if noise or self._has_lists else "not measured"

    @property
    def lists(self) -> str:
        """How long lists are, and how their tokens are identified."""
        found = self.capabilities
        length = f"{found.largest_k} (chat {found.largest_chat_k})"
        return f"{length}, identified by {found.identity}" if self._has_lists else "none"

    @property
    def is_distrusted(self) -> bool:
        """Whether the server gives log-probabilities, and experiments contradict all of them."""
        return self._has_lists and not any(self.capabilities.routes)

    @property
    def refusal(self) -> str:
        """Why no answer can be scored: of a server that contradicts itself with its address, and what to do next."""
        if not self.is_distrusted:
            return self.without_scores
        failed = self._failed
        named = f" (failed: {', '.join(proofs(failed) or failed)})" if failed else ""
        return f"{self.base_url} contradicts its log-probabilities{named}: {self.without_scores}; {self._next_step}"

    @property
    def _next_step(self) -> str:
        return next_step(self._failed, self.base_url, self.model)

    @property
    def _failed(self) -> list[str]:
        return [check.name for check in self.checks if check.passed is False]

    @property
    def _has_lists(self) -> bool:
        found = self.capabilities
        return found.largest_k > 0 or found.largest_chat_k > 0

    def render_text(self) -> str:
        """The report for a terminal."""
        found = self.capabilities
        lines = [
            f"{self.model} at {self.base_url}",
            f"  scores of texts by    {found.text_route or 'none: not possible'}",
            f"  scores of chats by    {found.chat_route or 'none: not possible'}",
            f"  noise on repetition   {self.noise}",
            f"  list of next tokens   {self.lists}",
            f"  requests spent        {self.requests}",
            "",
        ]
        signs = {True: "ok  ", False: "FAIL", None: "-   "}
        width = max((len(c.name) for c in self.checks), default=0)
        lines += [f"  {signs[c.passed]} {c.name:<{width}}  {c.message}" for c in self.checks]
        said = any(statement.endswith(self.without_scores) for statement in self.statements)
        notes = [*self.statements, *([] if said else [self.without_scores])]
        lines += [f"  note  {note}" for note in notes if note]
        lines += [f"  next  {self._next_step}"] if self.is_distrusted else []
        lines += [f"  limit {limit}" for limit in self.limits]
        return "\n".join(lines)


def _from_version_3(data: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in data.items() if name != "findings"}
    capabilities = {_CAPABILITIES_OF_3.get(name, name): value for name, value in data["findings"].items()}
    checks = [{"name": c["name"], "passed": c["passed"], "message": c["detail"]} for c in data["checks"]]
    return {**rest, "capabilities": capabilities, "checks": checks, "version": 4}
