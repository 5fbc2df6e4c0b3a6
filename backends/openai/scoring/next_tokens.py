"""Requests for the likeliest next tokens of a text or a chat."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from backends.base import Message
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs, read_top_logprobs

#: What an answer continues: a text, its token ids, or a chat.
Sent = str | Sequence[int] | Sequence[Message]
_HOT, _REDRAWS = 2.0, 8


async def ask(api: ServerApi, prompt: Sent, listed: int = 0, **options: Any) -> dict[str, Any]:
    """The answer to a text, token ids or a chat, with lists of ``listed`` next tokens."""
    if not isinstance(prompt, str) and isinstance(prompt[0], Message):
        lists = {"logprobs": True, "top_logprobs": listed} if listed else {}
        return await api.chat(prompt, **lists, **options)  # type: ignore[arg-type]
    return await api.completion(prompt, **({"logprobs": listed} if listed else {}), **options)  # type: ignore[arg-type]


async def next_tokens(api: ServerApi, prompt: Sent, k: int, **flags: Any) -> TopLogprobs:
    """The k likeliest tokens after a text, token ids or a chat.

    llama-cpp-python omits the list when it draws the end of the text, llama.cpp's own server when it draws a part of
    a character; the request is then repeated. A hotter draw yields another token without changing the list, where the
    temperature of lists is 0.
    """
    options: dict[str, Any] = {"max_tokens": 1, "temperature": api.found.temperature, **flags}
    with contextlib.suppress(NothingDrawnError):
        return read_top_logprobs(await ask(api, prompt, k, **options), k)
    options["temperature"] = api.found.temperature or _HOT
    for seed in range(1, _REDRAWS + 1):
        with contextlib.suppress(NothingDrawnError):
            return read_top_logprobs(await ask(dataclasses.replace(api, draw=seed), prompt, k, seed=seed, **options), k)
    raise NothingDrawnError
