"""An experiment with values of unlikely tokens, which no list holds and no plain draw shows: draws with ``logit_bias``.

A bias of −logit P makes a token as likely as not if P is its true probability, however small.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

from backends.base import ScoreRequest
from backends.errors import BackendError
from backends.openai.probe.experiments.draws import drawn
from backends.openai.probe.session import OTHER, NotTestedError, Outcome, ProbeSession, accepted, experiment
from backends.openai.scoring.routes import Routes
from backends.openai.scoring.tokenizer import RemoteTokenizer

#: Words that hardly follow the prompt.
_WORDS = (" copper", " secretary", " seven", " pilot")
_N_WORDS, _N_DRAWS = 2, 100
#: Nats between which a value is unlikely, and a bias moves it without rounding errors.
_LOWEST, _HIGHEST = -16.0, -4.0
#: Probabilities of the listed token with which the bias itself is tested: small, so that it is large.
_LISTED = (0.001, 0.05)
#: Probability of draws below which they do not fit: of an honest server, in one of 5,000 probes.
_UNFIT = 1e-4


@experiment("unlikely values")
async def unlikely_values(session: ProbeSession) -> Outcome:
    """Whether draws confirm values of tokens that are unlikely."""
    found = session.capabilities
    if found.text_route is None or session.tokenizer is None:
        raise NotTestedError("not tried: needs a tokenizer and values")
    if found.together is None or not any(c.name == "logit_bias" and c.passed for c in session.checks):
        raise NotTestedError("not tried: needs logit_bias, and several draws in one request")
    listed, by_list = await _listed(session, session.tokenizer)
    if not await _confirmed(session, listed, by_list):
        raise NotTestedError("not tried: logit_bias does not add to the logits")
    tested = []
    async for word, token_id, value in _unlikely(session, session.tokenizer):
        if not await _confirmed(session, (word, token_id), value):
            reason = f"{word!r} after {OTHER[-20:]!r} has {value:.1f} nats, which draws with logit_bias contradict"
            session.distrust("text", reason)
            return Outcome(False, reason)
        tested.append(f"{word.strip()} ({value:.1f} nats)")
    if not tested:
        raise NotTestedError("not tried: tokens beyond its lists are bounded")
    session.unlikely_are_tested = True
    return Outcome(True, f"{_N_DRAWS} draws with logit_bias each fit those of {', '.join(tested)}")


async def _confirmed(session: ProbeSession, token: tuple[str, int], value: float) -> bool:
    """Whether a token is drawn half the time with the bias that makes it so likely, if its value is true."""
    from scipy.stats import binomtest

    text, token_id = token
    bias = math.log1p(-math.exp(value)) - value
    texts = await drawn(session, OTHER, _N_DRAWS, options={"logit_bias": {str(token_id): bias}})
    hits = sum(drawn_text.strip() == text.strip() for drawn_text in texts)
    return float(binomtest(hits, len(texts), 0.5).pvalue) >= _UNFIT


async def _listed(session: ProbeSession, tokenizer: RemoteTokenizer) -> tuple[tuple[str, int], float]:
    """The least likely of some listed words, with its id and value."""
    top = accepted(await session.next_tokens(OTHER, min(session.capabilities.largest_k, 20)))
    for entry in sorted(top.tokens, key=lambda token: token.logprob):
        if _LISTED[0] <= math.exp(entry.logprob) <= _LISTED[1] and entry.text.strip().isalpha():
            token_id = await _single(session, tokenizer, entry.text)
            if token_id is not None:
                return (entry.text, token_id), entry.logprob
    raise NotTestedError("not tried: no listed token is a word of its own")


async def _single(session: ProbeSession, tokenizer: RemoteTokenizer, word: str) -> int | None:
    """The id of a word that is one token after the prompt; None if it is several."""
    alone = accepted(await session.ask(tokenizer.pieces, OTHER))
    pieces = accepted(await session.ask(tokenizer.pieces, OTHER + word))
    is_single = len(pieces) == len(alone) + 1 and pieces[:-1] == alone and pieces[-1].data.decode("utf-8", "") == word
    return pieces[-1].token_id if is_single else None


async def _unlikely(session: ProbeSession, tokenizer: RemoteTokenizer) -> AsyncIterator[tuple[str, int, float]]:
    """Unlikely words that are single tokens, with their ids and values by the chosen route."""
    routes, n = Routes(session.api, session.capabilities, tokenizer, None), 0
    for word in _WORDS:
        token_id = await _single(session, tokenizer, word)
        if token_id is None or n == _N_WORDS:
            continue
        answer = await session.ask(routes.score, ScoreRequest(OTHER, (word,)))
        value = None if isinstance(answer, BackendError) else answer.scores[0].logprob
        if value is not None and _LOWEST < value < _HIGHEST:
            n += 1
            yield word, token_id, value
