"""How many calls and tokens a request takes on a server, for estimates: nothing is sent."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from backends.base import Prompt, Request, RequestCost, ScoreRequest
from backends.http.usage import generated_tokens
from backends.openai.capabilities import PIECE, ServerCapabilities
from backends.openai.options import OpenAIOptions
from backends.openai.scoring import tokens_drawn
from backends.openai.scoring.lists import FIRST_K

#: What is assumed before anything was asked.
_CHARACTERS_PER_TOKEN, _TEMPLATE_TOKENS, _CHARACTERS_PER_PIECE = 2.0, 64, 2
#: A request for as many tokens asks for an answer.
_FEWEST_TOKENS = 4
ASSUMED = (
    f"at most, as nothing was asked: {_CHARACTERS_PER_TOKEN:g} characters a token, {_TEMPLATE_TOKENS} tokens of a "
    "chat's template, and a model that does not reason unless the options say so"
)


def cost_of(request: Request, found: ServerCapabilities, options: OpenAIOptions, has_tokenizer: bool) -> RequestCost:
    """The calls of a request by the route that the look found; continuations are cut as most tokenizers would."""
    extra = options.extra_tokens if found.reasons else 0
    least = found.min_tokens
    if not isinstance(request, ScoreRequest):
        return RequestCost(1, 0, max(RequestCost.in_one_call(request).generated_tokens + extra, least))
    route, continuations = found.route_of(request.prompt), request.continuations
    whole = sum(map(len, continuations))
    if route == "sampled":
        drawn = _of_draws(continuations, options.samples or 1, found.choices, max(extra, least - 1))
        expected = round((options.samples or 1) * (found.answer_tokens or drawn.generated_tokens))
        return drawn._replace(generated_tokens=min(drawn.generated_tokens, expected))
    if route in ("echo", "prompt_logprobs"):
        calls = len(continuations) + (route == "echo")
        return RequestCost(calls, whole, calls * least)
    if not has_tokenizer or route in ("chat_first", "chat_prefill"):  # the list of the first token
        return RequestCost(1, 0, least)
    starts = _starts(continuations)
    # Of a whole vocabulary 2,000 are asked for first, and all where these lack a token: measured 2 times in 5.
    calls = len(starts) + (-(-len(starts) // 3) if has_tokenizer and found.largest_k > FIRST_K else 0)
    return RequestCost(calls, sum(map(len, starts)), calls * least)


def highest_cost_of(request: Request, options: OpenAIOptions) -> RequestCost:
    """The most that a request may take by any route, before anything was asked of the server."""
    reasons = options.reasoning_tokens or options.reasoning_effort or options.thinking_budget
    extra = options.extra_tokens if reasons else 0
    if not isinstance(request, ScoreRequest):
        return RequestCost(1, 0, RequestCost.in_one_call(request).generated_tokens + extra)
    lengths = [len(continuation) for continuation in request.continuations]
    calls = 1 + sum(max(1, -(-length // _CHARACTERS_PER_PIECE)) for length in lengths)
    listed = RequestCost(calls, sum(length * length for length in lengths), calls)
    drawn = _of_draws(request.continuations, options.samples or 1, 1, extra)
    return RequestCost(*map(max, zip(listed, drawn, strict=True)))


def tokens_of(prompts: Sequence[Prompt], found: ServerCapabilities | None) -> list[int] | None:
    """Tokens of each prompt at the server's own rate, None if it counts none; without a look the most assumed."""
    if found is not None and not found.tokens_per_piece:
        return None

    def count(prompt: Prompt) -> int:
        text = prompt if isinstance(prompt, str) else "".join(message.content for message in prompt)
        if found is None:
            return round(len(text) / _CHARACTERS_PER_TOKEN) + _TEMPLATE_TOKENS * (not isinstance(prompt, str))
        template = 0.0 if isinstance(prompt, str) else found.template_tokens
        return round(found.tokens_per_piece * len(PIECE.findall(text)) + template)

    return list(map(count, prompts))


def token_rates(counted: Sequence[tuple[Mapping[str, Any], Any]]) -> dict[str, float]:
    """How a server counted prompts and answers (`ServerApi.counted`), as fields of `ServerCapabilities`; empty if not.

    Medians, as some prompts of a look are odd on purpose (Theil and Sen's slope for chats, whose template counts).
    """
    texts, chats, answers = list[tuple[int, int]](), list[tuple[int, int]](), list[float]()
    for body, usage in counted:
        if "messages" in body:
            pieces = sum(len(PIECE.findall(turn["content"])) for turn in body["messages"])
            chats.append((pieces, usage["prompt_tokens"]))
        elif isinstance(body["prompt"], str) and body["prompt"]:
            texts.append((len(PIECE.findall(body["prompt"])), usage["prompt_tokens"]))
        if body.get("max_tokens", body.get("max_completion_tokens", 0)) >= _FEWEST_TOKENS:
            answers.append((generated_tokens(usage) or 0) / body.get("n", 1))
    rates = [tokens / pieces for pieces, tokens in texts]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(chats, 2) if a[0] != b[0]]
    if not rates and not slopes:
        return {}
    rate = max(statistics.median(rates or slopes), 0.0)
    template = statistics.median(tokens - rate * pieces for pieces, tokens in chats) if chats else 0.0
    mean = statistics.fmean(answers) if answers else 0.0
    return {"tokens_per_piece": rate, "template_tokens": max(template, 0.0), "answer_tokens": mean}


def _of_draws(continuations: Sequence[str], samples: int, choices: int, extra: int) -> RequestCost:
    return RequestCost(-(-samples // choices), 0, samples * (tokens_drawn(continuations) + extra))


def _starts(continuations: Sequence[str]) -> set[str]:
    """The texts after which a next token is asked for: the starts of continuations, each once."""
    starts = {""}
    for continuation in continuations:
        ends = [piece.end() for piece in PIECE.finditer(continuation)]
        starts |= {continuation[:end] for end in ends[:-1]}
    return starts
