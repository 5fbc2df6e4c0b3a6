"""Experiments with optional fields of requests, and with what responses report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.openai.probe.session import (
    OTHER,
    PROMPT,
    NotTestedError,
    Outcome,
    ProbeSession,
    accepted,
    experiment,
    max_abs_diff,
)
from backends.openai.protocol.api import single_choice
from backends.openai.scoring.tokenizer import SAMPLE, RemoteTokenizer, find_tokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs, read_top_logprobs

_NO_MODEL = "no-such-model-as-this"


async def check_key(session: ProbeSession) -> None:
    """If a request was refused for its key, test whether the key is valid at all. Raises the refusal if it is not."""
    if session.refused is None:
        return
    if session.capabilities.completions or session.capabilities.chat:
        answer = await session.ask(session.plain, PROMPT, max_tokens=1, temperature=0.0)
        if not isinstance(answer, BackendError) or answer.kind != "auth":
            return
    raise session.refused


@experiment("unknown model name")
async def model_name(session: ProbeSession) -> Outcome:
    """Whether an unknown model name is refused."""
    answer = await session.experiment("Hi", model=_NO_MODEL, max_tokens=1)
    if isinstance(answer, BackendError):
        return Outcome(True, f"refused ({answer.kind})")
    return Outcome(None, "accepted: the name proves nothing")


@experiment("tokenise endpoint")
async def tokenizer(session: ProbeSession) -> Outcome:
    """Whether the server offers its tokenizer."""
    found = await session.ask(find_tokenizer, session.api.client, session.api.model)
    pieces = await session.ask(found.pieces, SAMPLE) if isinstance(found, RemoteTokenizer) else ()
    if not isinstance(found, RemoteTokenizer) or isinstance(pieces, BackendError):
        return Outcome(None, "none: continuations of several tokens are only bounded")
    session.tokenizer = found
    bos = not pieces[0].data
    begins = "with a token of its own at the start (BOS)" if bos else "without BOS token"
    return Outcome(True, f"{found.dialect}, {begins}", family=found.dialect, bos=bos)


@experiment("token counts")
async def token_counts(session: ProbeSession) -> Outcome:
    """Whether the server's token count agrees with its tokenizer."""
    ids = accepted(await session.ask(session.needed_tokenizer().ids, PROMPT))
    answer = await session.ask(session.api.completion, PROMPT, max_tokens=1, temperature=0.0)
    usage = answer.get("usage") if isinstance(answer, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    if count is None:
        return Outcome(None, "none reported")
    return Outcome(count == len(ids), f"{count} reported, {len(ids)} tokens sent")


@experiment("seeds")
async def seed(session: ProbeSession) -> Outcome:
    """Whether a seed determines what is drawn."""

    async def draw(number: int) -> str:
        return _text(await session.plain(OTHER, max_tokens=12, temperature=1.0, seed=number))

    first, again, other = [await session.ask(draw, number) for number in (7, 7, 8)]
    works = isinstance(other, str) and isinstance(first, str) and first == again != other
    message = "the same seed draws the same text" if works else "have no certain effect"
    return Outcome(works or None, message, seed_works=works)


@experiment("logit_bias")
async def logit_bias(session: ProbeSession) -> Outcome:
    """Whether a bias of -100 bans the likeliest token. Only the probe uses it."""
    tokenizer = session.needed_tokenizer()
    text = accepted(await session.next_tokens(PROMPT, 2)).tokens[0].text
    banned = {str(p.token_id): -100 for p in accepted(await session.ask(tokenizer.pieces, text)) if p.data}

    async def draw() -> str:
        return _text(await session.api.completion(PROMPT, max_tokens=1, temperature=0.0, logit_bias=banned))

    drawn = await session.ask(draw)
    works = isinstance(drawn, str) and drawn != text
    return Outcome(works or None, "as documented" if works else "has no effect")


@experiment("n, several choices")
async def several_choices(session: ProbeSession) -> Outcome:
    """Whether ``n`` is obeyed, refused or ignored."""
    answer = await session.experiment(PROMPT, n=2, max_tokens=1, temperature=1.0, seed=1)
    if isinstance(answer, BackendError):
        return Outcome(None, f"refused ({answer.kind})")
    choices = answer.get("choices")
    count = len(choices) if isinstance(choices, Sequence) else 0
    return Outcome(None, "obeyed" if count == 2 else f"ignored: {count} choice where 2 were requested")


@experiment("several prompts in one request")
async def several_prompts(session: ProbeSession) -> Outcome:
    """Whether a list of prompts in one request gives each prompt's own answer, in order. It is not used."""
    if session.capabilities.together is None:
        raise NotTestedError("not tried: several draws in one request are refused")
    k = min(session.capabilities.largest_k, 20)
    body = {"prompt": [PROMPT, OTHER], "max_tokens": 1, "temperature": session.api.temperature, "logprobs": k}
    answer = await session.ask(session.api.experiment, "completions", body)
    if isinstance(answer, BackendError):
        return Outcome(None, f"refused ({answer.kind}); not used")
    choices = answer.get("choices")
    if not isinstance(choices, Sequence) or len(choices) != 2 or not all(isinstance(c, Mapping) for c in choices):
        return Outcome(None, "ignored: another number of answers; not used")
    diff = 0.0
    for prompt, choice in zip((PROMPT, OTHER), sorted(choices, key=lambda c: str(c.get("index"))), strict=True):
        alone = await session.next_tokens(prompt, k)
        together: TopLogprobs | BackendError
        try:
            together = read_top_logprobs({"choices": [{**choice, "index": 0}]}, k)
        except BackendError as error:
            together = error
        diff = max(diff, max_abs_diff(alone, together))
    return Outcome(diff <= session.tolerance(), f"{diff:.2g} nats from asking one by one; not used")


def _text(response: Mapping[str, Any]) -> str:
    choice = single_choice(response)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if not isinstance(text, str):
        raise inconsistent("an answer without text")
    return text
