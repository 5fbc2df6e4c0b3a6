"""Lists of next tokens, and scores from them: for each token of a continuation, the list after the tokens before it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import ContinuationScore, Message, TokenLogprob
from backends.errors import BackendError
from backends.http.client import together
from backends.openai.api import ServerApi
from backends.openai.scoring.tokenizer import Joined, Piece, RemoteTokenizer
from backends.openai.scoring.top_logprobs import (
    ListedToken,
    NothingDrawnError,
    TopLogprobs,
    read_top_logprobs,
    scored,
    upper_bound,
)

#: What an answer continues: a text, its token ids, or a chat.
Sent = str | Sequence[int] | Sequence[Message]
#: Length of the first list requested. It holds most tokens; a list of the whole vocabulary takes megabytes.
FIRST_K = 2000
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


async def score_by_lists(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer
) -> tuple[ContinuationScore, ...]:
    """One score per continuation, by the server's own tokens: exact, or bounded if a list is too short.

    Each prefix that continuations share is requested once.
    """
    paths = [await tokenizer.joined(prompt, c) for c in continuations]
    wanted: dict[tuple[Piece, ...], set[Piece]] = {}
    for path in paths:
        for at in range(path.first_scored, len(path.pieces)):
            wanted.setdefault(path.pieces[:at], set()).add(path.pieces[at])
    found = await together(_list_after(api, before, pieces, tokenizer) for before, pieces in wanted.items())
    lists = dict(zip(wanted, found, strict=True))
    return tuple(_scored(api, path, lists) for path in paths)


async def _list_after(
    api: ServerApi, before: tuple[Piece, ...], wanted: set[Piece], tokenizer: RemoteTokenizer
) -> TopLogprobs | None:
    """The list after these tokens, as long as needed if possible; None if they cannot be forced."""
    sent: Sent = tuple(piece.token_id for piece in before)
    if api.found.text_route != "top_k_ids":
        try:
            text = b"".join(piece.data for piece in before).decode()
        except UnicodeDecodeError:
            return None
        if tuple(await tokenizer.ids(text)) != sent:
            return None  # alone, the text is tokenised differently: a different condition
        sent = text
    top: TopLogprobs | None = None
    for k in sorted({min(FIRST_K, api.found.largest_k), api.found.largest_k}):
        top = await next_tokens(api, sent, k)
        if all(top.entries(piece.data, piece.token_id) for piece in wanted):
            break
    return top


def _scored(api: ServerApi, path: Joined, lists: Mapping[tuple[Piece, ...], TopLogprobs | None]) -> ContinuationScore:
    tokens: list[TokenLogprob] = []
    for at, (piece, text, start, end) in enumerate(path.spans(), path.first_scored):
        if (top := lists[path.pieces[:at]]) is None:
            break
        value, is_exact = _value_of(top, piece.data, piece.token_id)
        tokens.append(TokenLogprob(text, start, end, value, piece.token_id, is_exact))
    is_exact = len(tokens) == len(path.pieces) - path.first_scored and all(t.exact for t in tokens)
    return scored(tokens, path.boundary, str(api.found.text_route), api.found.repeat_noise, is_exact=is_exact)


def _value_of(top: TopLogprobs, data: bytes, token_id: int | None = None) -> tuple[float, bool]:
    """A token's log-probability and True, or its upper bound and False."""
    entries = top.entries(data, token_id)
    if not entries:
        return upper_bound(top), False
    if len(entries) == 1 and top.identifies(entries[0]):
        return entries[0].logprob, True
    return _collided(top, entries), False


def _collided(top: TopLogprobs, entries: Sequence[ListedToken]) -> float:
    """The highest log-probability that one of several tokens with the same string can have."""
    if top.identity == "bytes":
        return max(t.logprob for t in entries)
    # The entry has the rank of its likeliest token, which is below the entry before it. If the order means
    # nothing, its value is its own.
    at = min(top.tokens.index(t) for t in entries)
    return max(top.tokens[at - 1].logprob, *(t.logprob for t in entries)) if at else 0.0


def score_by_first_token(
    top: TopLogprobs, start: str, continuation: str, route: str, noise: float
) -> ContinuationScore:
    """A score for a server that neither shows its tokens nor accepts them: by the bytes of the first listed tokens.

    A continuation that is a single listed token is scored. One that is split is at most as likely as the likeliest
    token that it may start with. ``start``: the text (or the assistant prefill) that it is appended to.
    """
    data = continuation.encode()
    if not starts_a_token(start, continuation):
        problem = f"without a tokenizer it is unknown which token of {continuation[:40]!r} follows {start[-20:]!r}"
        hint = "Put the space at the start of the continuation, not at the end of the prompt"
        raise BackendError("unsupported", problem, hint=hint)
    value, is_exact = _value_of(top, data)
    if is_exact:
        (entry,) = top.entries(data)
        token = TokenLogprob(continuation, 0, len(continuation), value, entry.token_id)
        return ContinuationScore.exact((token,), route=route)
    if not top.entries(data):
        starts = top.prefixes_of(data)
        value = max([value, *(t.logprob if top.identifies(t) else _collided(top, [t]) for t in starts)])
    return ContinuationScore(None, None, min(value + noise, 0.0), "bounded", "clean", (), route)


def starts_a_token(before: str, text: str) -> bool:
    """Whether every tokenizer puts a token boundary between the two: at a space or line break that begins a word.

    The tokenizers of Llama 3 and GPT-4 join a line break to the punctuation before it.
    """
    if not before or before[-1] == "\n":
        return not text[0].isspace()
    return (text[0] == " " and not before[-1].isspace()) or (text[0] == "\n" and before[-1].isalnum())
