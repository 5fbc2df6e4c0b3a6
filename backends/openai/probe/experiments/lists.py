"""Experiments with lists of next tokens: their length, their stability, and whether they are the model's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import getrandbits
from typing import NamedTuple

from backends.errors import BackendError
from backends.openai.probe.experiments.addresses import elsewhere
from backends.openai.probe.session import (
    FULL_PRECISION,
    MAX_NOISE,
    OTHER,
    PROMPT,
    Kind,
    NotTestedError,
    Outcome,
    ProbeSession,
    accepted,
    experiment,
    max_abs_diff,
)
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs

#: llama.cpp reads more than 32 tokens at once by other kernels than fewer: its numbers then depend on how many of a
#: prompt's tokens lie in its cache, which no shorter prompt shows.
_LONG = (
    "The letter lay under a chair in the waiting room for three days, between a newspaper and an umbrella that nobody "
    "had asked for. On the fourth day it was found, opened by mistake, read twice, and brought to the desk at the end "
    "of the long corridor, where two people were talking about the weather.\n"
)
#: After these a new word follows, and with it a space.
_WORDS_FOLLOW = ("Monday, Tuesday,", "Her brother is a", "one, two, three,")
_AUDITED = "Is it a man or a woman? He or she? Male, Female, Other: male, female, unknown, neutral, yes, no."
_LISTED, _MIN_WORDS = 20, 6
#: Of so many listed words, after sentences and before names and days, some have a capital letter.
_WITH_CAPITALS = 150
_WHOLE_VOCABULARY = 10**6
#: Nats by which a list may have moved at the end of a probe.
_AT_THE_END = 0.1
#: How many entries are asked for at first: some servers give no more than one or two, and refuse more.
_FIRST_LISTS = (5, 2, 1)


@experiment("next-token lists")
async def next_token_lists(session: ProbeSession) -> Outcome:
    """Whether texts are continued, with lists or without."""
    for k in _FIRST_LISTS:
        top = await session.next_tokens(PROMPT, k)
        if isinstance(top, TopLogprobs) or top.kind != "bad_request":
            break
    if isinstance(top, TopLogprobs):
        session.text_list = top
        return Outcome(True, f"identified by {top.identity}", completions=True, identity=top.identity)
    plain = await session.ask(session.api.completion, PROMPT, max_tokens=1, temperature=0.0)
    if isinstance(plain, dict) and "choices" not in plain:  # llama.cpp has an API of its own at this path
        error = BackendError("not_found", "answers of another API, without choices")
        plain = error if (told := await elsewhere(session, error)) is None else told
        if told is not None:
            raise told
    works = isinstance(plain, dict)
    session.unanswered = plain if isinstance(plain, BackendError) else None
    session.record("completions", Outcome(works, "without lists" if works else str(plain), completions=works))
    if works:
        session.without_lists = str(top)
    return Outcome(False, str(top))


async def longest(
    ask: Callable[[int], Awaitable[TopLogprobs | BackendError]],
) -> tuple[TopLogprobs | BackendError, int]:
    """The longest list of up to 1000 entries, and its length; or the last refusal, and 0."""
    refused: int | None = None
    for k in (1000, 100, 20, 5, 1):
        top = await ask(k)
        if isinstance(top, TopLogprobs):
            break
        if isinstance(top, NothingDrawnError) or top.kind in ("not_found", "auth"):
            return top, 0  # a shorter list will not help
        refused = k
    else:
        return top, 0
    while refused is not None and refused - k > 1 and len(top.tokens) >= k:
        middle = (k + refused) // 2
        longer = await ask(middle)
        if isinstance(longer, TopLogprobs):
            k, top = middle, longer
        else:
            refused = middle
    return top, min(k, len(top.tokens))


@experiment("longest list")
async def longest_list(session: ProbeSession) -> Outcome:
    """The largest k, up to the whole vocabulary."""
    longest_top, k = await longest(lambda k: session.next_tokens(PROMPT, k))
    session.longest_list = top = accepted(longest_top)
    if k >= 0.9 * 1000:  # strings may collide
        whole = await session.next_tokens(PROMPT, _WHOLE_VOCABULARY)
        if isinstance(whole, TopLogprobs) and len(whole.tokens) > len(top.tokens):
            session.longest_list = whole
            message = f"{len(whole.tokens)} entries{', the whole vocabulary' if whole.is_whole else ''}"
            return Outcome(True, message, largest_k=_WHOLE_VOCABULARY)
    return Outcome(True, f"{k} entries", largest_k=k)


class _Noise(NamedTuple):
    """How far answers to one question differ (nats): asked one after the other, and beside others, too."""

    in_turn: float
    largest: float


@experiment("repetition and order")
async def repeat_noise(session: ProbeSession) -> Outcome:
    """How far repeated numbers differ; llama.cpp's cache is bypassed if that makes them more stable."""
    noise, uncached, remark = await _noise(session), False, ""
    if isinstance(noise, _Noise) and noise.largest > FULL_PRECISION and session.capabilities.family == "llama.cpp":
        session.api.always_sent = {"cache_prompt": False}
        without_cache = await _noise(session)
        if isinstance(without_cache, _Noise) and without_cache.largest < noise.largest / 2:
            remark = f"; {noise.largest:.2g} with the server's cache, which is bypassed"
            noise, uncached = without_cache, True
        else:
            session.api.always_sent = {}
            if isinstance(without_cache, _Noise) and without_cache.in_turn < noise.largest / 2:
                remark = f"; {without_cache.in_turn:.2g} asked one at a time without its cache: max_in_flight=1"
    if isinstance(noise, BackendError):
        return Outcome(False, str(noise), repeat_noise=float("inf"))
    message = f"move the numbers by up to {noise.largest:.2g} nats{remark}"
    return Outcome(noise.largest <= MAX_NOISE, message, repeat_noise=noise.largest, uncached=uncached)


