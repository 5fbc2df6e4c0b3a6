"""Scores from the log-probabilities of chosen tokens, however unlikely: each prefix is read once.

Two servers take such a choice: vLLM (``logprob_token_ids`` of a completion, a request for each prefix, served from its
cache of prefixes) and SGLang (``/v1/score``, one request for all prefixes).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.http.together import together
from backends.openai.protocol.api import ServerApi, check_finished, single_choice
from backends.openai.quirks import MOST_CHOSEN_IDS
from backends.openai.scoring.censoring import bounded
from backends.openai.scoring.prompt_logprobs import straddled
from backends.openai.scoring.tokenizer import Joined, RemoteTokenizer
from backends.openai.scoring.top_logprobs import MASS_SLACK, checked_logprob, count_placeholders

Ids = tuple[int, ...]
Chosen = dict[Ids, dict[int, float]]
"""Per prefix the log-probabilities (nats) of the tokens that were asked for after it."""

#: A probability that is 0 in float32 is at most this, in nats.
LEAST = math.log(sys.float_info.min)


class AskChosen(Protocol):
    """Asks for the log-probabilities of these tokens after these prefixes."""

    async def __call__(self, api: ServerApi, wanted: Mapping[Ids, Sequence[int]]) -> Chosen: ...


async def chosen_by_completions(api: ServerApi, wanted: Mapping[Ids, Sequence[int]]) -> Chosen:
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
        _check_values(listed.values())
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


async def chosen_by_score(api: ServerApi, wanted: Mapping[Ids, Sequence[int]]) -> Chosen:
    """SGLang's ``/v1/score``, which gives probabilities: what underflows is `LEAST`. Raises `BackendError`."""
    prefixes = list(wanted)
    shared = 0
    while all(len(p) > shared + 1 and p[shared] == prefixes[0][shared] for p in prefixes):
        shared += 1  # no item is left empty
    if not shared:
        raise BackendError("unsupported", "prompts without a common first token")
    labels = list(dict.fromkeys(i for ids in wanted.values() for i in ids))
    answer = await api.chosen_scores(prefixes[0][:shared], [p[shared:] for p in prefixes], labels)
    rows = answer.get("scores")
    if not isinstance(rows, Sequence) or len(rows) != len(prefixes):
        raise BackendError("unsupported", "the server's score endpoint does not give one row for each item")
    found: Chosen = {}
    for prefix, row in zip(prefixes, rows, strict=True):
        if not isinstance(row, Sequence) or len(row) != len(labels):
            raise inconsistent("the score endpoint does not give one probability for each label")
        values = dict(zip(labels, map(_log_of_probability, row), strict=True))
        _check_values(values.values())
        found[prefix] = {i: values[i] for i in wanted[prefix]}
    return found


def _log_of_probability(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1 + MASS_SLACK:
        raise inconsistent(f"a probability is {value!r:.40}")
    return LEAST if value < sys.float_info.min else checked_logprob(min(math.log(value), 0.0))


def _check_values(values: Any) -> None:
    known = [value for value in values if value > LEAST]
    if math.fsum(map(math.exp, known)) > 1 + MASS_SLACK:
        raise inconsistent("the probabilities of chosen tokens add up to more than 1")
    if known and (placeholders := count_placeholders(known)):
        raise inconsistent(f"{placeholders} chosen tokens share one placeholder value")


async def score_by_chosen_tokens(
    api: ServerApi, ask: AskChosen, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer, route: str
) -> tuple[ContinuationScore, ...]:
    """One score per continuation: exact, or bounded where a token straddles the boundary or underflows."""
    paths = [await tokenizer.joined(prompt, continuation) for continuation in continuations]
    wanted: dict[Ids, list[int]] = {}
    for path in paths:
        for at in range(path.first, len(path.ids)):
            if at == 0:
                raise BackendError("unsupported", "the first token of a text without BOS token has no probability")
            ids = wanted.setdefault(path.ids[:at], [])
            if path.ids[at] not in ids:
                ids.append(path.ids[at])
    found = await ask(api, wanted)
    return tuple(_score(path, found, route) for path in paths)


def _score(path: Joined, found: Chosen, route: str) -> ContinuationScore:
    tokens = [
        TokenLogprob(text, start, end, value := found[path.ids[:at]][piece.token_id], piece.token_id, value > LEAST)
        for at, (piece, text, start, end) in enumerate(path.spans(), path.first)
    ]
    if path.boundary == "straddled":
        return straddled(tokens, route)
    if all(token.exact for token in tokens):
        return ContinuationScore.exact(tokens, boundary=path.boundary, route=route)
    high = math.fsum(token.logprob for token in tokens)
    return bounded(tuple(tokens), high, repeat_noise=0.0, boundary=path.boundary, route=route)
