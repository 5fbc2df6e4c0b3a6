"""Experiments with the log-probabilities of whole texts, against asking token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from backends.errors import BackendError
from backends.openai.probe.capabilities import TextRoute
from backends.openai.probe.session import FAR_DOWN, LARGEST_SPREAD, ProbeSession
from backends.openai.scoring.prompt_logprobs import echoed, prompt_logprobs

#: (text before, token, its log-probability)
Row = tuple[str, str, float]
#: Predictable texts: a short list holds their tokens, and a shifted row shows at once.
_SEQUENCES = ("Monday, Tuesday, Wednesday, Thursday", "Paris is the capital of France, Rome is the capital of Italy")
#: Longer than two of vLLM's cache blocks of 16 tokens: of a shorter text nothing is taken from the cache.
_LONG = ", ".join(("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday") * 3)
_OTHER_END = _LONG.removesuffix("Sunday") + "Tuesday"
_COMPARED = 5
_REFUSED = ("bad_request", "not_found", "unsupported", "server")


async def text_route(book: ProbeSession) -> None:
    """The best route for texts whose numbers are those of asking token by token."""
    if book.found.spread > LARGEST_SPREAD:
        return
    by_ids = await _prompt_logprobs_agree(book)
    by_echo = await _echo_agrees(book)
    route: TextRoute = "top_k_ids" if book.tokenizer and book.found.takes_ids else "top_k"
    if by_ids:
        route = "prompt_logprobs"
    elif by_echo:
        route = "echo"
    book.learn(text_route=route)


async def _echo_agrees(book: ProbeSession) -> bool:
    shape: list[bool] = []

    async def read(text: str) -> list[Row]:
        tokens = await echoed(book.api, text)
        shape.append(True)
        return [
            (text[: t.start], t.text, t.logprob)
            for t in tokens
            if t.logprob is not None and t.start > 0 and t.text.strip().isalpha()
        ]

    agree = await _agrees(book, "echo", read)
    if shape:
        book.note("echoed rows", True, "tokens and offsets give the text back; only the first is null")
    return agree


async def _prompt_logprobs_agree(book: ProbeSession) -> bool:
    tokenizer = book.tokenizer
    if tokenizer is None or not book.found.takes_ids:
        book.note("prompt_logprobs", None, "not tried: needs prompts as token ids")
        return False

    async def read(text: str) -> list[Row]:
        pieces = await tokenizer.pieces(text)
        values = await prompt_logprobs(book.api, [p.token_id for p in pieces])
        rows, before = [], ""
        for piece, value in zip(pieces, values, strict=True):
            token = piece.data.decode()
            if value is not None and before and token.strip().isalpha():
                rows.append((before, token, value))
            before += token
        return rows

    return await _agrees(book, "prompt_logprobs", read)


async def _agrees(book: ProbeSession, name: str, read: Callable[[str], Awaitable[list[Row]]]) -> bool:
    """Whether a route over whole texts gives what asking token by token gives, and gives it again."""
    compared, apart = 0, 0.0
    first: list[Row] = []
    for text in _SEQUENCES:
        rows = await book.ask(read, text)
        if isinstance(rows, BackendError):
            book.note(name, None if rows.kind in _REFUSED else False, str(rows))
            return False
        first += rows
        for before, token, value in rows[-_COMPARED:]:
            listing = await book.listed(before, min(book.found.largest_k, 1000))
            if isinstance(listing, BackendError):
                continue
            entries = listing.by_bytes(token.encode())
            if len(entries) == 1 and listing.names(entries[0]):
                compared += 1
                apart = max(apart, abs(entries[0].logprob - value))
    agree = compared >= 3 and apart <= book.tolerance()
    told = f"{apart:.2g} nats from asking token by token, {compared} tokens" if compared else "could not be compared"
    if agree:
        moved = await _moves(book, read, first)
        if isinstance(moved, BackendError):
            agree, told = False, f"{told}; not when asked again: {moved}"
        else:
            agree, told = moved <= book.tolerance(), f"{told}; {moved:.2g} nats from being asked again"
            book.learn(spread=max(book.found.spread, moved) if agree else book.found.spread)
    book.note(name, agree, told)
    return agree


async def _moves(
    book: ProbeSession, read: Callable[[str], Awaitable[list[Row]]], first: list[Row]
) -> float | BackendError:
    """How far the values move when texts were read before, and are read beside one that begins alike."""
    read_now = [await book.ask(read, text) for text in (*_SEQUENCES, _LONG)]
    read_now += await asyncio.gather(*(book.ask(read, text) for text in (_LONG, _OTHER_END)))
    known = {(before, token): value for before, token, value in first}
    farthest = 0.0
    for rows in read_now:
        if isinstance(rows, BackendError):
            return rows
        for before, token, value in rows:
            then = known.setdefault((before, token), value)
            if max(then, value) > FAR_DOWN:
                farthest = max(farthest, abs(then - value))
    return farthest
