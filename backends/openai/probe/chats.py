"""Experiments with chats: lists, the start of an answer, and the text that a chat becomes."""

from __future__ import annotations

import asyncio
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.api import rendered_chat
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.probe.canary import OPEN_CHAT
from backends.openai.probe.capabilities import Prefill
from backends.openai.probe.lists import longest
from backends.openai.probe.session import LARGEST_SPREAD, ProbeSession, distance
from backends.openai.scoring.top_logprobs import TopLogprobs, single_choice

_CHAT = (Message("user", "Is the sky blue? Answer yes or no."),)
_ROWS = Message("user", "Name the days of the week, and count to ten.")
#: A row begun in such words is only continued by a server that goes on with it: no new answer starts like that.
_BEGUN = (("Well, in order: Monday, Tuesday,", "Wednesday"), ("Well, in order: one, two, three,", "four"))


async def chat_lists(book: ProbeSession) -> TopLogprobs | None:
    """Whether chats are answered, and listed with numbers that stay."""
    listing, k = await longest(lambda k: book.listed_in_chat(_CHAT, k))
    if not isinstance(listing, TopLogprobs):
        plain = await book.ask(book.api.chat, _CHAT, max_tokens=1, temperature=0.0)
        book.learn(chat=isinstance(plain, dict))
        book.note("chat with lists", False if isinstance(plain, dict) else None, str(listing))
        return None
    book.learn(chat=True, largest_chat_k=k, identity=book.found.identity or listing.identity)
    book.note("chat with lists", True, f"{k} entries, told apart by {listing.identity}")
    spread = await _moves(book, listing, k)
    book.note("chat repeated", spread <= LARGEST_SPREAD, f"moves the numbers by {spread:.2g} nats")
    if spread > LARGEST_SPREAD:
        return None
    # Numbers of texts that move so far that none is used say nothing of the chats.
    book.learn(spread=spread if book.found.text_route is None else max(book.found.spread, spread))
    return listing


async def _moves(book: ProbeSession, listing: TopLogprobs, k: int) -> float:
    """The same question again, and beside one of many answers, which show the noise that the canary will have."""
    again, alone = [await book.listed_in_chat(turns, k) for turns in (_CHAT, OPEN_CHAT)]
    beside, first, second = await asyncio.gather(
        *(book.listed_in_chat(turns, k) for turns in (_CHAT, OPEN_CHAT, OPEN_CHAT))
    )
    moved = max(_mean_abs_diff(listing, again), _mean_abs_diff(listing, beside))
    if all(
        isinstance(found, TopLogprobs) for found in (alone, first, second)
    ):  # else the canary has no value of it either
        moved = max(moved, _mean_abs_diff(alone, first), _mean_abs_diff(first, second))
    return moved


def _mean_abs_diff(a: TopLogprobs | BackendError, b: TopLogprobs | BackendError) -> float:
    return distance(a, b) if isinstance(a, TopLogprobs) and isinstance(b, TopLogprobs) else float("inf")


async def chat_route(book: ProbeSession, listing: TopLogprobs | None) -> None:
    """How the start of an answer is gone on with, and the best route for chats."""
    listed = await _prefill(book)
    if listing is None:
        return
    if await _rendered(book, listing):
        book.learn(chat_route="rendered")
    else:
        book.learn(chat_route="chat_prefill" if listed else "chat_first")


async def _prefill(book: ProbeSession) -> bool:
    """Whether the start of an answer is gone on with, in lists too."""
    ways: tuple[tuple[Prefill, dict[str, Any]], ...] = (("continued", {}), ("flags", CONTINUE_ASSISTANT))
    for way, flags in ways:
        goes_on, repeats = 0, 0
        for start, rest in _BEGUN:
            turns = (_ROWS, Message("assistant", start))
            answer = await book.ask(book.api.chat, turns, max_tokens=4, temperature=0.0, **flags)
            text = "" if isinstance(answer, BackendError) else _content(answer)
            goes_on += text.removeprefix(start).lstrip().startswith(rest)
            repeats += text.startswith(start)
            if not goes_on:
                break
        if goes_on < 2 or repeats == 1 or (repeats and flags):
            continue
        book.learn(prefill="repeated" if repeats else way)
        listed = await _prefill_listed(book, flags)
        detail = {"repeated": "goes on, and repeats the start", "continued": "goes on", "flags": "goes on by flags"}
        lists = "lists too" if listed else "lists do not: not used for scores"
        book.note("assistant prefill", True, f"{detail[str(book.found.prefill)]}; {lists}")
        return listed
    book.note("assistant prefill", None, "the start of an answer is not continued")
    return False


async def _prefill_listed(book: ProbeSession, flags: dict[str, Any]) -> bool:
    """Whether the first list after an answer's start is of the token that follows it."""
    if book.found.largest_chat_k == 0:
        return False
    for start, rest in _BEGUN:
        turns = (_ROWS, Message("assistant", start))
        listing = await book.listed_in_chat(turns, min(book.found.largest_chat_k, 20), **flags)
        if not isinstance(listing, TopLogprobs):
            return False
        likeliest = listing.tokens[0].text.strip()
        if not likeliest or not rest.startswith(likeliest):
            return False
    return True


async def _rendered(book: ProbeSession, listing: TopLogprobs) -> bool:
    """Whether the text that a chat becomes is known: then a chat is scored like a text."""
    if book.tokenizer is None or book.found.text_route is None:
        return False
    text = await book.ask(rendered_chat, book.api.client, _CHAT)
    if isinstance(text, BackendError):
        book.note("rendered chat", None, "the server does not show it")
        return False
    by_text = await book.listed(text, len(listing.tokens))
    apart = distance(listing, by_text) if isinstance(by_text, TopLogprobs) else float("inf")
    works = apart <= book.tolerance()
    book.note("rendered chat", works, f"{apart:.2g} nats from the chat endpoint")
    return works


def _content(answer: dict[str, Any]) -> str:
    try:
        message = single_choice(answer).get("message")
    except BackendError:
        return ""
    return str(message.get("content")) if isinstance(message, dict) else ""
