"""Scores from the log-probabilities of tokens that are given: those of a whole prompt, or chosen ones after it.

``prompt_logprobs`` (vLLM) names each token by its id; ``echo`` (the legacy completions endpoint)
gives strings and offsets: one request per continuation. vLLM also gives those of chosen tokens, however unlikely
(``logprob_token_ids``): one request per prefix. All are parsed strictly: inconsistent responses are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.http.retries import together
from backends.openai.protocol.api import ServerApi, check_finished, single_choice
from backends.openai.quirks import MOST_CHOSEN_IDS
from backends.openai.scoring.tokenizer import Joined, RemoteTokenizer
from backends.openai.scoring.top_logprobs import MASS_SLACK, bounded, checked_logprob, count_placeholders

#: Routes that score each continuation by requests of its own.
ONE_AT_A_TIME = ("echo", "prompt_logprobs")
#: Equal values of full precision at the lower end of a text's rows, which no model gives by chance.
_TOO_MANY_ALIKE = 3
#: Nats. Values above it are equal where a model is certain.
_CERTAIN = -1e-3
#: Prompts whose tokens are remembered.
_MOST_PROMPTS = 20_000
Ids = tuple[int, ...]
Chosen = dict[Ids, dict[int, float]]
"""Per prefix the log-probabilities (nats) of the tokens that were asked for after it."""


@dataclass(frozen=True, slots=True)
class EchoedToken:
    """A token of the prompt. ``logprob`` is None for the first token of a text without BOS."""

    text: str
    start: int
    end: int
    logprob: float | None


async def echoed(api: ServerApi, text: str) -> tuple[EchoedToken, ...]:
    """The tokens of ``text``, with ``start`` and ``end`` in characters.

    One extra token is generated and dropped: with ``max_tokens`` 0 llama-cpp-python generates until its context ends.
    """
    choice = single_choice(await api.completion(text, echo=True, logprobs=1, max_tokens=1, temperature=0.0))
    echo = choice.get("text")
    if not isinstance(echo, str) or not echo.startswith(text):
        raise inconsistent("echo is ignored: the answer does not begin with the prompt")
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        raise BackendError("unsupported", "the echoed answer has no log-probabilities")
    tokens, values, offsets = (logprobs.get(n) for n in ("tokens", "token_logprobs", "text_offset"))
    if not (isinstance(tokens, Sequence) and isinstance(values, Sequence) and isinstance(offsets, Sequence)):
        raise BackendError("unsupported", "the echoed answer has an unknown format")
    if not len(tokens) == len(values) == len(offsets) or not tokens:
        raise inconsistent(f"{len(tokens)} tokens, {len(values)} values and {len(offsets)} offsets do not add up")
    if not all(isinstance(o, int) for o in offsets) or any(b < a for a, b in pairwise(offsets)):
        raise inconsistent("the echoed offsets are not ascending")
    if len(values) > 1 and not any(values[1:]):
        raise inconsistent("every token of the prompt has probability 1")
    return _aligned(text, [str(t) for t in tokens], values)


def _check_rows(values: Sequence[float | None]) -> None:
    """Raise ``inconsistent`` for a text whose unlikeliest tokens share one value: a placeholder, or a floor."""
    known = [value for value in values if value is not None]
    lowest = min(known, default=0.0)
    if lowest < _CERTAIN and (alike := known.count(lowest)) >= _TOO_MANY_ALIKE:
        raise inconsistent(f"{alike} tokens of a text share its lowest value, {lowest:.4g}: a placeholder or a floor")


def _checked(scores: Sequence[ContinuationScore]) -> tuple[ContinuationScore, ...]:
    """The scores. Raises ``inconsistent`` if the tokens that follow one start have more than probability 1 together."""
    after: dict[tuple[str, ...], dict[tuple[str, int | None], float]] = {}
    for score in scores:
        if score.exactness != "exact":
            continue
        texts = tuple(token.text for token in score.tokens)
        for at, token in enumerate(score.tokens):
            after.setdefault(texts[:at], {})[token.text, token.token_id] = token.logprob
    for siblings in after.values():
        if math.fsum(map(math.exp, siblings.values())) > 1 + MASS_SLACK:
            raise inconsistent("the probabilities of tokens that follow one text add up to more than 1")
    return tuple(scores)


def _aligned(text: str, tokens: Sequence[str], values: Sequence[Any]) -> tuple[EchoedToken, ...]:
    """The echoed tokens aligned with the text. A BOS token before it has no characters."""
    skip = 0 if text.startswith(tokens[0]) and tokens[0] else 1
    aligned: list[EchoedToken] = []
    position = 0
    for at in range(skip, len(tokens)):
        if position == len(text):
            break  # the one generated token
        if not text.startswith(tokens[at], position) or not tokens[at]:
            raise inconsistent(f"the echoed tokens do not match the prompt at character {position}")
        end = position + len(tokens[at])
        value = None if at == 0 and values[0] is None else checked_logprob(values[at])
        aligned.append(EchoedToken(tokens[at], position, end, value))
        position = end
    if position != len(text):
        raise inconsistent("the echoed tokens end before the prompt does")
    _check_rows([token.logprob for token in aligned])
    return tuple(aligned)


async def score_by_echo(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer | None
) -> tuple[ContinuationScore, ...]:
    """One request per continuation, side by side; the prompt's tokens are recognised by their characters."""
    if not prompt:
        prompt_alone = _digest(())
    elif tokenizer is not None:
        prompt_alone = _digest(p.data.decode("utf-8", "replace") for p in await tokenizer.pieces(prompt) if p.data)
    else:
        prompt_alone = await _echoed_alone(api, prompt)

    async def score(continuation: str) -> ContinuationScore:
        tokens = await echoed(api, prompt + continuation)
        own = [
            TokenLogprob(t.text, t.start - len(prompt), t.end - len(prompt), _scored(t.logprob))
            for t in tokens
            if t.end > len(prompt)
        ]
        if own[0].start < 0:
            return straddled(own, "echo")
        before = _digest(t.text for t in tokens[: len(tokens) - len(own)])
        return ContinuationScore.exact(own, boundary="clean" if before == prompt_alone else "merged", route="echo")

    return _checked(await together(map(score, continuations)))


