"""What a look asks about texts: lists, their temperature and noise, twins, token ids, and rows of whole texts."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.look.copied import TEXT as COPIED
from backends.openai.look.copied import rewritten
from backends.openai.look.session import FILTERED, SAME, Kind, Looking, apart, are_equal, holds_all
from backends.openai.scoring.given_tokens import chosen_tokens, echoed, prompt_logprobs
from backends.openai.scoring.next_tokens import next_tokens
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs
from backends.reading.reasoning import text_of

_DAYS = " ".join(
    f"On {day} {who} told {whom} about the old house by the river."
    for day, who, whom in (
        *(("Monday", "Anna", "Ben"), ("Tuesday", "Clara", "David"), ("Wednesday", "the nurse", "Anna")),
        *(("Thursday", "Ben", "Clara"), ("Friday", "the pilot", "David"), ("Saturday", "Anna", "the nurse")),
        *(("Sunday", "Clara", "the pilot"), ("Monday", "David", "Ben"), ("Tuesday", "the nurse", "Clara")),
    )
)
#: Longer than the contexts and caches of a hundred tokens that were met.
BASE = f"Yesterday it was cold. {_DAYS}\nThen she said that the"
_TWINS = {"start": BASE.replace("Yesterday", "Tomorrow", 1), "end": BASE.removesuffix("that the") + "that a"}
#: Entries asked for at first, and where a refusal names no number; of lists that are compared; of a whole vocabulary.
_FIRST_K, _LESS, COMPARED, WHOLE = 1000, (100, 20, 5, 1), 100, 10**6
#: Listed words of which some begin with a space.
_FEWEST_WORDS = 4
#: Answers asked for at once: Google's servers give 8 at most.
_CHOICES = (20, 8, 1)
#: What is drawn. Three such answers are alike by chance once in ten million looks: SmolLM2 gives the likeliest eight
#: tokens a probability of e^-8, and a surer model's opening words leave sixteen.
_RANDOM = "Ten random letters and digits:"
#: Nats by which a row may differ from the list after the same text: half precision.
_OFF = 0.05
#: Tokens that a word has at least, on average.
_LEAST_COUNTED = 0.8
#: Nats. Lists that move more are of no use.
MAX_NOISE = 1.0

_UNCUT = (
    "a cache answers, or the prompt is cut. Switch off the cache in front of the model, and give it room for whole "
    "prompts"
)
Ask = Callable[[int], Awaitable[TopLogprobs]]
Twin = Callable[[], Awaitable[TopLogprobs]]


async def longest_list(look: Looking, ask: Ask, most: int) -> tuple[TopLogprobs | BackendError, int]:
    """The longest list of up to ``most`` entries and its length, or the last refusal; requests are adapted to it."""
    k, tries = most, 0
    while True:
        top, tries = await look.ask(ask, k), tries + 1
        if isinstance(top, TopLogprobs):
            return top, min(k, len(top.tokens))
        if top.kind == "inconsistent" and not look.found.temperature:
            look.found.temperature = 1.0  # at 0 some servers list the drawn token alone
            continue
        if isinstance(top, NothingDrawnError) or top.kind not in ("bad_request", "unsupported", "server"):
            return top, 0
        if look.adapt(top):
            continue
        less = [int(n) for n in re.findall(r"\d+", top.message) if 0 < int(n) < min(k, most)]
        k = max(less, default=next((n for n in _LESS if n < k), 0))
        if k == 0 or tries > len(_LESS) or top.kind == "unsupported":
            return top, 0


async def look_at_texts(look: Looking) -> None:
    """Whether texts are continued, and by which route they can be scored."""
    api, before = look.api, look.api.usage.prompt_tokens
    top, k = await longest_list(look, lambda k: next_tokens(api, BASE, k), _FIRST_K)
    if isinstance(top, BackendError):
        look.without_lists = str(top)
        plain: Any = top
        if top.kind not in ("not_found", "auth"):
            plain = await look.ask(api.completion, BASE, max_tokens=1, temperature=1.0)
        if isinstance(plain, dict) and "choices" in plain:
            look.update(completions=True)
        else:
            look.refusal = plain if isinstance(plain, BackendError) else BackendError("not_found", "another API")
        return
    counted = api.usage.prompt_tokens - before
    look.update(completions=True, largest_k=k, identity=top.identity)
    look.lists["text"] = top
    tokenizer = await _tokenizer(look)
    await temperature_and_noise(look, top, lambda: next_tokens(api, BASE, min(k, COMPARED)))
    if look.found.family == "llama.cpp" and look.noise > SAME:
        await _uncached(look, min(k, COMPARED))
    few = min(k, COMPARED)
    twins = {place: functools.partial(next_tokens, api, text, few) for place, text in _TWINS.items()}
    await compare_twins(look, "text", look.lists["text"], twins, _UNCUT)
    look.prompts += 1
    copied = await look.ask(api.completion, COPIED, max_tokens=24, temperature=api.found.temperature)
    if isinstance(copied, dict) and (problem := rewritten(copied)):
        look.distrust("text", problem)
    _counts(look, copied, counted)
    if top.identity != "ids" and _lost_spaces(top):
        look.distrust("text", "listed words have lost the space before them: two words share one string. Update it")
    if k == _FIRST_K:
        await _whole(look)
    by_ids = tokenizer is not None and await _by_ids(look, tokenizer)
    route = await _rows(look, tokenizer if by_ids else None)
    if look.noise > MAX_NOISE:
        look.distrust("text", f"its numbers move by {look.noise:.2g} nats when a prompt is repeated")
    if "text" not in look.distrusted:
        look.update(text_route=route or ("top_k_ids" if by_ids else "top_k"))


async def temperature_and_noise(look: Looking, first: TopLogprobs, ask: Callable[[], Awaitable[TopLogprobs]]) -> None:
    """Whether the list is the same where the answer is drawn at temperature 1, and how far it moves by itself."""
    before, look.found.temperature = look.found.temperature, 1.0
    warm = await look.ask(ask)
    look.found.temperature = before
    moved = apart(first, warm)
    if before or moved <= SAME:
        look.noise = max(look.noise, moved if moved < float("inf") else 0.0)
        return
    again = await look.ask(ask)
    noise = apart(first, again)
    if noise >= moved / 2:
        look.noise = max(look.noise, min(noise, moved))
    else:
        look.noise, look.found.temperature = max(look.noise, noise), 1.0
        look.notes.append("its lists depend on the temperature, so 1 is asked for")


async def _uncached(look: Looking, k: int) -> None:
    """Bypass llama.cpp's cache of prompts if its numbers are then steadier."""
    look.update(uncached=True)
    first, again = [await look.ask(next_tokens, look.api, BASE, k) for _ in range(2)]
    if isinstance(first, TopLogprobs) and apart(first, again) < look.noise / 2:
        look.noise, look.lists["text"] = apart(first, again), first
    else:
        look.update(uncached=False)


