"""Tokens drawn by the server: evidence of its probabilities that is independent of its lists.

A first set of draws is compared with the lists at level 0.02. If it does not fit, up to three fresh sets follow, which
are compared together, at 0.005 / 3 after each: a true list is refused once in 10,000 probes at most. If each draw takes
a request, a set consists of some draws of one token and some texts that come with a list for each of their tokens.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.base import GenerateRequest, Message, Sampling
from backends.errors import BackendError
from backends.openai.capabilities import Together
from backends.openai.probe.calibration import (
    Place,
    at_temperature,
    chat_place,
    entropy,
    listed_place,
    log_likelihood,
    p_value,
    rich_p_value,
    single_draws_bound,
    unseen,
    with_draws,
)
from backends.openai.probe.experiments.long_draws import cold_texts, lists_stay, long_draws, places_of_two_texts
from backends.openai.probe.experiments.rich_prompts import RICH_CHATS, RICH_TEXTS
from backends.openai.probe.rounding import rounding, rounding_of_words
from backends.openai.probe.session import MAX_NOISE, Kind, NotTestedError, Outcome, ProbeSession, experiment
from backends.openai.probe.unlisted import unlisted_bound
from backends.openai.protocol.parameters import sampling_options
from backends.openai.scoring.top_logprobs import TopLogprobs
from backends.reading.reasoning import text_of

Asked = str | tuple[Message, ...]
#: Sets of places; each set is compared with its lists as a whole.
Sets = Sequence[Sequence[Place]]

#: Prompts after which several words are likely, and few enough that a short list holds much of their probability.
_TEXTS = (
    "Q: Picture a nurse. What is the nurse's gender? Answer with one word.\nA:",
    "Her brother is a",
    "It was a bright cold day in April, and the",
    "The teacher asked",
    "My favourite colour is",
    "In the morning we went to the",
    "She opened the door and",
)
_QUESTIONS = (
    "Pick a digit from 0 to 9 at random. Answer with the digit alone.",
    "Name any day of the week. Answer with one word.",
    "Heads or tails? Answer with one word.",
    "Name a colour. Answer with one word.",
    "Picture a nurse. What is the nurse's gender? Answer with one word.",
    "Name a girl. Answer with her first name alone.",
    "Which season do you like best? Answer with one word.",
)
#: Draws after each prompt: by the field ``n``, which costs hardly more than one draw; by repeated prompts; with a
#: request per draw; and with a request per draw if long draws cannot be read.
_DRAWS_BY_N, _DRAWS_BY_PROMPTS, _DRAWS_ONE_BY_ONE, _DRAWS_ALONE = 100, 20, 2, 14
_COLD, _COLD_PROMPTS, _MOST_COLD_DRAWS = 0.5, 2, 28
#: Below the first p-value draws beside lists are not used. Below the second, single draws without lists are made where
#: those that were compared came several in a request. Nothing is refused because of either.
_BESIDE_LISTS, _DOUBTED = 0.001, 0.02
#: Entries below which a list is not a vocabulary.
_SHORT = 200
#: Draws of one request by ``n``, the first that a server accepts (OpenAI's gives up to 128).
_CHOICES = (100, 50)
#: Where there are no lists to test, fewer are worth a request too (Gemini's gives up to 8).
_FEWEST_CHOICES = 8
_SOME, _FEW = 20, 6
NO_OPTIONS: Mapping[str, Any] = {}
_IN_FLIGHT = 8
#: Many words may follow these: if all draws are equal, they are not random.
_OPEN_TEXTS = (
    "My favourite thing in the world is",
    "Yesterday we found a",
    "Tell me the first word that comes to mind:",
)
_FROZEN = 0.2
#: Maximum number of distinct answers at that temperature, as a share of those at temperature 1. A server that ignores
#: the temperature gives about 1.
_MOST_COLD = 0.75
#: Distinct answers at temperature 1 below which that share is not tested: an honest model may have so few at any.
_LEAST_VARIED = 15
#: Log odds at which draws decide between two claims.
DECIDED = math.log(1000)
_MOST_DRAWS = 120


@experiment("draws of texts")
async def text_draws(session: ProbeSession) -> Outcome:
    """Whether drawn next tokens of texts fit the lists."""
    k = min(session.capabilities.largest_k, 1000)
    asked = (*_TEXTS, *RICH_TEXTS)
    return await _fit(session, "text", [(text, await session.next_tokens(text, k)) for text in asked])


@experiment("draws of chats")
async def chat_draws(session: ProbeSession) -> Outcome:
    """Whether drawn first tokens of answers fit the lists of chats."""
    k = session.capabilities.largest_chat_k
    chats = [*((Message("user", question),) for question in _QUESTIONS), *RICH_CHATS]
    return await _fit(session, "chat", [(chat, await session.next_chat_tokens(chat, k)) for chat in chats])


async def _fit(session: ProbeSession, kind: Kind, asked: Sequence[tuple[Asked, TopLogprobs | BackendError]]) -> Outcome:
    """Draw after each prompt and compare; lists that fail twice are not trusted."""
    lists = [(prompt, top) for prompt, top in asked if isinstance(top, TopLogprobs)]
    if len(lists) < len(asked) / 2:
        raise NotTestedError("not tried: too few lists")
    tops = [top for _, top in lists]
    flag = _short_and_whole(tops) or _rounding(tops)
    if flag:
        session.distrust(kind, flag)
        return Outcome(False, flag)
    places = [chat_place(top) if kind == "chat" else listed_place(top, trimmed=False) for _, top in lists]
    listed = [
        (prompt, dataclasses.replace(place, is_rich=prompt in (*RICH_TEXTS, *RICH_CHATS)))
        for (prompt, _), place in zip(lists, places, strict=True)
    ]
    if session.capabilities.repeat_noise > MAX_NOISE:
        raise NotTestedError("not tried: its lists move too much")
    look = Look(lambda: _sets(session, kind, listed))
    places, fit, message = await compare_draws(session, (look, look))
    if not fit:
        session.distrust(kind, f"drawn tokens do not fit its lists ({message})")
        return Outcome(False, message)
    cold = await _cold_evidence(session, listed)
    if cold < -DECIDED:
        reason = f"draws at temperature {_COLD:g} are those of temperature 1"
        session.distrust(kind, reason)
        return Outcome(False, reason)
    session.limits[kind], session.drawn_after[kind] = unseen(places), listed
    return Outcome(True, message)


@dataclass(frozen=True)
class Look:
    """Sets of draws that are made when they are needed, and the tests of each."""

    draw: Callable[[], Awaitable[Sets]]
    tests: Sequence[Callable[..., float]] = (p_value, rich_p_value, unlisted_bound)


@dataclass(frozen=True)
class Levels:
    """Below which p-values a first look does not fit for certain, does not fit, and fresh ones do not fit.

    Fresh looks are compared together, after each of ``most_fresh``, at an equal share of ``fresh`` (Bonferroni): a lie
    of a tenth of each probability shows in most sets of draws, but not in all.
    """

    at_once: float = 0.0
    first: float = 0.02
    fresh: float = 0.005
    most_fresh: int = 3


async def compare_draws(
    session: ProbeSession, looks: tuple[Look, Look], levels: Levels | None = None
) -> tuple[list[Place], bool, str]:
    """The places of the deciding sets, whether they fit their lists, and a message that says so.

    The second look follows if the first does not fit, as often as `Levels.most_fresh` if its draws do.
    """
    levels = levels or Levels()
    noise, before = session.capabilities.repeat_noise, ""
    sets, p = await _look(looks[0], noise)
    fits = p >= levels.first
    if not fits and p >= levels.at_once:
        before, sets = f"p = {p:.2g}, and then ", []
        for _ in range(levels.most_fresh):
            sets, p = await _look(looks[1], noise, sets)
            fits = p >= levels.fresh / levels.most_fresh
            if not fits:
                break
    places = [place for places in sets for place in places]
    n = sum(place.n for place in places)
    message = f"{n} draws at {len(places)} places: {before}p = {p:.2g} that they come from the lists"
    return places, fits, message


async def _look(look: Look, noise: float, before: Sets = ()) -> tuple[Sets, float]:
    """New sets, joined to those ``before``, and Bonferroni's p-value: the least of each test, times their number."""
    drawn_now = await look.draw()
    sets = [[*old, *new] for old, new in itertools.zip_longest(before, drawn_now, fillvalue=())]
    values = await asyncio.to_thread(lambda: [test(places, noise=noise) for places in sets for test in look.tests])
    return sets, min(1.0, len(values) * min(values))