async def _echoed_alone(api: ServerApi, prompt: str) -> bytes:
    """A digest of the prompt's own tokens, from an echo of it, or from memory if it was echoed before."""
    known = api.echoed_prompts
    if prompt not in known:
        echo = await echoed(api, prompt)
        while len(known) >= _MOST_PROMPTS:
            known.pop(next(iter(known)))
        known[prompt] = _digest(token.text for token in echo)
    return known[prompt]


def _digest(tokens: Iterable[str]) -> bytes:
    return hashlib.blake2b(json.dumps(list(tokens)).encode(), digest_size=16).digest()


def _scored(value: float | None) -> float:
    if value is None:
        raise BackendError("unsupported", "the first token of a text without BOS token has no probability")
    return value


def straddled(tokens: Sequence[TokenLogprob], route: str) -> ContinuationScore:
    """A bound: the first token also covers the prompt's end, and its probability given that end is unknown."""
    later = tuple(tokens[1:])
    high = math.fsum(t.logprob for t in later)
    return bounded(later, high, repeat_noise=0.0, boundary="straddled", route=route)


async def prompt_logprobs(api: ServerApi, ids: Sequence[int]) -> tuple[float | None, ...]:
    """log P of each token id given those before it, in nats; None for the first (vLLM)."""
    response = await api.completion(ids, max_tokens=1, temperature=0.0, prompt_logprobs=0)
    rows = single_choice(response).get("prompt_logprobs")
    if not isinstance(rows, Sequence):
        raise BackendError("unsupported", "the server gives no prompt_logprobs")
    if len(rows) != len(ids):
        raise inconsistent(f"{len(rows)} rows of prompt_logprobs for {len(ids)} tokens")
    values: list[float | None] = []
    for at, (token_id, row) in enumerate(zip(ids, rows, strict=True)):
        if row is None and at == 0:
            values.append(None)
            continue
        entry = row.get(str(token_id)) if isinstance(row, Mapping) else None
        if not isinstance(entry, Mapping):
            raise inconsistent(f"prompt_logprobs does not name the token at position {at}")
        values.append(checked_logprob(entry.get("logprob")))
    _check_rows(values)
    return tuple(values)


