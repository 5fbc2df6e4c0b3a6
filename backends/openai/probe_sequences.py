"""Experiments with the log-probabilities of whole texts, against asking token by token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from backends.errors import BackendError
from backends.openai.findings import TextRoute
from backends.openai.probe_notebook import LARGEST_SPREAD, Notebook
from backends.openai.whole_sequence import echoed, prompt_logprobs

#: (text before, token, its log-probability)
Row = tuple[str, str, float]
#: Predictable texts: a short list holds their tokens, and a shifted row shows at once.
_SEQUENCES = ("Monday, Tuesday, Wednesday, Thursday", "Paris is the capital of France, Rome is the capital of Italy")
_COMPARED = 5
_REFUSED = ("bad_request", "not_found", "unsupported", "server")


async def text_route(book: Notebook) -> None:
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


async def _echo_agrees(book: Notebook) -> bool:
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


async def _prompt_logprobs_agree(book: Notebook) -> bool:
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


async def _agrees(book: Notebook, name: str, read: Callable[[str], Awaitable[list[Row]]]) -> bool:
    """Whether a route over whole texts gives what asking token by token gives."""
    compared, apart = 0, 0.0
    for text in _SEQUENCES:
        rows = await book.ask(read, text)
        if isinstance(rows, BackendError):
            book.note(name, None if rows.kind in _REFUSED else False, str(rows))
            return False
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
    book.note(name, agree, told)
    return agree