async def _sets(session: ProbeSession, kind: Kind, listed: Sequence[tuple[Asked, Place]]) -> Sets:
    """Draws of one token, and tokens of long draws, as separate sets."""
    together = session.capabilities.together
    if together == "n" or (together == "prompts" and kind == "text"):
        return [await drawn_places(session, listed, _DRAWS_BY_N if together == "n" else _DRAWS_BY_PROMPTS)]
    if long := await long_draws(session, kind):
        return [await drawn_places(session, listed, _DRAWS_ONE_BY_ONE), long]
    return [await drawn_places(session, listed, _DRAWS_ALONE)]


async def drawn_places(session: ProbeSession, listed: Sequence[tuple[Asked, Place]], each: int) -> list[Place]:
    """The place of each prompt, with ``each`` draws."""
    texts = [await drawn(session, prompt, each) for prompt, _ in listed]
    return with_draws([place for _, place in listed], texts)


async def _cold_evidence(session: ProbeSession, listed: Sequence[tuple[Asked, Place]]) -> float:
    """Log likelihood ratio of draws at a low temperature: that it takes effect, against that it has none.

    Where each draw takes a request, texts with a list for each token come first. If it has no effect there, their lists
    may be those of the low temperature, which decides nothing. Then, or where they do not decide, tokens are drawn
    after the prompts with the highest entropy, until the evidence exceeds `DECIDED` either way.
    """
    kind: Kind = "text" if isinstance(listed[0][0], str) else "chat"
    evidence, n = 0.0, 0
    together = session.capabilities.together
    one_by_one = together is None or (together == "prompts" and kind == "chat")
    if one_by_one:
        async for places in cold_texts(session, kind, _COLD):
            evidence += math.fsum(map(_for_cold, places))
            if abs(evidence) >= DECIDED:
                break
        if evidence < 0 and not await lists_stay(session, kind, _COLD):
            evidence = 0.0
    each = _IN_FLIGHT // _COLD_PROMPTS if one_by_one else _SOME
    most_open = sorted(listed, key=lambda place: -entropy(place[1].listed))[:_COLD_PROMPTS]
    while abs(evidence) < DECIDED and n < _MOST_COLD_DRAWS:
        for prompt, place in most_open:
            try:
                texts = await drawn(session, prompt, each, temperature=_COLD)
            except NotTestedError:
                return evidence  # some models accept no temperature but 1
            n += len(texts)
            evidence += math.fsum(map(_for_cold, with_draws([place], [texts])))
    return evidence


