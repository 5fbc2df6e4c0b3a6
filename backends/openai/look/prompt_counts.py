"""The server's counts of a prompt's tokens against those of the model's own tokenizer: no request is sent for it.

They show what stands before every prompt, what rewrites prompts, and words that are masked.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from backends.base import Prompt
from backends.errors import ConfigError

#: Tokens by which the counts may differ: a BOS token, the end of a turn.
_MOST_OFF = 3
#: How many prompts must differ.
_FEWEST = 2


class PromptCounts:
    """The counts of some prompts. ``name``: a tokenizer on the hub, or a folder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._off: list[tuple[int, int]] = []
        self._compared = 0

    def add(self, prompt: Prompt, usage: Any) -> None:
        """Compare the count of a prompt that was answered; one that the server does not count is left out."""
        counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        if not isinstance(counted, int):
            return
        own = self._count(prompt)
        self._compared += 1
        if abs(counted - own) > _MOST_OFF:
            self._off.append((counted, own))

    def problem(self) -> str:
        """What the counts show, in one sentence; empty if they agree."""
        if len(self._off) < _FEWEST:
            return ""
        counted, own = self._off[0]
        return (
            f"it counts {counted} tokens where {self._name} makes {own} of what was sent, and differs for "
            f"{len(self._off)} of {self._compared} prompts: a text is added, or prompts are rewritten or cut. Ask the "
            "model's own server, or correct tokenizer"
        )

    def _count(self, prompt: Prompt) -> int:
        tokenizer = _loaded(self._name)
        if isinstance(prompt, str):
            return len(tokenizer(prompt)["input_ids"])
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])


@functools.cache
def _loaded(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ConfigError("tokenizer", name, str(error).split("\n")[0], "Name the model's folder or hub id") from None