async def score_by_prompt_logprobs(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer
) -> tuple[ContinuationScore, ...]:
    """One request per continuation, by token ids, side by side."""

    async def score(joined: Joined) -> ContinuationScore:
        values = await prompt_logprobs(api, joined.ids)
        tokens = [
            TokenLogprob(text, start, end, _scored(value), piece.token_id)
            for (piece, text, start, end), value in zip(joined.spans(), values[joined.first :], strict=True)
        ]
        if joined.boundary == "straddled":
            return straddled(tokens, "prompt_logprobs")
        return ContinuationScore.exact(tokens, boundary=joined.boundary, route="prompt_logprobs")

    paths = [await tokenizer.joined(prompt, continuation) for continuation in continuations]
    return _checked(await together(map(score, paths)))


async def chosen_tokens(api: ServerApi, wanted: Mapping[Ids, Sequence[int]]) -> Chosen:
    """vLLM's ``logprob_token_ids``. Raises `BackendError`."""

    async def ask(prefix: Ids, ids: Sequence[int]) -> dict[int, float]:
        options = {"logprobs": 1, "logprob_token_ids": list(ids), "return_tokens_as_token_ids": True}
        choice = single_choice(await api.completion(prefix, max_tokens=1, temperature=0.0, **options))
        check_finished(choice.get("finish_reason"))
        logprobs = choice.get("logprobs")
        lists = logprobs.get("top_logprobs") if isinstance(logprobs, Mapping) else None
        first = lists[0] if isinstance(lists, Sequence) and lists else None
        if not isinstance(first, Mapping):
            raise BackendError("unsupported", "the server gives no log-probabilities of chosen tokens")
        listed = {str(name): checked_logprob(value) for name, value in first.items()}
        _check_chosen(list(listed.values()))
        if missing := [i for i in ids if f"token_id:{i}" not in listed]:
            raise BackendError("unsupported", f"the chosen token {missing[0]} is not listed")
        return {i: listed[f"token_id:{i}"] for i in ids}

    parts = [
        (prefix, ids[at : at + MOST_CHOSEN_IDS])
        for prefix, ids in wanted.items()
        for at in range(0, len(ids), MOST_CHOSEN_IDS)
    ]
    found: Chosen = {prefix: {} for prefix in wanted}
    for (prefix, _), values in zip(parts, await together(ask(*part) for part in parts), strict=True):
        found[prefix] |= values
    return found


def _check_chosen(known: Sequence[float]) -> None:
    if math.fsum(map(math.exp, known)) > 1 + MASS_SLACK:
        raise inconsistent("the probabilities of chosen tokens add up to more than 1")
    if known and (placeholders := count_placeholders(known)):
        raise inconsistent(f"{placeholders} chosen tokens share one placeholder value")


async def score_by_chosen_tokens(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer
) -> tuple[ContinuationScore, ...]:
    """One score per continuation: exact, or bounded where a token straddles the boundary."""
    paths = [await tokenizer.joined(prompt, continuation) for continuation in continuations]
    wanted: dict[Ids, list[int]] = {}
    for path in paths:
        for at in range(path.first, len(path.ids)):
            if at == 0:
                raise BackendError("unsupported", "the first token of a text without BOS token has no probability")
            ids = wanted.setdefault(path.ids[:at], [])
            if path.ids[at] not in ids:
                ids.append(path.ids[at])
    found = await chosen_tokens(api, wanted)
    return tuple(_of_path(path, found) for path in paths)


def _of_path(path: Joined, found: Chosen) -> ContinuationScore:
    tokens = [
        TokenLogprob(text, start, end, found[path.ids[:at]][piece.token_id], piece.token_id)
        for at, (piece, text, start, end) in enumerate(path.spans(), path.first)
    ]
    if path.boundary == "straddled":
        return straddled(tokens, "logprob_token_ids")
    return ContinuationScore.exact(tokens, boundary=path.boundary, route="logprob_token_ids")