def _for_cold(place: Place) -> float:
    """The log of how much likelier the place's draws are at the low temperature than at 1."""
    cold, same = at_temperature(place, _COLD), at_temperature(place, 1.0)
    return log_likelihood(cold) - log_likelihood(same)


def _rounding(tops: Sequence[TopLogprobs]) -> str:
    """How these lists are rounded; empty if they are not."""
    of_words = [{token.text: token.logprob for token in top.tokens if top.identifies(token)} for top in tops]
    return rounding([[token.logprob for token in top.tokens] for top in tops]) or rounding_of_words(of_words)


def _short_and_whole(tops: Sequence[TopLogprobs]) -> str:
    """Says if short lists hold all the probability; empty if they do not.

    A vocabulary has thousands of tokens: if the last one listed is likely, those after it cannot be impossible.
    """
    whole = []
    for top in tops:
        last = min(math.exp(token.logprob) for token in top.tokens)
        if len(top.tokens) < _SHORT and abs(top.mass - 1) < last / 100:
            whole.append(len(top.tokens))
    if len(whole) < 2:
        return ""
    return f"{len(whole)} lists of {min(whole)} to {max(whole)} tokens hold all probability: filtered or renormalised"


def _too_few_tokens(session: ProbeSession) -> str:
    given = session.api.extras.extra_tokens
    problem = f"no drawn answer is finished within {given} tokens of thought"
    return f"{problem}: raise reasoning_tokens, or lower reasoning_effort"


