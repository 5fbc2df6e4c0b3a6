"""Experiments with chats: lists, the assistant prefill, and the rendered text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from backends.base import Message
from backends.errors import BackendError
from backends.openai.capabilities import Prefill
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.probe.canary import DIGIT_CHAT
from backends.openai.probe.experiments.lists import longest
from backends.openai.probe.experiments.parameters import chat_parameters
from backends.openai.probe.session import MAX_NOISE, NotTestedError, Outcome, ProbeSession, experiment, max_abs_diff
from backends.openai.protocol.api import single_choice
from backends.openai.protocol.parameters import ZERO_TEMPERATURE
from backends.openai.scoring.top_logprobs import TopLogprobs

T = TypeVar("T")
Turns = tuple[Message, ...]
#: Entries of a chat's list that are compared with those of its rendered text.
_COMPARED = 100
#: How often a chat and its rendered text are asked if their lists differ.
_TRIES = 3
_CHAT = (Message("user", "Is the sky blue? Answer yes or no."),)
_ROWS = Message("user", "Name the days of the week, and count to ten.")
#: (assistant prefill, its next word): only a server that continues it gives that word; no new answer starts with it.
_STARTS = (("Well, in order: Monday, Tuesday,", "Wednesday"), ("Well, in order: one, two, three,", "four"))
#: Before the second of them: some templates, and some gateways, continue nothing that stands behind these turns.
_BEFORE = (
    Message("system", "You are a kind teacher."),
    Message("user", "Hello."),
    Message("assistant", "Hello."),
)
#: Compared with their rendered texts: those which a template, or a gateway before it, is likely to treat otherwise.
_TALK = (
    *(Message("user", 'Müller & "Weiß" asked 17 times:\n\n<is> it true?'), Message("assistant", "Yes, it's true.")),
    Message("user", "Was it a man or a woman?"),
)
_RENDERED = (_TALK, (Message("system", "Answer with one word."), *_TALK))
_WAYS: tuple[tuple[Prefill, dict[str, Any]], ...] = (("continued", {}), ("flags", CONTINUE_ASSISTANT))
_WAY_MESSAGES = {
    "repeated": "continues, and repeats the start",
    "continued": "continues",
    "flags": "continues by flags",
}


@experiment("chat with lists")
async def chat_lists(session: ProbeSession) -> Outcome:
    """Whether chats are answered, and with lists."""
    top, k = await longest(lambda k: session.next_chat_tokens(_CHAT, k))
    if isinstance(top, TopLogprobs):
        return _with_lists(session, top, k)
    await chat_parameters(session)
    answered = session.capabilities.chat
    if ZERO_TEMPERATURE in session.capabilities.refused:  # lists are neutral at 1
        session.update(temperature=1.0)
        session.api.temperature = 1.0
    if {"temperature", ZERO_TEMPERATURE} & {*session.capabilities.refused}:  # perhaps only the temperature was refused
        top, k = await longest(lambda k: session.next_chat_tokens(_CHAT, k))
        if isinstance(top, TopLogprobs):
            return _with_lists(session, top, k)
    if answered or not session.without_lists:  # where texts alone are answered, theirs is the reason
        session.without_lists = str(top)
    return Outcome(False if answered else None, str(top))


def _with_lists(session: ProbeSession, top: TopLogprobs, k: int) -> Outcome:
    session.chat_list = top
    identity = session.capabilities.identity or top.identity
    message = f"{k} entries, identified by {top.identity}"
    asked = session.api.parameters  # a refusal may have said how chats are asked
    found = {"limit_name": asked.limit, "responses": asked.responses}
    return Outcome(True, message, chat=True, largest_chat_k=k, identity=identity, **found)


@experiment("chat repeated")
async def chat_noise(session: ProbeSession) -> Outcome:
    """The noise that the canary will have: the same question repeated, alone and beside one with many answers."""
    first, k = session.chat_list, session.capabilities.largest_chat_k
    again, alone = [await session.next_chat_tokens(turns, k) for turns in (_CHAT, DIGIT_CHAT)]
    beside, digit, digit_again = await asyncio.gather(
        *(session.next_chat_tokens(turns, k) for turns in (_CHAT, DIGIT_CHAT, DIGIT_CHAT))
    )
    noise = max(max_abs_diff(first, again), max_abs_diff(first, beside))
    digits = (alone, digit, digit_again)
    if all(isinstance(top, TopLogprobs) for top in digits):  # otherwise the canary will not have its value either
        noise = max(noise, max_abs_diff(alone, digit), max_abs_diff(digit, digit_again))
    message = f"moves the numbers by {noise:.2g} nats"
    if noise > MAX_NOISE:
        session.chat_list = None
        return Outcome(False, message)
    # Without a proven route for texts, the noise of texts says nothing about chats.
    of_texts = session.capabilities.repeat_noise if session.capabilities.text_route is not None else 0.0
    return Outcome(True, message, repeat_noise=max(of_texts, noise))


@experiment("raw values of chats")
async def chat_temperature(session: ProbeSession) -> Outcome:
    """Whether lists of chats stay the same when the answer is drawn at temperature 1: then each comes with a draw."""
    if session.api.temperature > 0:
        raise NotTestedError("lists depend on the temperature")
    session.draw_with_lists(not session.capabilities.draws_with_lists)
    top = await session.next_chat_tokens(_CHAT, session.capabilities.largest_chat_k)
    same = max_abs_diff(session.chat_list, top) <= session.tolerance()
    session.draw_with_lists(same)
    return Outcome(same or None, f"drawing at temperature 1 changes {'nothing' if same else 'them'}")


async def chat_route(session: ProbeSession) -> None:
    """Find how an assistant prefill is continued, and the best route for chats."""
    await prefill(session)
    if session.chat_list is None:
        return
    session.update(chat_route="chat_prefill" if session.lists_after_prefill else "chat_first")
    if session.tokenizer is not None and session.capabilities.text_route is not None:
        await rendered(session)


@experiment("assistant prefill")
async def prefill(session: ProbeSession) -> Outcome:
    """Whether an assistant prefill is continued, also in lists."""
    for way, flags in _WAYS:
        continues, repeats = 0, 0
        for turns, start, rest in _starts():
            answer = await _first_taken(
                lambda chat, flags=flags: session.ask(session.api.chat, chat, max_tokens=4, temperature=0.0, **flags),  # type: ignore[misc]
                turns,
            )
            text = "" if isinstance(answer, BackendError) else _content(answer)
            continues += text.removeprefix(start).lstrip().startswith(rest)
            repeats += text.startswith(start)
            if not continues:
                break
        if continues < 2 or repeats == 1 or (repeats and flags):
            continue
        proven: Prefill = "repeated" if repeats else way
        session.lists_after_prefill = await _continued_in_lists(session, flags)
        lists = "lists too" if session.lists_after_prefill else "lists do not: not used for scores"
        return Outcome(True, f"{_WAY_MESSAGES[proven]}; {lists}", prefill=proven)
    return Outcome(None, "an assistant prefill is not continued")


def _starts() -> Iterator[tuple[Sequence[Turns], str, str]]:
    """The chats that end in each of `_STARTS` (if one is refused, the next is asked), the start and its next word."""
    for (start, rest), before in zip(_STARTS, (((),), (_BEFORE, _BEFORE[1:], ())), strict=True):
        yield [(*turns, _ROWS, Message("assistant", start)) for turns in before], start, rest


async def _first_taken(ask: Callable[[Turns], Awaitable[T | BackendError]], chats: Sequence[Turns]) -> T | BackendError:
    """The answer to the first of these chats that is not refused; else the last refusal."""
    for chat in chats:
        if not isinstance(answer := await ask(chat), BackendError):
            break
    return answer


async def _continued_in_lists(session: ProbeSession, flags: dict[str, Any]) -> bool:
    """Whether the first list after an assistant prefill belongs to the token that follows it."""
    k = min(session.capabilities.largest_chat_k, 20)
    if k == 0:
        return False
    for turns, _, rest in _starts():
        top = await _first_taken(lambda chat: session.next_chat_tokens(chat, k, **flags), turns)
        if not isinstance(top, TopLogprobs):
            return False
        likeliest = top.tokens[0].text.strip()
        if not likeliest or not rest.startswith(likeliest):
            return False
    return True


@experiment("rendered chat")
async def rendered(session: ProbeSession) -> Outcome:
    """Whether the server shows the text that it renders for a chat: a chat is then scored like a text."""
    assert session.chat_list is not None
    text = await session.ask(session.api.rendered_chat, _CHAT)
    if isinstance(text, BackendError):
        raise NotTestedError("the server does not show it")
    by_text = await session.next_tokens(text, len(session.chat_list.tokens))
    diff = max_abs_diff(session.chat_list, by_text)
    for turns in _RENDERED:
        diff = max(diff, await apart_from_rendered(session, turns, session.tolerance()))
    message = f"{diff:.2g} nats from the chat endpoint"
    if diff <= session.tolerance():
        return Outcome(True, message, chat_route="rendered")
    session.distrust("chat", f"a chat's list is {diff:.2g} nats from that of its rendered text")
    return Outcome(False, message)


async def apart_from_rendered(session: ProbeSession, turns: Turns, within: float) -> float:
    """How far the list after a chat's rendered text is from that of the chat, in nats; 0 if the chat is refused.

    A cache that holds the start of one of them moves llama.cpp's numbers (SmolLM2's by 0.2 nats): both are asked again.
    """
    apart, n_before = math.inf, len(session.beside_lists)
    for _ in range(_TRIES):
        of_chat = await session.next_chat_tokens(turns, min(session.capabilities.largest_chat_k, _COMPARED))
        if isinstance(of_chat, BackendError):
            apart = 0.0
            break
        text = await session.ask(session.api.rendered_chat, turns)
        if isinstance(text, BackendError):
            break
        apart = min(apart, max_abs_diff(of_chat, await session.next_tokens(text, len(of_chat.tokens))))
        if apart <= within:
            break
    del session.beside_lists[n_before:]  # draws after chats that may be rendered otherwise
    return apart


def _content(response: dict[str, Any]) -> str:
    try:
        message = single_choice(response).get("message")
    except BackendError:
        return ""
    return str(message.get("content")) if isinstance(message, Mapping) else ""
