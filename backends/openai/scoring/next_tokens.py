"""Requests for the likeliest next tokens of a text or a chat."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from backends.base import Message
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs, read_top_logprobs

_HOT, _REDRAWS = 2.0, 8


async def next_tokens(api: ServerApi, prompt: str | Sequence[int], k: int) -> TopLogprobs:
    """The k likeliest tokens after a text, or after token ids."""

    async def ask(api: ServerApi, **options: Any) -> dict[str, Any]:
        return await api.completion(prompt, logprobs=k, **options)

    return await _top_logprobs(api, ask, k)


async def next_chat_tokens(api: ServerApi, messages: Sequence[Message], k: int, **flags: Any) -> TopLogprobs:
    """The k likeliest tokens that continue a chat."""

    async def ask(api: ServerApi, **options: Any) -> dict[str, Any]:
        return await api.chat(messages, logprobs=True, top_logprobs=k, **options, **flags)

    return await _top_logprobs(api, ask, k)


async def _top_logprobs(api: ServerApi, ask: Callable[..., Awaitable[dict[str, Any]]], k: int) -> TopLogprobs:
    """The list. llama-cpp-python omits it when it draws the end of the text, llama.cpp's own server when it draws
    a part of a character; the request is then repeated.

    A hotter draw yields another token without changing the list, where the temperature of lists is 0.
    """
    options = {"max_tokens": 1, "temperature": api.found.temperature}
    try:
        return read_top_logprobs(await ask(api, **options), k)
    except NothingDrawnError:
        return await _drawn_again(api, ask, k, options)


async def _drawn_again(
    api: ServerApi, ask: Callable[..., Awaitable[dict[str, Any]]], k: int, options: Mapping[str, Any]
) -> TopLogprobs:
    lists_move = api.found.temperature > 0
    hotter = {**options, "temperature": api.found.temperature if lists_move else _HOT}
    for seed in range(1, _REDRAWS + 1):
        with contextlib.suppress(NothingDrawnError):
            return read_top_logprobs(await ask(api.with_sample_index(seed), **{**hotter, "seed": seed}), k)
    raise NothingDrawnError