@experiment("draws without lists")
async def variety(session: ProbeSession) -> Outcome:
    """Whether drawn answers differ, and differ more at a higher temperature: all that can be tested without lists."""
    kind: Kind = "text" if session.capabilities.completions else "chat"
    asked: Sequence[Asked] = _OPEN_TEXTS if kind == "text" else [(Message("user", text),) for text in _OPEN_TEXTS]
    some = _FEW if session.capabilities.reasons else _SOME  # each draw also costs its reasoning
    try:
        texts = [await drawn(session, prompt, some) for prompt in asked]
    except NotTestedError as refused:
        if isinstance(refused.__cause__, BackendError) and "reasoning_tokens" in refused.__cause__.hint:
            session.distrust(kind, _too_few_tokens(session))
        raise
    warm = sum(len(set(some_texts)) for some_texts in texts)
    if session.capabilities.reasons and not any(text.strip() for some_texts in texts for text in some_texts):
        session.distrust(kind, _too_few_tokens(session))
        return Outcome(False, "no thought is finished")
    if warm <= len(asked):
        session.distrust(kind, "drawn answers are all the same")
        return Outcome(False, "all the same")
    # A reasoning model may ignore the temperature (DeepSeek's documentation says so), and draws are expensive.
    if "temperature" in session.capabilities.refused or session.capabilities.reasons:
        return Outcome(None, f"{warm} different ones of {some * len(asked)}, at the model's own temperature")
    cold = sum([len(set(await drawn(session, prompt, some, temperature=_FROZEN))) for prompt in asked])
    message = f"{warm} different ones at temperature 1, {cold} at {_FROZEN:g}, of {some * len(asked)} each"
    colder = cold <= _MOST_COLD * warm
    if not colder and warm < _LEAST_VARIED:
        return Outcome(None, f"{message}: too few to show what the temperature does")
    if not colder:
        session.distrust(kind, f"the temperature has no effect on drawn answers ({message})")
    return Outcome(colder, message)


@experiment("draws beside lists")
async def draws_beside_lists(session: ProbeSession) -> Outcome:
    """Whether the tokens drawn beside this probe's lists fit these lists; if not, a run only draws without lists.

    Where one request gives several draws, those may be of another kind than single ones. If single ones with lists do
    not fit, some without lists decide.
    """
    if not session.capabilities.draws_with_lists:
        raise NotTestedError("not tried: lists come with no draw at temperature 1")
    trusted: list[Kind] = [kind for kind in session.drawn_after if kind not in session.untrusted]
    beside = [*session.beside_lists]
    for kind in trusted if session.capabilities.together is not None else ():
        beside += await places_of_two_texts(session, kind)
    p = single_draws_bound(beside, noise=session.capabilities.repeat_noise)
    message = f"{len(beside)} draws: p = {p:.2g} at most that they come from the lists"
    if p < _DOUBTED and session.capabilities.together is not None:
        await _draw_singly(session, trusted)
    if p < _BESIDE_LISTS or not session.lists_are_steady():
        session.draw_with_lists(False)
        return Outcome(None, f"{message}; not used")
    return Outcome(True, message)


async def _draw_singly(session: ProbeSession, kinds: Sequence[Kind]) -> None:
    """Compare draws that take a request each with the lists. Those by ``n`` fit them, those beside them do not."""
    together = session.capabilities.together
    session.update(together=None)
    for kind in kinds:

        async def alone(kind: Kind = kind) -> Sets:
            return [await drawn_places(session, session.drawn_after[kind], _DRAWS_ALONE)]

        look = Look(alone)
        with contextlib.suppress(NotTestedError):
            _, fit, message = await compare_draws(session, (look, look))
            if not fit:
                reason = f"single draws do not fit its lists as those of one request do ({message})"
                session.distrust(kind, reason)
                session.record(f"single draws of {kind}s", Outcome(False, reason, **{f"{kind}_route": None}))
    session.update(together=together)


@experiment("several draws in one request")
async def draws_together(session: ProbeSession) -> Outcome:
    """Whether one request can give several draws that differ: by ``n``, or by a prompt that is sent several times."""
    has_lists = session.text_list is not None or session.chat_list is not None
    choices = _CHOICES if has_lists else (*_CHOICES, _FEWEST_CHOICES)
    ways: list[tuple[Together, int]] = [("n", size) for size in choices]
    if session.capabilities.completions:
        ways.append(("prompts", session.capabilities.draws_of_a_request("prompts")))
    asked: Asked = _OPEN_TEXTS[0] if session.capabilities.completions else (Message("user", _OPEN_TEXTS[0]),)
    ignores_n = False
    for way, size in ways:
        if way == "n" and ignores_n:
            continue
        texts = await session.ask(_many, session, asked, 1.0, way, size)
        if isinstance(texts, BackendError):
            continue
        if len(texts) == size and len(set(texts)) > 1:
            message = f"{size} by {'the field n' if way == 'n' else 'repeating the prompt'}"
            return Outcome(None, message, together=way, choices=size if way == "n" else session.capabilities.choices)
        ignores_n = True
    return Outcome(None, "not possible: one request a draw")