async def _noise(session: ProbeSession) -> _Noise | BackendError:
    """The noise of one question: after others, with its start in the cache, and beside others."""
    k = min(session.capabilities.largest_k, 1000)
    # An earlier probe's text may still lie in the cache of llama.cpp: hence a number.
    cached = session.capabilities.family in ("llama.cpp", "llama-cpp-python")
    asked = f"{getrandbits(30)}. {_LONG}{PROMPT}" if cached else PROMPT
    half = asked.replace("one word", "a drawing")  # leaves a cache that is half reusable
    in_turn = [await session.next_tokens(asked, k)]
    others = []
    for text in (half, asked + " The", OTHER):
        others.append(await session.next_tokens(text, 1))
        in_turn.append(await session.next_tokens(asked, k))
    together = await asyncio.gather(*(session.next_tokens(text, k) for text in (asked, OTHER, asked, half, asked)))
    repeated = [*in_turn, *together[::2]]
    # A lie about any of these texts counts as much as a lie about the first.
    lies = [top for top in (*others, *together) if isinstance(top, BackendError) and top.kind == "inconsistent"]
    failures = [top for top in (*lies, *repeated) if isinstance(top, BackendError)]
    if failures:
        return failures[0]
    moves = [max_abs_diff(repeated[0], top) for top in repeated[1:]]
    return _Noise(max(moves[: len(in_turn) - 1]), max(moves))


@experiment("leading spaces")
async def leading_spaces(session: ProbeSession) -> Outcome:
    """Whether listed words keep their leading space: without it two tokens share one string, and match no text."""
    if session.capabilities.identity == "ids":
        raise NotTestedError("tokens are identified by ids")
    k = min(session.capabilities.largest_k, _LISTED)
    tops = [await session.next_tokens(text, k) for text in _WORDS_FOLLOW]
    listed = [token.text for top in tops if isinstance(top, TopLogprobs) for token in top.tokens]
    words = [text for text in listed if text[:1].isalpha()]
    # A tokenizer may have a token for the space alone; SentencePiece and byte-level BPE write it as "▁" and "Ġ".
    spaced = [text for text in listed if not text.strip() or text[0].isspace() or text[0] in "▁Ġ"]
    message = f"{len(spaced)} of {len(listed)} tokens after whole words begin with a space"
    if spaced or len(words) < _MIN_WORDS:
        return Outcome(True, message)
    session.distrust("text", f"listed words have lost the space before them ({message})")
    return Outcome(False, message)


@experiment("capital letters of texts")
async def text_capitals(session: ProbeSession) -> Outcome:
    """Whether words listed after texts keep their capital letters."""
    return _capitals(session, "text")


@experiment("capital letters of chats")
async def chat_capitals(session: ProbeSession) -> Outcome:
    """Whether words listed in chats keep their capital letters."""
    return _capitals(session, "chat")


def _capitals(session: ProbeSession, kind: Kind) -> Outcome:
    """Without its capital letters a word shares its string with another one, and seems unlisted: a false bound."""
    with_capitals, n = session.words[True], session.words.total()
    message = f"{with_capitals} of {n} listed words have one"
    if with_capitals or n < _WITH_CAPITALS:
        return Outcome(True if with_capitals else None, message)
    session.distrust(kind, f"listed words have lost their capital letters ({message})")
    return Outcome(False, message)


@experiment("raw values")
async def temperature(session: ProbeSession) -> Outcome:
    """Whether lists hold the model's own probabilities, or those that the sampler derived from them."""
    first = session.text_list
    assert first is not None
    session.draw_with_lists()
    warm = await session.next_tokens(PROMPT, len(first.tokens))
    session.settled_list = warm if isinstance(warm, TopLogprobs) else None
    if max_abs_diff(first, warm) <= session.tolerance():
        return Outcome(True, "the temperature changes nothing", temperature=0.0)
    session.draw_with_lists(False)
    session.api.temperature = 1.0
    return Outcome(None, "lists depend on the temperature: 1 is used", temperature=1.0)