async def compare_twins(look: Looking, kind: Kind, top: TopLogprobs, twins: Mapping[str, Twin], advice: str) -> None:
    """Prompts that differ at one place must get other lists than the first, ``top``."""
    alike, filtered = [], holds_all(top)
    for place, ask in twins.items():
        other = await look.ask(ask) if look.has_room() else None
        if isinstance(other, TopLogprobs):
            alike += [place] * are_equal(_cut(top, other.requested_k), other, look.noise)
            filtered = filtered and holds_all(other)
            look.prompts += 1
    if filtered:
        look.distrust(kind, FILTERED)
    if alike:
        look.distrust(kind, f"{kind}s that differ at their {' and '.join(alike)} got one list: {advice}")


def _lost_spaces(top: TopLogprobs) -> bool:
    """Whether no word that follows a whole word has the space before it, as vLLM listed them until 2026."""
    words = [token.text for token in top.tokens if token.text.strip(" Ġ▁").isalpha()]
    return len(words) >= _FEWEST_WORDS and all(word[0].isalpha() and word[0] != "Ġ" for word in words)


def _cut(top: TopLogprobs, k: int) -> TopLogprobs:
    return TopLogprobs(top.tokens[:k], k, top.sampled, top.identity)


def _counts(look: Looking, copied: object, before: int) -> None:
    """A longer text must be counted as more tokens."""
    usage = copied.get("usage") if isinstance(copied, Mapping) else None
    short = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    if isinstance(short, int) and before and (short >= before or before < _LEAST_COUNTED * len(BASE.split())):
        look.distrust(
            "text",
            f"a text of {len(BASE.split())} words is counted as {before} tokens, and a shorter one as {short}: it was "
            "cut. Give the server "
            "room for whole prompts (llama.cpp: -c, vLLM: --max-model-len)",
        )


async def _tokenizer(look: Looking) -> RemoteTokenizer | None:
    """The server's tokenizer, by the dialect that answers."""
    client, model = look.api.client, look.api.options.model
    for dialect in ("llama.cpp", "vllm", "llama-cpp-python"):
        tokenizer = RemoteTokenizer(client, model, dialect)
        ask = tokenizer.pieces if dialect == "llama.cpp" else tokenizer.ids
        found: Any = await look.ask(ask, BASE)
        if isinstance(found, BackendError):
            continue
        if dialect == "vllm":
            text = await look.ask(client.post, "/detokenize", {"model": model, "tokens": found})
            if isinstance(text, dict) and "prompt" not in text:
                tokenizer = RemoteTokenizer(client, model, "sglang")
        look.update(family=tokenizer.dialect)
        return tokenizer
    return None


