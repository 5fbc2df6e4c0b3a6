"""Requests for the likeliest next tokens of a text or a chat."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backends.base import Message
from backends.openai.api import ServerApi
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs, read_top_logprobs

_HOT, _REDRAWS = 2.0, 8


async def next_tokens(api: ServerApi, prompt: str | Sequence[int], k: int) -> TopLogprobs:
    """The k likeliest tokens after a text, or after token ids."""

    async def ask(**draw: Any) -> dict[str, Any]:
        return await api.completion(prompt, max_tokens=1, logprobs=k, **draw)

    return await _top_logprobs(ask, k, api.temperature)


async def next_chat_tokens(api: ServerApi, messages: Sequence[Message], k: int, **flags: Any) -> TopLogprobs:
    """The k likeliest tokens that continue a chat."""

    async def ask(**draw: Any) -> dict[str, Any]:
        return await api.chat(messages, max_tokens=1, logprobs=True, top_logprobs=k, **draw, **flags)

    return await _top_logprobs(ask, k, api.temperature)


async def _top_logprobs(ask: Callable[..., Awaitable[dict[str, Any]]], k: int, temperature: float) -> TopLogprobs:
    """The list. llama-cpp-python omits it when it draws the end of the text; the request is then repeated.

    A hotter draw yields another token without changing the list, as the probe has verified.
    """
    try:
        return read_top_logprobs(await ask(temperature=temperature), k)
    except NothingDrawnError:
        hotter = _HOT if temperature == 0 else temperature
        for seed in range(1, _REDRAWS + 1):
            with contextlib.suppress(NothingDrawnError):
                return read_top_logprobs(await ask(temperature=hotter, seed=seed), k)
        raise
