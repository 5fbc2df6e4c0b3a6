"""What a look found, and where it is kept for a day."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ConfigDict, ValidationError

from backends.files import atomic_write
from backends.openai.capabilities import ServerCapabilities

#: Seconds for which a look holds.
DAY = 86_400.0


class Look(BaseModel):
    """What a look found.

    Attributes
    ----------
    capabilities : ServerCapabilities
    lines : tuple of str
        Three sentences for the terminal.
    refusal : str
        Why no answer can be scored; empty if some can.
    statements : tuple of str
        What a reader of figures must know: what is not used, and why.
    requests : int
        How many it took.
    identity : str
        Stays the same as long as the server lists the same next words: part of the model's fingerprint.
    lists : dict
        Of each kind of prompt ("text", "chat") the next words of one prompt, with their log-probabilities (nats).
    prompts : int
        Different prompts that got different lists.
    noise : float
        Nats by which one list moved when it was asked for again.
    at : float
        When, in seconds since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    capabilities: ServerCapabilities
    lines: tuple[str, ...]
    refusal: str = ""
    statements: tuple[str, ...] = ()
    requests: int = 0
    identity: str = ""
    lists: dict[str, dict[str, float]] = {}
    prompts: int = 0
    noise: float = 0.0
    at: float = 0.0

    @property
    def is_distrusted(self) -> bool:
        """Whether the server gives log-probabilities, and none of them is used."""
        return bool(self.lists) and not any(self.capabilities.routes)


def last_look(*, identity: Mapping[str, Any], folder: Path | None) -> Look | None:
    """The last look, however old; None if there is none, or it cannot be read."""
    try:
        return Look.model_validate_json(_file(identity, folder).read_text("utf-8"))
    except (OSError, ValidationError, ValueError):
        return None


def stored_look(*, identity: Mapping[str, Any], folder: Path | None) -> Look | None:
    """The last look, if it is at most a day old. Sends nothing."""
    last = last_look(identity=identity, folder=folder)
    return last if last is not None and 0 <= time.time() - last.at <= DAY else None


def keep_look(look: Look, *, identity: Mapping[str, Any], folder: Path | None) -> None:
    """Keep a look. If the folder cannot be written to, the next run looks again."""
    with contextlib.suppress(OSError):
        atomic_write(_file(identity, folder), look.model_dump_json())


def _file(identity: Mapping[str, Any], folder: Path | None) -> Path:
    folder = folder or platformdirs.user_cache_path("bias-audit") / "looks"
    name = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode()).hexdigest()[:24]
    return folder / f"{name}.json"