async def _whole(look: Looking) -> None:
    """Whether lists may hold the whole vocabulary: those of llama.cpp may, others are asked."""
    if look.found.family in ("llama.cpp", "llama-cpp-python"):
        look.update(largest_k=WHOLE)
    elif look.has_room():
        whole = await look.ask(next_tokens, look.api, BASE, WHOLE)
        if isinstance(whole, TopLogprobs) and len(whole.tokens) > _FIRST_K:
            look.update(largest_k=WHOLE)


async def _by_ids(look: Looking, tokenizer: RemoteTokenizer) -> bool:
    """Whether a prompt may be given as token ids, BOS included."""
    if look.found.family == "llama-cpp-python" or not look.has_room(2):  # it refuses them, with 500
        return False
    ids, k = await look.ask(tokenizer.ids, BASE), min(look.found.largest_k, COMPARED)
    if isinstance(ids, BackendError):
        return False
    by_ids = await look.ask(next_tokens, look.api, ids, k)
    if isinstance(by_ids, BackendError):
        return False
    off = apart(look.lists["text"], by_ids)
    if off > max(_OFF, 2 * look.noise):
        look.distrust("text", f"a prompt as token ids is {off:.2g} nats from the same prompt as text")
        return False
    look.update(takes_ids=True)
    return True


async def _rows(look: Looking, tokenizer: RemoteTokenizer | None) -> Any:
    """The first route over whole texts, or chosen tokens, that agrees with the list after the same text; or None."""
    family, top = look.found.family, look.lists["text"]
    word = next((t for t in top.tokens if t.text.strip().isalpha() and t.text[:1] == " " and top.identifies(t)), None)
    if word is None or family in ("llama.cpp", "llama-cpp-python"):
        return None
    routes: Sequence[tuple[str, Callable[[], Awaitable[float | None]]]] = [
        *([("logprob_token_ids", lambda: _chosen(look, tokenizer, word.text))] if family == "vllm" else []),
        *([("prompt_logprobs", lambda: _last_of_ids(look, tokenizer, word.text))] if tokenizer is not None else []),
        ("echo", lambda: _last_echoed(look, word.text)),
    ]
    for route, ask in routes:
        value = await look.ask(ask) if look.has_room(2) else None
        if value is None or isinstance(value, BackendError):
            continue
        if abs(value - word.logprob) <= max(_OFF, 2 * look.noise):
            return route
        look.notes.append(f"{route} is {abs(value - word.logprob):.2g} nats from its lists, and is not used")
    return None


async def _chosen(look: Looking, tokenizer: RemoteTokenizer | None, word: str) -> float | None:
    if tokenizer is None:
        return None
    before, both = await tokenizer.ids(BASE), await tokenizer.ids(BASE + word)
    if both[:-1] != before:
        return None
    # Two, one of them unlikely: who ignores the choice, as vLLM does unknown fields, lists the likeliest alone.
    return (await chosen_tokens(look.api, {tuple(before): [both[-1], before[0]]}))[tuple(before)][both[-1]]


async def _last_of_ids(look: Looking, tokenizer: RemoteTokenizer | None, word: str) -> float | None:
    assert tokenizer is not None
    return (await prompt_logprobs(look.api, await tokenizer.ids(BASE + word)))[-1]


async def _last_echoed(look: Looking, word: str) -> float | None:
    last = (await echoed(look.api, BASE + word))[-1]
    return last.logprob if last.text == word else None


async def draws_together(look: Looking) -> None:
    """How many answers one request gives by ``n``, whether a seed determines them, and whether they vary at all."""
    if look.found.family in ("llama.cpp", "llama-cpp-python"):  # of these it is known
        look.update(seed_works=True)
        return
    first: list[str] = []
    for n in _CHOICES:
        if not first and look.has_room(3):
            first = await _drawn(look, 7, n)
    n = len(first)
    look.update(choices=max(n, 1))
    if not first or not look.has_room(2):
        return
    few = min(n, 2)
    again, other = await _drawn(look, 7, few), await _drawn(look, 8, few)
    if n == 1 and first == again == other and look.has_room():
        other += await _drawn(look, 9, 1)
    said = [text for text in (*first, *again, *other) if text]  # a thought alone says nothing
    if len(said) > 1 and len(set(said)) == 1:
        look.copies = "drawn answers to one question are all the same: a cache answers, or the likeliest word is taken"
    look.update(seed_works=again == first[:few] != other)


async def _drawn(look: Looking, seed: int, n: int) -> list[str]:
    """The texts of one request for ``n`` answers; empty if it is refused."""
    options: dict[str, Any] = {"max_tokens": 24, "temperature": 1.0, "top_p": 1.0, "seed": seed}
    options |= {"n": n} if n > 1 else {}
    answer: dict[str, Any] | BackendError
    if look.found.completions:
        answer = await look.ask(look.api.completion, _RANDOM, **options)
    else:
        answer = await look.ask(look.api.chat, (Message("user", _RANDOM),), **options)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
        return []
    return [text_of(choice) or "" for choice in choices]
