"""Scores a request by the route that the look found; without log-probabilities, answers are drawn and counted."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from backends.base import (
    ContinuationScore,
    GenerateRequest,
    GenerateResponse,
    Prompt,
    Sampling,
    ScoreRequest,
    ScoreResponse,
)
from backends.errors import BackendError
from backends.openai.api import ServerApi
from backends.openai.generation import CONTINUE_ASSISTANT, draws
from backends.openai.scoring.given_tokens import score_by_echo, score_by_prompt_logprobs
from backends.openai.scoring.lists import next_tokens, score_by_first_token, score_by_lists
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.reading.reasoning import UnfinishedThoughtError
from backends.reading.words import begins_with_words, comparable

#: ``(draws, tokens) → that many answers``, at temperature 1; None for one that did not finish.
Draw = Callable[[int, int], Awaitable[Sequence[GenerateResponse | None]]]


async def score(api: ServerApi, request: ScoreRequest, tokenizer: RemoteTokenizer | None = None) -> ScoreResponse:
    """Scores of all continuations of one request. Raises `BackendError`."""
    if request.first_given:
        problem = "this server has no proven route for a text with nothing before it"
        raise BackendError("unsupported", problem, hint="give the text a start")
    found, continuations = api.found, request.continuations
    prompt: Prompt = request.prompt
    if not isinstance(prompt, str) and found.chat_route == "rendered":
        prompt = await api.rendered_chat(prompt)
    route = found.route_of(prompt)
    if route is None:
        kind, other = ("text", "chat") if isinstance(prompt, str) else ("chat", "raw")
        hint = f'Set prompt_format="{other}"' if any(found.routes) else ""
        raise BackendError("unsupported", f"no proven way to score the continuation of a {kind}", hint=hint)
    if route == "sampled":

        async def draw(count: int, tokens: int) -> Sequence[GenerateResponse | None]:
            return await draws(api, GenerateRequest(prompt, Sampling(temperature=1.0, max_tokens=tokens)), count)

        return ScoreResponse(await score_by_sampling(draw, continuations, api.options.samples or 0))
    if isinstance(prompt, str):
        if route == "echo":
            return ScoreResponse(await score_by_echo(api, prompt, continuations))
        if tokenizer is not None:
            by_tokens = score_by_prompt_logprobs if route == "prompt_logprobs" else score_by_lists
            return ScoreResponse(await by_tokens(api, prompt, continuations, tokenizer))
        start, top = prompt, await next_tokens(api, prompt, found.largest_k)
    else:
        start = prompt[-1].content if prompt[-1].role == "assistant" else ""
        if start and route == "chat_first":
            problem, hint = "the server does not continue an assistant prefill", "Ask without an assistant turn"
            raise BackendError("unsupported", problem, hint=f"Only an answer's first token can be scored here. {hint}")
        flags = CONTINUE_ASSISTANT if start and found.prefill == "flags" else {}
        top = await next_tokens(api, prompt, found.largest_chat_k, **flags)
    noise = found.repeat_noise
    return ScoreResponse(tuple(score_by_first_token(top, start, one, route, noise) for one in continuations))


async def score_by_sampling(draw: Draw, continuations: Sequence[str], samples: int) -> tuple[ContinuationScore, ...]:
    """The share of ``samples`` drawn answers that begin with each continuation, as a whole word; its `share_interval`.

    A continuation that is never drawn has no value: ``logprob`` and ``low`` are None. If some answers did not finish,
    or were cut off within any continuation, scores are ``bounded``: these answers might have been anything.
    """
    drawn = await draw(samples, tokens_drawn(continuations))
    answers = [answer for answer in drawn if answer is not None]
    if not answers:
        raise UnfinishedThoughtError
    whole = [answer.text for answer in answers if not any(_is_open(answer, one) for one in continuations)]
    lost = samples - len(whole)
    return tuple(_counted(sum(begins_with_words(text, one) for text in whole), lost, samples) for one in continuations)


def _counted(count: int, lost: int, samples: int) -> ContinuationScore:
    if lost:
        low, high = (math.log(n / samples) if n else None for n in (count, count + lost))
        return ContinuationScore(None, low, high or 0.0, "bounded", "clean", (), "sampled", samples)
    value = math.log(count / samples) if count else None
    least, most = share_interval(count, samples)
    low = math.log(least) if count else None
    return ContinuationScore(value, low, math.log(most), "sampled", "clean", (), "sampled", samples)


def _is_open(answer: GenerateResponse, continuation: str) -> bool:
    """Whether an answer was cut off before it could show that it is not this continuation."""
    said, whole = comparable(answer.text), comparable(continuation)
    return answer.finish_reason == "length" and len(said) < len(whole) and whole.startswith(said)


def share_interval(count: int, samples: int) -> tuple[float, float]:
    """Jeffreys' 95 % interval of a share of which ``count`` of ``samples`` were drawn; from 0 if none, to 1 if all.

    At few draws of a rare answer it is shorter than Wilson's and holds the truth at least as often: L. Brown, T. Cai,
    A. DasGupta, "Interval estimation for a binomial proportion", Statistical Science 16 (2001), which recommends it.
    """
    from scipy.special import betaincinv

    drawn, others = count + 0.5, samples - count + 0.5
    least = float(betaincinv(drawn, others, 0.025)) if count else 0.0
    return least, float(betaincinv(drawn, others, 0.975)) if count < samples else 1.0


def tokens_drawn(continuations: Sequence[str]) -> int:
    """Tokens per drawn answer: enough to see whether it begins with one of these."""
    return min(32, max(len(c.encode("utf-8", "surrogatepass")) for c in continuations) + 1)