@experiment("lists at the end")
async def lists_at_the_end(session: ProbeSession) -> Outcome:
    """Whether nothing that the probe sent stays, such as a bias: one list is still what it was."""
    if session.settled_list is None or session.capabilities.repeat_noise > MAX_NOISE:
        raise NotTestedError("not tried: no list to compare with")
    now = accepted(await session.next_tokens(PROMPT, len(session.settled_list.tokens)))
    diff = max_abs_diff(session.settled_list, now)
    message = f"one list is {diff:.2g} nats from what it was before"
    if diff <= max(_AT_THE_END, 4 * session.capabilities.repeat_noise):
        return Outcome(True, message)
    session.distrust("text", f"{message}: something that was sent in between stays, or another model answers")
    return Outcome(False, message)


@experiment("ids of listed tokens")
async def listed_ids(session: ProbeSession) -> Outcome:
    """Whether a listed id belongs to the text beside it: scores are read by id, draws by text."""
    if session.capabilities.identity != "ids" or session.longest_list is None:
        raise NotTestedError("tokens are identified by their texts")
    tokenizer, compared = session.needed_tokenizer(), 0
    for text in (PROMPT, OTHER, _AUDITED):
        # A tokenizer may add a space to the first token.
        for piece in accepted(await session.ask(tokenizer.pieces, text))[2:]:
            listed = session.longest_list.by_id(piece.token_id)
            if listed is None or not piece.data.strip():
                continue
            compared += 1
            if (listed.data or listed.text.encode()).strip() != piece.data.strip():
                message = (
                    f"the listed token {listed.text!r:.40} has the id of {piece.data.decode('utf-8', 'replace')!r:.40}"
                )
                session.distrust("text", message)
                session.distrust("chat", message)
                return Outcome(False, message)
    return Outcome(True if compared else None, f"{compared} are those of the tokenizer")


@experiment("prompts as token ids")
async def token_ids(session: ProbeSession) -> Outcome:
    """Whether a prompt may be given as token ids, BOS included."""
    ids = accepted(await session.ask(session.needed_tokenizer().ids, PROMPT))
    k = min(session.capabilities.largest_k, 100)
    by_text = await session.next_tokens(PROMPT, k)
    by_ids = await session.next_tokens(ids, k)
    if isinstance(by_ids, BackendError) and by_ids.kind == "inconsistent":
        session.distrust("text", f"prompts as token ids: {by_ids.message}")
    diff = max_abs_diff(accepted(by_text), accepted(by_ids))
    message = f"{diff:.2g} nats from the same prompt as text"
    if diff <= session.tolerance():
        return Outcome(True, message, takes_ids=True)
    change = await _bos_of_texts(session, by_text, ids, k)
    if change is None:
        session.distrust("text", f"a prompt as token ids is {diff:.2g} nats from the same prompt as text")
        return Outcome(False, message)
    session.by_ids, session.settled_list = True, accepted(by_ids)
    session.statements.append(
        f"a prompt as text is {diff:.2g} nats from the same prompt as token ids. A third question decided: the text's "
        f"list is that of its ids {change} BOS token. Every text is asked as token ids"
    )
    return Outcome(False, f"{message}, whose list is that of the ids {change} BOS token", takes_ids=True)


async def _bos_of_texts(
    session: ProbeSession, by_text: TopLogprobs | BackendError, ids: list[int], k: int
) -> str | None:
    """How the server changes a text's BOS token, if that explains its list, as a phrase; else None."""
    if session.capabilities.bos:
        for change, changed in (("with a second", [ids[0], *ids]), ("without their", ids[1:])):
            if max_abs_diff(by_text, await session.next_tokens(changed, k)) <= session.tolerance():
                return change
    return None


@experiment("prompt without BOS")
async def without_bos(session: ProbeSession) -> Outcome:
    """Whether the tokens without BOS are a different prompt, or the server adds it: informative only."""
    if not session.capabilities.takes_ids:
        raise NotTestedError("not tried: needs prompts as token ids")
    if not session.capabilities.bos:
        return Outcome(None, "is how the model was trained: it has no BOS")
    ids = accepted(await session.ask(session.needed_tokenizer().ids, PROMPT))
    k = min(session.capabilities.largest_k, 100)
    by_text, bare = await session.next_tokens(PROMPT, k), await session.next_tokens(ids[1:], k)
    diff = max_abs_diff(accepted(by_text), accepted(bare))
    if diff <= session.tolerance():
        return Outcome(None, "the server adds a BOS, unless one was sent")
    return Outcome(None, f"is another prompt, {diff:.2g} nats away: the BOS is always sent")
