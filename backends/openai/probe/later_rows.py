"""Whether the later tokens of a run's continuations have the values that lists give them after the same text.

The first token of a continuation is compared with the list after the question. The values of those after it come from
rows of a whole text, or from requests of their own; another model, or another tokenisation, may give just these.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from backends.base import ContinuationScore, ScoreRequest, ScoreResponse
from backends.errors import BackendError
from backends.openai.probe.calibration import is_readable
from backends.openai.probe.session import NEGLIGIBLE, ProbeSession
from backends.openai.scoring.censoring import upper_bound
from backends.openai.scoring.prompt_logprobs import echoed
from backends.openai.scoring.top_logprobs import TopLogprobs

#: Later tokens that are compared, each of another question where there are as many.
MOST_LATER = 10
#: Nats by which such a token may differ from its list, and how many must differ to count as a contradiction.
_OFF, _MIN_OFF = 0.1, 2
_LISTED = 1000


def requests_for_one(by_text: bool) -> int:
    """How many requests one later token takes; ``by_text``: without a tokenizer, an echo shows where it begins."""
    return 2 if by_text else 1


async def later_rows(session: ProbeSession, asked: Sequence[tuple[ScoreRequest, ScoreResponse]]) -> str:
    """How later tokens of these questions' continuations differ from lists; empty if they do not.

    One that differs alone may be chance, or the first of many: as many others are then compared, too.
    """
    chosen = _chosen(asked)
    differences = await _differences(session, chosen[:MOST_LATER])
    most = max(_OFF, 4 * session.capabilities.repeat_noise)
    if 0 < sum(difference > most for difference in differences) < _MIN_OFF:
        differences += await _differences(session, chosen[MOST_LATER : 2 * MOST_LATER])
    off = sum(difference > most for difference in differences)
    if off < _MIN_OFF:
        return ""
    return (
        f"the later tokens of {off} of {len(differences)} continuations have other values than the server lists there "
        f"(by up to {max(differences):.2g} nats)"
    )


async def _differences(session: ProbeSession, chosen: Sequence[_Later]) -> list[float]:
    """By how many nats each token differs from its list, where there is one."""
    differences = []
    for later in chosen:
        before = await _text_before(session, later)
        if before is None:
            continue
        n_before = len(session.beside_lists)
        top = await session.next_tokens(before, min(session.capabilities.largest_k, _LISTED))
        del session.beside_lists[n_before:]  # draws after texts that the run did not ask
        if not isinstance(top, BackendError):
            differences.append(_difference(later.score, later.at, top))
    return differences


class _Later(NamedTuple):
    """Token ``at`` of a question's continuation, which is not its first."""

    request: ScoreRequest
    continuation: str
    score: ContinuationScore
    at: int


def _chosen(asked: Sequence[tuple[ScoreRequest, ScoreResponse]]) -> list[_Later]:
    """A later token of one exact continuation of each question, then a second one of each, until two looks are filled.

    Each continuation is chosen as often as can be, and of each its tokens in turn: where one of them moved, the others
    may be too unlikely to show it.
    """
    left = [_later_tokens(request, response) for request, response in asked]
    chosen: list[_Later] = []
    times: Counter[str | tuple[str, int]] = Counter()
    while any(left) and len(chosen) < 2 * MOST_LATER:
        for tokens in left:
            if tokens:
                one = min(tokens, key=lambda one: (times[one.continuation], times[one.continuation, one.at]))
                tokens.remove(one)
                times.update([one.continuation, (one.continuation, one.at)])
                chosen.append(one)
    return chosen


def _later_tokens(request: ScoreRequest, response: ScoreResponse) -> list[_Later]:
    """In random order, so that equals among them are chosen at random."""
    tokens = [
        _Later(request, continuation, score, at)
        for continuation, score in zip(request.continuations, response.scores, strict=True)
        if score.exactness == "exact" and score.boundary == "clean"
        for at in range(1, len(score.tokens))
    ]
    random.SystemRandom().shuffle(tokens)
    return tokens


async def _text_before(session: ProbeSession, later: _Later) -> str | list[int] | None:
    """What stands before this token; None if, sent alone, it would be other tokens."""
    request, continuation, score, at = later
    prompt: str | BackendError = ""
    if isinstance(request.prompt, str):
        prompt = request.prompt
    elif session.capabilities.chat_route == "rendered":
        prompt = await session.ask(session.api.rendered_chat, request.prompt)
    if isinstance(prompt, BackendError) or not prompt:
        return None
    text = prompt + continuation[: score.tokens[at].start]
    if (tokenizer := session.tokenizer) is None:
        echo = await session.ask(echoed, session.api, text)
        if isinstance(echo, BackendError):
            return None
        own = [token.text for token in echo if token.end > len(prompt)]
        return text if own == [token.text for token in score.tokens[:at]] else None
    joined = await session.ask(tokenizer.joined, prompt, continuation)
    if isinstance(joined, BackendError):
        return None
    ids = list(joined.ids[: joined.first + at])
    if session.capabilities.takes_ids:
        return ids
    alone = await session.ask(tokenizer.ids, text)
    return text if alone == ids else None


def _difference(score: ContinuationScore, at: int, top: TopLogprobs) -> float:
    """By how many nats a token's value provably differs from the list at its place."""
    token = score.tokens[at]
    if not is_readable(token.text):
        return 0.0
    entries = top.by_bytes(token.text.encode())
    if not entries:
        return max(token.logprob - upper_bound(top), 0.0)
    if len(entries) > 1 or not top.identifies(entries[0]):
        return 0.0
    listed = entries[0].logprob
    return abs(listed - token.logprob) if max(listed, token.logprob) > NEGLIGIBLE else 0.0
