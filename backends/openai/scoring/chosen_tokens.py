"""Scores from the log-probabilities of chosen tokens, however unlikely: each prefix is read once.

vLLM takes such a choice (``logprob_token_ids`` of a completion), a request for each prefix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.http.retries import together
from backends.openai.protocol.api import ServerApi, check_finished, single_choice
from backends.openai.quirks import MOST_CHOSEN_IDS
from backends.openai.scoring.prompt_logprobs import straddled
from backends.openai.scoring.tokenizer import Joined, RemoteTokenizer
from backends.openai.scoring.top_logprobs import MASS_SLACK, checked_logprob, count_placeholders

Ids = tuple[int, ...]
Chosen = dict[Ids, dict[int, float]]
"""Per prefix the log-probabilities (nats) of the tokens that were asked for after it."""


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
        _check_values(list(listed.values()))
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


def _check_values(known: Sequence[float]) -> None:
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
    return tuple(_score(path, found) for path in paths)


def _score(path: Joined, found: Chosen) -> ContinuationScore:
    tokens = [
        TokenLogprob(text, start, end, found[path.ids[:at]][piece.token_id], piece.token_id)
        for at, (piece, text, start, end) in enumerate(path.spans(), path.first)
    ]
    if path.boundary == "straddled":
        return straddled(tokens, "logprob_token_ids")
    return ContinuationScore.exact(tokens, boundary=path.boundary, route="logprob_token_ids")
