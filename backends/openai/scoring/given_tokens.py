"""Scores from the log-probabilities of all tokens of a text: one request per continuation.

``prompt_logprobs`` (vLLM) names each token by its id; ``echo`` (the legacy completions endpoint) gives strings. Both
are parsed strictly: inconsistent responses are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.client import together
from backends.http.errors import inconsistent
from backends.openai.api import ServerApi, single_choice
from backends.openai.scoring.tokenizer import Joined, RemoteTokenizer
from backends.openai.scoring.top_logprobs import checked_logprob, count_placeholders, scored


class EchoedToken(NamedTuple):
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
    echo, logprobs = choice.get("text"), choice.get("logprobs")
    if not isinstance(echo, str) or not echo.startswith(text):
        raise inconsistent("echo is ignored: the answer does not begin with the prompt")
    tokens, values = (logprobs.get(n) if isinstance(logprobs, Mapping) else None for n in ("tokens", "token_logprobs"))
    if not isinstance(tokens, Sequence) or not isinstance(values, Sequence) or not tokens:
        raise BackendError("unsupported", "the echoed answer has no log-probabilities")
    if len(tokens) != len(values):
        raise inconsistent(f"{len(tokens)} tokens and {len(values)} values do not add up")
    return _aligned(text, [str(t) for t in tokens], values)


def _aligned(text: str, tokens: Sequence[str], values: Sequence[Any]) -> tuple[EchoedToken, ...]:
    """The echoed tokens aligned with the text. A BOS token before it has no characters."""
    skip = 0 if text.startswith(tokens[0]) and tokens[0] else 1
    aligned: list[EchoedToken] = []
    position = 0
    for at, token in enumerate(tokens[skip:], skip):
        if position == len(text):
            break  # the one generated token
        if not text.startswith(token, position) or not token:
            raise inconsistent(f"the echoed tokens do not match the prompt at character {position}")
        value = None if at == 0 and values[0] is None else checked_logprob(values[at])
        aligned.append(EchoedToken(token, position, position + len(token), value))
        position += len(token)
    if position != len(text):
        raise inconsistent("the echoed tokens end before the prompt does")
    _check_rows(token.logprob for token in aligned)
    return tuple(aligned)


def _check_rows(values: Iterable[float | None]) -> None:
    known = [value for value in values if value is not None]
    if known and (placeholders := count_placeholders(known)):
        raise inconsistent(f"{placeholders} tokens of a text share one placeholder value")


async def score_by_echo(api: ServerApi, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
    """One request per continuation, side by side; the prompt's tokens are recognised by their characters."""
    known, before = api.echoed_prompts, len(prompt)
    if prompt not in known:
        known[prompt] = hash(tuple(token.text for token in await echoed(api, prompt))) if prompt else hash(())

    async def score(continuation: str) -> ContinuationScore:
        tokens = await echoed(api, prompt + continuation)
        inside = [token for token in tokens if token.start >= before]
        own = [TokenLogprob(t.text, t.start - before, t.end - before, _known(t.logprob)) for t in inside]
        start = tokens[: len(tokens) - len(own)]
        if start and start[-1].end > before:
            return scored(own, "straddled", "echo")
        is_clean = hash(tuple(token.text for token in start)) == known[prompt]
        return scored(own, "clean" if is_clean else "merged", "echo")

    return tuple(await together(map(score, continuations)))


def _known(value: float | None) -> float:
    if value is None:
        raise BackendError("unsupported", "the first token of a text without BOS token has no probability")
    return value


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
        entry = row.get(str(token_id)) if isinstance(row, Mapping) else None
        if not isinstance(entry, Mapping) and (row is not None or at > 0):
            raise inconsistent(f"prompt_logprobs does not name the token at position {at}")
        values.append(None if entry is None else checked_logprob(entry.get("logprob")))
    _check_rows(values)
    return tuple(values)


async def score_by_prompt_logprobs(
    api: ServerApi, prompt: str, continuations: Sequence[str], tokenizer: RemoteTokenizer
) -> tuple[ContinuationScore, ...]:
    """One request per continuation, by token ids, side by side."""

    async def score(joined: Joined) -> ContinuationScore:
        values = await prompt_logprobs(api, [piece.token_id for piece in joined.pieces])
        tokens = [
            TokenLogprob(text, start, end, _known(value), piece.token_id)
            for (piece, text, start, end), value in zip(joined.spans(), values[joined.first_scored :], strict=True)
        ]
        return scored(tokens, joined.boundary, "prompt_logprobs")

    paths = [await tokenizer.joined(prompt, continuation) for continuation in continuations]
    return tuple(await together(map(score, paths)))