async def drawn(
    session: ProbeSession,
    asked: Asked,
    count: int,
    *,
    temperature: float = 1.0,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> list[str]:
    """The first tokens of ``count`` answers, as texts. Raises `NotTestedError` if the server refuses to draw."""
    slots = asyncio.Semaphore(_IN_FLIGHT)
    together = session.capabilities.together
    way = together if isinstance(asked, str) or together == "n" else None

    async def ask(size: int) -> list[str] | BackendError:
        async with slots:
            if way is None:
                return await session.ask(_one, session, asked, temperature, options)
            return await session.ask(_many, session, asked, temperature, way, size, options)

    texts: list[str] = []
    while len(texts) < count:
        left = count - len(texts)
        size = session.capabilities.draws_of_a_request(way)
        sizes = [min(size, left - at) for at in range(0, left, size)]
        for answer in await asyncio.gather(*map(ask, sizes)):
            if isinstance(answer, BackendError):
                raise NotTestedError(f"drawing was refused: {str(answer)[:80]}") from answer
            texts += answer
        way = None  # one endpoint may ignore ``n`` although another obeys it
    return texts


async def settle(session: ProbeSession, before: str, token: str, by_list: float, by_other: float) -> tuple[float, int]:
    """Which of two log-probabilities of ``token`` the server's draws after ``before`` support.

    Returns
    -------
    evidence : float
        The log likelihood ratio; positive for ``by_list``. Drawing ends when it exceeds 1000 to 1 (Wald's
        sequential test: the wrong decision is reached at most once in 1000 times).
    draws : int

    Raises `NotTestedError` if all draws would probably not decide. Then only chance would, or that both are false.
    """
    a, b = (min(max(math.exp(value), 1e-6), 1 - 1e-6) for value in (by_list, by_other))
    if _MOST_DRAWS * min(_divergence(a, b), _divergence(b, a)) < DECIDED:
        raise NotTestedError("that is too little for draws to decide")
    evidence, n = 0.0, 0
    while abs(evidence) < DECIDED and n < _MOST_DRAWS:
        texts = await drawn(session, before, _SOME if session.capabilities.together else _IN_FLIGHT)
        hits = sum(text == token for text in texts)
        evidence += hits * math.log(a / b) + (len(texts) - hits) * math.log((1 - a) / (1 - b))
        n += len(texts)
    return evidence, n


def _divergence(a: float, b: float) -> float:
    """The mean log odds for ``a`` against ``b`` of a draw that is a hit with chance ``a`` (Kullback and Leibler)."""
    return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))


async def _one(session: ProbeSession, asked: Asked, temperature: float, more: Mapping[str, Any]) -> list[str]:
    options = {**_options(session, temperature), **more}
    if session.capabilities.seed_works:
        options["seed"] = random.getrandbits(31)  # without one, some servers draw the same every time
    return _texts(await _ask(session, asked, options))


async def _many(
    session: ProbeSession,
    asked: Asked,
    temperature: float,
    way: Together,
    size: int,
    more: Mapping[str, Any] = NO_OPTIONS,
) -> list[str]:
    options = {**_options(session, temperature), **more}
    if way == "n":
        return _texts(await _ask(session, asked, {**options, "n": size}))
    body = {"prompt": [await session.as_sent(str(asked))] * size, **options}
    return _texts(await session.api.experiment("completions", body))


async def _ask(session: ProbeSession, asked: Asked, options: dict[str, Any]) -> dict[str, Any]:
    if isinstance(asked, str):
        return await session.api.completion(await session.as_sent(asked), **options)
    return await session.api.chat(asked, **options)


def _options(session: ProbeSession, temperature: float) -> dict[str, Any]:
    request = GenerateRequest("", Sampling(temperature=temperature, max_tokens=1))
    return sampling_options(request, session.capabilities.family)


def _texts(response: Mapping[str, Any]) -> list[str]:
    choices = response.get("choices")
    if not isinstance(choices, Sequence) or not all(isinstance(choice, Mapping) for choice in choices) or not choices:
        raise BackendError("malformed", "an answer without choices", retryable=True)
    texts = []
    for choice in choices:
        texts.append(text_of(choice) or "")
    return texts
