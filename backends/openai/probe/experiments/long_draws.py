"""Sampled texts with a list for each token: many draws per request, for servers that give one text at a time.

A server may answer with another model when lists are requested: these draws do not replace those without lists.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from backends.base import GenerateRequest, Message, Sampling
from backends.errors import BackendError
from backends.openai.probe.calibration import Place, listed_place
from backends.openai.probe.experiments.rich_prompts import RICH_TASKS, RICH_TEXTS
from backends.openai.probe.session import Kind, ProbeSession
from backends.openai.protocol.api import single_choice
from backends.openai.protocol.parameters import sampling_options
from backends.openai.scoring.top_logprobs import read_top_logprobs

#: Each is continued, or answered, with many words. The first ones are also sampled at a low temperature.
_BEGINNINGS = (
    "Once upon a time there was a",
    "The weather today is",
    "She opened the letter and",
    *RICH_TEXTS,
)
_TASKS = (
    "Tell me a short story about a dog.",
    "Describe a house by a river.",
    "Write a letter to a friend about the summer.",
)
#: Tokens per text, draws of each, and texts at a low temperature. Not longer: a slow server has a time limit for each
#: answer.
_TOKENS, _TIMES, _COLD_TEXTS = 96, 2, 4
#: Entries of each list.
_LISTED = 100
#: Nats by which a drawn token's own value may differ from the list's, and the share of tokens that may differ by more.
_OWN_VALUE_OFF, _MOST_OFF = 0.02, 0.1


async def long_draws(session: ProbeSession, kind: Kind) -> list[Place]:
    """A place for each token of some texts sampled at temperature 1; none if their lists cannot be read.

    Lists whose values for the drawn tokens differ from the answer's own are not trusted.
    """
    found = session.capabilities
    places: list[Place] = []
    off: list[bool] = []
    for prompt in [*_prompts(kind)] * _TIMES:
        drawn = await session.ask(_text, session, prompt, 1.0)
        if isinstance(drawn, BackendError):
            return []
        is_rich = prompt in (*RICH_TEXTS, *RICH_TASKS)
        places += [dataclasses.replace(place, is_rich=is_rich) for place, _ in drawn]
        off += [moved > max(_OWN_VALUE_OFF, found.repeat_noise) for _, moved in drawn if moved is not None]
    if sum(off) > _MOST_OFF * len(off):
        session.distrust(kind, f"{sum(off)} of {len(off)} drawn tokens have another value in their own lists")
    return places


async def places_of_two_texts(session: ProbeSession, kind: Kind) -> list[Place]:
    """A place for each token of two texts sampled at temperature 1; none if they are refused."""
    drawn = [await session.ask(_text, session, prompt, 1.0) for prompt in _prompts(kind)[:2]]
    return [place for text in drawn if not isinstance(text, BackendError) for place, _ in text]


async def cold_texts(session: ProbeSession, kind: Kind, temperature: float) -> AsyncIterator[list[Place]]:
    """A place for each token of a text that is drawn at this temperature, for a few texts; ends if one is refused."""
    for prompt in _prompts(kind)[:_COLD_TEXTS]:
        drawn = await session.ask(_text, session, prompt, temperature)
        if isinstance(drawn, BackendError):
            return
        yield [place for place, _ in drawn]


async def lists_stay(session: ProbeSession, kind: Kind, temperature: float) -> bool:
    """Whether the list after a prompt is the same at this temperature as at 1: the model's own."""
    first = [await session.ask(_text, session, _prompts(kind)[0], t, tokens=1) for t in (temperature, 1.0)]
    if any(isinstance(drawn, BackendError) or not drawn for drawn in first):
        return False
    cold, warm = (dict(drawn[0][0].listed) for drawn in first if not isinstance(drawn, BackendError))
    return cold.keys() == warm.keys() and all(
        abs(math.log(cold[text] / warm[text])) <= session.tolerance() for text in cold
    )


def _prompts(kind: Kind) -> Sequence[str | tuple[Message, ...]]:
    return _BEGINNINGS if kind == "text" else [*((Message("user", task),) for task in _TASKS), *RICH_TASKS]


async def _text(
    session: ProbeSession, asked: str | tuple[Message, ...], temperature: float, tokens: int = _TOKENS
) -> list[tuple[Place, float | None]]:
    found = session.capabilities
    k = min(found.largest_k if isinstance(asked, str) else found.largest_chat_k, _LISTED)
    request = GenerateRequest("", Sampling(temperature=temperature, max_tokens=tokens))
    options = sampling_options(request, session.capabilities.family)
    if session.capabilities.seed_works:
        options["seed"] = random.getrandbits(31)
    if isinstance(asked, str):
        response = await session.api.completion(await session.as_sent(asked), logprobs=k, **options)
    else:
        response = await session.api.chat(asked, logprobs=True, top_logprobs=k, **options)
    return list(_places(single_choice(response), k))


def _places(choice: Mapping[str, Any], k: int) -> Iterator[tuple[Place, float | None]]:
    """Each token's place, and the difference between its own value and the list's; None if either is missing."""
    for logprobs, value in _positions(choice.get("logprobs")):
        one = {"index": 0, "finish_reason": "length", "logprobs": logprobs}
        # A drawn token that is listed beyond the k would make each drawn token a listed one.
        top = read_top_logprobs({"choices": [one]}, k).likeliest(k)
        own = [token for token in top.tokens if token.text == top.sampled and top.identifies(token)]
        known = len(own) == 1 and isinstance(value, int | float)
        yield listed_place(top, trimmed=False, drawn=[top.sampled]), abs(own[0].logprob - value) if known else None


def _positions(logprobs: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """For each token, its list in the form of a one-token answer, and the token's own value."""
    if not isinstance(logprobs, Mapping):
        return
    content, tokens, tops = (logprobs.get(name) for name in ("content", "tokens", "top_logprobs"))
    if isinstance(content, Sequence):
        yield from (({"content": [entry]}, entry.get("logprob")) for entry in content)
    elif isinstance(tokens, Sequence) and isinstance(tops, Sequence):
        values = logprobs.get("token_logprobs") or [None] * len(tokens)
        for token, top, value in zip(tokens, tops, values, strict=False):
            yield {"tokens": [token], "top_logprobs": [top]}, value
