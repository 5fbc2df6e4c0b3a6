"""How many calls and tokens a request takes on a server, for estimates: nothing is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from backends.base import Prompt, Request, RequestCost, ScoreRequest
from backends.openai.capabilities import ServerCapabilities
from backends.openai.generation import choices_of_a_request
from backends.openai.options import RequestExtras
from backends.openai.scoring import tokens_drawn
from backends.openai.scoring.teacher_forcing import FIRST_K

#: About how tokenizers cut a text: words with the space before them, numbers, marks; long words in parts.
_PIECE = re.compile(r"\s?[^\W\d_]{1,12}|\s?\d{1,3}|\s?[^\w\s]+|\s+|_+")
#: What is assumed before anything was asked.
_CHARACTERS_PER_TOKEN, _TEMPLATE_TOKENS, _CHARACTERS_PER_PIECE = 2.0, 64, 2
#: Entries of a list that holds the likeliest tokens alone.
_SHORT_LIST = 100
ASSUMED = (
    f"at most, as nothing was asked: {_CHARACTERS_PER_TOKEN:g} characters a token, {_TEMPLATE_TOKENS} tokens of a "
    "chat's template, and a model that does not reason unless the options say so"
)


def cost_of(
    request: Request, found: ServerCapabilities, samples: int | None, extras: RequestExtras, has_tokenizer: bool
) -> RequestCost:
    """The calls of a request by the route that the look found; continuations are cut as most tokenizers would."""
    extra = extras.extra_tokens if found.reasons else 0
    least = found.min_tokens
    if not isinstance(request, ScoreRequest):
        own = RequestCost.in_one_call(request)
        return RequestCost(1, 0, max(own.generated_tokens + extra, least))
    text_route, chat_route = found.routes
    route = text_route if isinstance(request.prompt, str) else chat_route
    route = text_route if route == "rendered" else route
    continuations = request.continuations
    whole = sum(map(len, continuations))
    if route == "sampled":
        drawn = _of_draws(continuations, samples or 1, choices_of_a_request(found), max(extra, least - 1))
        expected = round((samples or 1) * (found.answer_tokens or drawn.generated_tokens))
        return drawn._replace(generated_tokens=min(drawn.generated_tokens, expected))
    if route in ("echo", "prompt_logprobs"):
        calls = len(continuations) + (route == "echo" and not has_tokenizer)
        return RequestCost(calls, whole, calls * least)
    is_short = not has_tokenizer and found.largest_k <= _SHORT_LIST and found.largest_chat_k <= _SHORT_LIST
    if route == "chat_first" or is_short:  # of a split continuation few first tokens are listed, and followed
        return RequestCost(1, 0, least)
    starts = _starts(continuations)
    if route == "score_endpoint":
        return RequestCost(1, sum(map(len, starts)), 0)
    # Of a whole vocabulary 2,000 are asked for first, and all where these lack a token: measured 2 times in 5.
    calls = len(starts) + (-(-len(starts) // 3) if has_tokenizer and found.largest_k > FIRST_K else 0)
    return RequestCost(calls, sum(map(len, starts)), calls * least)


def highest_cost_of(request: Request, samples: int | None, extras: RequestExtras) -> RequestCost:
    """The most that a request may take by any route, before anything was asked of the server."""
    extra = extras.extra_tokens if extras.reasoning_tokens or extras.reasoning_effort or extras.thinking_budget else 0
    if not isinstance(request, ScoreRequest):
        return RequestCost(1, 0, RequestCost.in_one_call(request).generated_tokens + extra)
    lengths = [len(continuation) for continuation in request.continuations]
    calls = 1 + sum(max(1, -(-length // _CHARACTERS_PER_PIECE)) for length in lengths)
    listed = RequestCost(calls, sum(length * length for length in lengths), calls)
    drawn = _of_draws(request.continuations, samples or 1, 1, extra)
    return RequestCost(*map(max, zip(listed, drawn, strict=True)))


def tokens_of(prompts: Sequence[Prompt], found: ServerCapabilities | None) -> list[int] | None:
    """Tokens of each prompt at the server's own rate, None if it counts none; without a look the most assumed."""
    rate, template = (1 / _CHARACTERS_PER_TOKEN, float(_TEMPLATE_TOKENS))
    if found is not None:
        rate, template = found.tokens_per_character, found.template_tokens
    if not rate:
        return None
    return [round(rate * _length(prompt) + (0.0 if isinstance(prompt, str) else template)) for prompt in prompts]


def _of_draws(continuations: Sequence[str], samples: int, choices: int, extra: int) -> RequestCost:
    return RequestCost(-(-samples // choices), 0, samples * (tokens_drawn(continuations) + extra))


def _starts(continuations: Sequence[str]) -> set[str]:
    """The texts after which a next token is asked for: the starts of continuations, each once."""
    starts = {""}
    for continuation in continuations:
        ends = [piece.end() for piece in _PIECE.finditer(continuation)]
        starts |= {continuation[:end] for end in ends[:-1]}
    return starts


def _length(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message.content) for message in prompt)
