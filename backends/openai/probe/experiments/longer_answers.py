"""Whether an answer of one token comes from the model that gives longer ones: a gateway may route by the limit.

Scores are read from answers of one token, texts are longer. The list of the first token is the same in both, whatever
follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from backends.base import Message
from backends.errors import BackendError
from backends.openai.probe.session import (
    OTHER,
    PROMPT,
    Kind,
    NotTestedError,
    Outcome,
    ProbeSession,
    experiment,
    max_abs_diff,
)
from backends.openai.scoring.censoring import upper_bound
from backends.openai.scoring.top_logprobs import TopLogprobs, read_top_logprobs

Asked = str | tuple[Message, ...]
#: A question and the list of an answer of one token, if it was requested before.
Listed = tuple[Asked, TopLogprobs | None]
#: Tokens of a longer answer, and entries of each list.
_TOKENS, _LISTED = 32, 100
#: Nats by which the two lists may differ: half precision in batches of other sizes.
_OFF = 0.1
#: Questions that must differ: a list may move once.
_MIN_OFF = 2
_CHATS = ("Name a colour. Answer with one word.", "Is a tomato a fruit? Answer yes or no.")


@experiment("longer answers to texts")
async def longer_texts(session: ProbeSession) -> Outcome:
    """Whether the first list of a longer text is that of one token."""
    return await _compared(session, "text", [(PROMPT, session.longest_list), (OTHER, None)])


@experiment("longer answers to chats")
async def longer_chats(session: ProbeSession) -> Outcome:
    """Whether the first list of a longer answer to a chat is that of one token."""
    return await _compared(session, "chat", [((Message("user", question),), None) for question in _CHATS])


async def _compared(session: ProbeSession, kind: Kind, asked: Sequence[Listed]) -> Outcome:
    compared, off, largest = await _differences(session, asked)
    if not compared:
        raise NotTestedError("not tried: no list comes with a longer answer")
    message = f"first list {largest:.2g} nats from that of an answer of one token"
    if off < _MIN_OFF:
        return Outcome(True, message)
    session.distrust(kind, f"a longer answer has its {message}: another model may give one of them")
    return Outcome(False, message)


async def _differences(session: ProbeSession, asked: Sequence[Listed]) -> tuple[int, int, float]:
    """How many questions were compared, how many of their lists differ, and the largest difference in nats.

    Ends with the first question whose lists agree.
    """
    compared = off = 0
    largest = 0.0
    for prompt, listed in asked:
        before = len(session.beside_lists)
        short, long = listed or await _short(session, prompt), await _long(session, prompt)
        del session.beside_lists[before:]  # a run's draws are those after its own questions, each once
        if isinstance(short, BackendError) or isinstance(long, BackendError):
            continue
        compared += 1
        difference = max(_move(short, long), _above(short.likeliest(_LISTED), long), _above(long, short))
        largest = max(largest, difference)
        if difference <= max(_OFF, 4 * session.capabilities.repeat_noise):
            break
        off += 1
    return compared, off, largest


async def _short(session: ProbeSession, asked: Asked) -> TopLogprobs | BackendError:
    if isinstance(asked, str):
        return await session.next_tokens(asked, min(session.capabilities.largest_k, _LISTED))
    return await session.next_chat_tokens(asked, min(session.capabilities.largest_chat_k, _LISTED))


async def _long(session: ProbeSession, asked: Asked) -> TopLogprobs | BackendError:
    options = {**session.api.list_options(), "max_tokens": _TOKENS}

    async def ask() -> TopLogprobs:
        if isinstance(asked, str):
            k = min(session.capabilities.largest_k, _LISTED)
            return read_top_logprobs(
                await session.api.completion(await session.as_sent(asked), logprobs=k, **options), k
            )
        k = min(session.capabilities.largest_chat_k, _LISTED)
        return read_top_logprobs(await session.api.chat(asked, logprobs=True, top_logprobs=k, **options), k)

    return await session.ask(ask)


async def of_own_questions(session: ProbeSession, asked: Sequence[Listed]) -> str:
    """How the lists of longer answers to these questions of a run differ from its own; empty if they do not."""
    compared, off, largest = await _differences(session, asked)
    if off < _MIN_OFF:
        return ""
    return (
        f"longer answers to {off} of {compared} questions have their first list {largest:.2g} nats from that of an "
        "answer of one token: another model may give one of them"
    )


def _move(a: TopLogprobs, b: TopLogprobs) -> float:
    moved = max_abs_diff(a, b)
    return moved if math.isfinite(moved) else 0.0


def _above(a: TopLogprobs, b: TopLogprobs) -> float:
    """By how many nats a token of ``a`` exceeds what it can have in ``b``, which does not list it."""
    texts, bound = {token.text for token in b.tokens}, upper_bound(b)
    missing = (token.logprob - bound for token in a.tokens if token.text not in texts and a.identifies(token))
    return max(missing, default=0.0)
