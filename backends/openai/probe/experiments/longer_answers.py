"""Whether an answer of one token comes from the model that gives longer ones: a gateway may route by the limit.

Scores are read from answers of one token, texts are longer. The list of the first token is the same in both, whatever
follows.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

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
#: Tokens between which the limits of two longer answers are drawn, and entries of each list. No more tokens: a slow
#: server has a time limit for each answer.
_TOKENS, _LISTED = ((2, 31), (33, 96)), 100
#: How many longer answers an honest server gives.
LONGER_ANSWERS = len(_TOKENS)
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
    found = await _differences(session, asked)
    if not found.limits:
        raise NotTestedError("not tried: no list comes with a longer answer")
    message = f"first list of {found.told} {found.largest:.2g} nats from that of an answer of one token"
    if not found.off:
        return Outcome(True, message)
    session.distrust(kind, f"{message}: another model may give one of them")
    return Outcome(False, message)


@dataclass
class _Found:
    """At which limits longer answers were compared, the largest difference in nats, and how many questions differ.

    ``off``: at the last limit, of ``compared`` there; 0 unless `_MIN_OFF` differ.
    """

    limits: list[int] = field(default_factory=list)
    largest: float = 0.0
    off: int = 0
    compared: int = 0

    @property
    def told(self) -> str:
        return f"{' and '.join(map(str, self.limits))} tokens"


async def _differences(session: ProbeSession, asked: Sequence[Listed]) -> _Found:
    """Compare the first list of one question at each limit; one that differs is followed by the next question."""
    found, short = _Found(), dict[int, TopLogprobs | BackendError]()
    for limit in _limits():
        off = compared = 0
        for at, (prompt, listed) in enumerate(asked):
            before = len(session.beside_lists)
            if at not in short:
                short[at] = listed or await _short(session, prompt)
            one, long = short[at], await _long(session, prompt, limit)
            del session.beside_lists[before:]  # a run's draws are those after its own questions, each once
            if isinstance(one, BackendError) or isinstance(long, BackendError):
                continue
            compared += 1
            difference = max(_move(one, long), _above(one.likeliest(_LISTED), long), _above(long, one))
            found.largest = max(found.largest, difference)
            if difference <= max(_OFF, 4 * session.capabilities.repeat_noise):
                break
            off += 1
        found.limits += [limit] * (compared > 0)
        if off >= _MIN_OFF:
            found.limits, found.off, found.compared = [limit], off, compared
            break
    return found


def _limits() -> list[int]:
    """A shorter and a longer answer's tokens, drawn anew each time: a server must not know which are compared."""
    drawn = random.SystemRandom()
    return [round(math.exp(drawn.uniform(math.log(least), math.log(most)))) for least, most in _TOKENS]


async def _short(session: ProbeSession, asked: Asked) -> TopLogprobs | BackendError:
    if isinstance(asked, str):
        return await session.next_tokens(asked, min(session.capabilities.largest_k, _LISTED))
    return await session.next_chat_tokens(asked, min(session.capabilities.largest_chat_k, _LISTED))


async def _long(session: ProbeSession, asked: Asked, limit: int) -> TopLogprobs | BackendError:
    options = {**session.api.list_options(), "max_tokens": limit}

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
    found = await _differences(session, asked)
    if not found.off:
        return ""
    return (
        f"longer answers to {found.off} of {found.compared} questions, of {found.told}, have their first list "
        f"{found.largest:.2g} nats from that of an answer of one token: another model may give one of them"
    )


def _move(a: TopLogprobs, b: TopLogprobs) -> float:
    moved = max_abs_diff(a, b)
    return moved if math.isfinite(moved) else 0.0


def _above(a: TopLogprobs, b: TopLogprobs) -> float:
    """By how many nats a token of ``a`` exceeds what it can have in ``b``, which does not list it."""
    texts, bound = {token.text for token in b.tokens}, upper_bound(b)
    missing = (token.logprob - bound for token in a.tokens if token.text not in texts and a.identifies(token))
    return max(missing, default=0.0)
