"""Experiments with lists of next tokens: how long, how steady, whose numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from backends.errors import BackendError
from backends.openai.probe.session import FULL_PRECISION, LARGEST_SPREAD, OTHER, PROMPT, ProbeSession, distance
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs

_HALF = PROMPT.replace("one word", "a drawing")  # begins like it and leaves a cache that is half of use
_WHOLE = 10**6


async def completions(book: ProbeSession) -> TopLogprobs | BackendError:
    """Whether texts are continued, with lists or without."""
    listing = await book.listed(PROMPT, 5)
    if isinstance(listing, TopLogprobs):
        book.learn(completions=True, identity=listing.identity)
        book.note("next-token lists", True, f"told apart by {listing.identity}")
        return listing
    plain = await book.ask(book.api.completion, PROMPT, max_tokens=1, temperature=0.0)
    book.learn(completions=isinstance(plain, dict))
    book.note("completions", isinstance(plain, dict), "without lists" if isinstance(plain, dict) else str(plain))
    book.note("next-token lists", False, str(listing))
    return listing


async def longest(
    ask: Callable[[int], Awaitable[TopLogprobs | BackendError]],
) -> tuple[TopLogprobs | BackendError, int]:
    """The longest list of up to 1000 entries, and its length; 0 with the last refusal."""
    refused: int | None = None
    for k in (1000, 100, 20, 5, 1):
        listing = await ask(k)
        if isinstance(listing, TopLogprobs):
            break
        if isinstance(listing, NothingDrawnError) or listing.kind in ("not_found", "auth"):
            return listing, 0  # a shorter list will not help
        refused = k
    else:
        return listing, 0
    while refused is not None and refused - k > 1 and len(listing.tokens) >= k:
        middle = (k + refused) // 2
        longer = await ask(middle)
        if isinstance(longer, TopLogprobs):
            k, listing = middle, longer
        else:
            refused = middle
    return listing, min(k, len(listing.tokens))


async def longest_list(book: ProbeSession) -> None:
    """The largest k, up to the whole vocabulary."""
    listing, k = await longest(lambda k: book.listed(PROMPT, k))
    if not isinstance(listing, TopLogprobs):
        return
    if k >= 0.9 * 1000:  # strings may collide
        whole = await book.listed(PROMPT, _WHOLE)
        if isinstance(whole, TopLogprobs) and len(whole.tokens) > len(listing.tokens):
            book.learn(largest_k=_WHOLE)
            kind = ", the whole vocabulary" if whole.is_whole else ""
            book.note("longest list", True, f"{len(whole.tokens)} entries{kind}")
            return
    book.learn(largest_k=k)
    book.note("longest list", True, f"{k} entries")


async def own_spread(book: ProbeSession) -> None:
    """How far the numbers move by themselves; less without llama.cpp's cache, where it can be left out."""
    spread, how = await _moves(book), ""
    if isinstance(spread, float) and spread > FULL_PRECISION and book.found.family == "llama.cpp":
        book.api.always = {"cache_prompt": False}
        without = await _moves(book)
        if isinstance(without, float) and without < spread / 2:
            how = f"; {spread:.2g} with the server's cache, which is left out"
            spread = without
            book.learn(uncached=True)
        else:
            book.api.always = {}
    if isinstance(spread, BackendError):
        book.learn(spread=float("inf"))
        book.note("repetition and order", False, str(spread))
        return
    book.learn(spread=spread)
    book.note("repetition and order", spread <= LARGEST_SPREAD, f"move the numbers by up to {spread:.2g} nats{how}")


async def _moves(book: ProbeSession) -> float | BackendError:
    """The same question after others, with its start in the cache, and together with others."""
    k = min(book.found.largest_k, 1000)
    lists = [await book.listed(PROMPT, k)]
    others = []
    for before in (_HALF, PROMPT + " The", OTHER):
        others.append(await book.listed(before, 1))
        lists.append(await book.listed(PROMPT, k))
    together = await asyncio.gather(*(book.listed(text, k) for text in (PROMPT, OTHER, PROMPT, _HALF, PROMPT)))
    lists += together[::2]
    # A server that lies about another text than the first is no more believed than one that lies about the first.
    lies = [one for one in (*others, *together) if isinstance(one, BackendError) and one.kind == "inconsistent"]
    failed = next((one for one in (*lies, *lists) if isinstance(one, BackendError)), None)
    if failed is not None:
        return failed
    read = [one for one in lists if isinstance(one, TopLogprobs)]
    return max(distance(read[0], other) for other in read[1:])


async def temperature(book: ProbeSession, first: TopLogprobs) -> None:
    """Lists may be of the model itself, or of what the sampler made of it."""
    book.api.temperature = 1.0
    warm = await book.listed(PROMPT, len(first.tokens))
    agree = isinstance(warm, TopLogprobs) and distance(first, warm) <= book.tolerance()
    if agree:
        book.api.temperature = 0.0
    book.learn(temperature=book.api.temperature)
    detail = "the temperature changes nothing" if agree else "lists depend on the temperature: asked at 1"
    book.note("raw values", agree or None, detail)


async def token_ids(book: ProbeSession) -> None:
    """Whether a prompt may be given as token ids, BOS included."""
    if book.tokenizer is None:
        book.note("prompts as token ids", None, "not tried: no tokenise endpoint")
        return
    ids = [p.token_id for p in await book.tokenizer.pieces(PROMPT)]
    k = min(book.found.largest_k, 100)
    by_text, by_ids = await book.listed(PROMPT, k), await book.listed(ids, k)
    if isinstance(by_text, BackendError) or isinstance(by_ids, BackendError):
        error = by_ids if isinstance(by_ids, BackendError) else by_text
        book.note("prompts as token ids", None, f"refused: {str(error)[:80]}")
        return
    apart = distance(by_text, by_ids)
    works = apart <= book.tolerance()
    book.learn(takes_ids=works)
    book.note("prompts as token ids", works, f"{apart:.2g} nats from the same prompt as text")
    if works:
        await _without_bos(book, ids, by_text)


async def _without_bos(book: ProbeSession, ids: list[int], by_text: TopLogprobs) -> None:
    """Whether the same tokens without BOS are another prompt, or the server puts it before them: worth knowing only."""
    name = "prompt without BOS"
    if not book.found.bos:
        book.note(name, None, "is what the model was trained on: it has no BOS")
        return
    bare = await book.listed(ids[1:], min(book.found.largest_k, 100))
    if isinstance(bare, BackendError):
        book.note(name, None, f"refused: {str(bare)[:80]}")
        return
    apart = distance(by_text, bare)
    if apart <= book.tolerance():
        book.note(name, None, "is given one by the server, and one that is sent is not doubled")
    else:
        book.note(name, None, f"is another prompt, {apart:.2g} nats away: the BOS is always sent")
