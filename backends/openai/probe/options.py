"""Experiments with what may be sent beside a prompt, and with what is told beside an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backends.errors import BackendError
from backends.openai.probe.session import OTHER, PROMPT, ProbeSession, distance
from backends.openai.scoring.prompt_logprobs import prompt_logprobs
from backends.openai.scoring.tokenizer import RemoteTokenizer, find_tokenizer
from backends.openai.scoring.top_logprobs import TopLogprobs, checked_logprob, inconsistent, read_listing, single_choice

_NO_MODEL = "no-such-model-as-this"


async def key(book: ProbeSession) -> None:
    """Whether the key is good, where something was refused as if it were not. Raises that refusal if it is not."""
    if book.refused is None:
        return
    if book.found.completions or book.found.chat:
        answer = await book.ask(book.plain, PROMPT, max_tokens=1, temperature=0.0)
        if not isinstance(answer, BackendError) or answer.kind != "auth":
            return
    raise book.refused


async def model_name(book: ProbeSession) -> None:
    """Whether a name that no model has is refused."""
    answer = await book.ask(book.api.experiment, *_question(book, "Hi", model=_NO_MODEL, max_tokens=1))
    if isinstance(answer, BackendError):
        book.note("unknown model name", True, f"refused ({answer.kind})")
    else:
        book.note("unknown model name", None, "accepted: the name proves nothing")


async def tokenizer(book: ProbeSession) -> None:
    """Whether the server lends its tokenizer, and counts tokens as that does."""
    found = await book.ask(find_tokenizer, book.api.client, book.api.model)
    pieces = await book.ask(found.pieces, PROMPT) if isinstance(found, RemoteTokenizer) else ()
    if not isinstance(found, RemoteTokenizer) or isinstance(pieces, BackendError):
        book.note("tokenise endpoint", None, "none: continuations of several tokens are only bounded")
        return
    book.tokenizer = found
    bos = not pieces[0].data
    book.learn(family=found.dialect, bos=bos)
    begins = "with a token of its own at the start (BOS)" if bos else "without BOS token"
    book.note("tokenise endpoint", True, f"{found.dialect}, {begins}")
    answer = await book.ask(book.api.completion, PROMPT, max_tokens=1, temperature=0.0)
    usage = answer.get("usage") if isinstance(answer, dict) else None
    counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    right = None if counted is None else counted == len(pieces)
    book.note("token counts", right, f"{'none' if counted is None else counted} told, {len(pieces)} tokens sent")


async def seed(book: ProbeSession) -> None:
    """Whether a seed settles what is drawn."""

    async def draw(number: int) -> str:
        return _text(await book.plain(OTHER, max_tokens=12, temperature=1.0, seed=number))

    drawn = [await book.ask(draw, number) for number in (7, 7, 8)]
    texts = [d for d in drawn if isinstance(d, str)]
    works = len(texts) == 3 and texts[0] == texts[1] != texts[2]
    book.learn(seed_works=works)
    book.note("seeds", works or None, "the same seed draws the same text" if works else "have no sure effect")


async def logit_bias(book: ProbeSession) -> None:
    """Whether a bias of -100 bans the likeliest token."""
    if book.tokenizer is None:
        book.note("logit_bias", None, "not tried: no tokenise endpoint")
        return
    likeliest = await book.listed(PROMPT, 2)
    if isinstance(likeliest, BackendError):
        return
    text = likeliest.tokens[0].text
    pieces = await book.ask(book.tokenizer.pieces, text)
    if isinstance(pieces, BackendError):
        return
    banned = {str(p.token_id): -100 for p in pieces if p.data}

    async def without() -> str:
        return _text(await book.api.completion(PROMPT, max_tokens=1, temperature=0.0, logit_bias=banned))

    drawn = await book.ask(without)
    works = isinstance(drawn, str) and drawn != text
    book.note("logit_bias", works or None, "as documented" if works else "has no effect; it is not used")


async def several_choices(book: ProbeSession) -> None:
    """Whether ``n`` is obeyed, refused or ignored. It is not used."""
    answer = await book.ask(book.api.experiment, *_question(book, PROMPT, n=2, max_tokens=1, temperature=1.0, seed=1))
    if isinstance(answer, BackendError):
        detail = f"refused ({answer.kind})"
    else:
        choices = answer.get("choices")
        number = len(choices) if isinstance(choices, Sequence) else 0
        detail = "obeyed" if number == 2 else f"ignored: {number} choice where 2 were asked for"
    book.note("n, several choices", None, f"{detail}; not used")


async def several_prompts(book: ProbeSession) -> None:
    """Whether a list of prompts in one request gives each prompt's own answer, in order. It is not used."""
    k = min(book.found.largest_k, 20)
    body = {"prompt": [PROMPT, OTHER], "max_tokens": 1, "temperature": book.api.temperature, "logprobs": k}
    answer = await book.ask(book.api.experiment, "completions", {**body, **book.api.always})
    name = "several prompts in one request"
    if isinstance(answer, BackendError):
        book.note(name, None, f"refused ({answer.kind}); not used")
        return
    choices = answer.get("choices")
    if not isinstance(choices, Sequence) or len(choices) != 2 or not all(isinstance(c, Mapping) for c in choices):
        book.note(name, None, "ignored: another number of answers; not used")
        return
    apart = 0.0
    for prompt, choice in zip((PROMPT, OTHER), sorted(choices, key=lambda c: str(c.get("index"))), strict=True):
        alone = await book.listed(prompt, k)
        try:
            together = read_listing({"choices": [{**choice, "index": 0}]}, k)
        except BackendError:
            together = None
        gap = distance(alone, together) if isinstance(alone, TopLogprobs) and together else float("inf")
        apart = max(apart, gap)
    right = apart <= book.tolerance()
    book.note(name, right, f"{apart:.2g} nats from asking one by one; not used")


async def chosen_tokens(book: ProbeSession) -> None:
    """Whether ``logprob_token_ids`` names a token outside of the list, with its right value (vLLM). It is not used."""
    if book.tokenizer is None or not book.found.takes_ids:
        book.note("logprob_token_ids", None, "not tried: needs prompts as token ids")
        return
    path = await book.ask(book.tokenizer.joined, PROMPT, " letter")
    if isinstance(path, BackendError):
        book.note("logprob_token_ids", None, "not tried: the tokenise endpoint failed")
        return
    before, wanted = path.ids[: path.first], path.ids[path.first]

    async def value() -> float:
        answer = await book.api.completion(
            before,
            max_tokens=1,
            temperature=0.0,
            logprobs=1,
            logprob_token_ids=[wanted],
            return_tokens_as_token_ids=True,
        )
        logprobs = single_choice(answer).get("logprobs")
        lists = logprobs.get("top_logprobs") if isinstance(logprobs, Mapping) else None
        first = lists[0] if isinstance(lists, Sequence) and lists else None
        entry = first.get(f"token_id:{wanted}") if isinstance(first, Mapping) else None
        if entry is None:
            raise BackendError("unsupported", "the token is not named")
        return checked_logprob(entry)

    named = await book.ask(value)
    if isinstance(named, BackendError):
        book.note("logprob_token_ids", None, "not offered")
        return
    whole = await book.ask(prompt_logprobs, book.api, path.ids[: path.first + 1])
    true = whole[-1] if not isinstance(whole, BackendError) else None
    if true is None:
        book.note("logprob_token_ids", None, "offered, and nothing to compare it with; not used")
        return
    apart = abs(named - true)
    book.note("logprob_token_ids", apart <= book.tolerance(), f"{apart:.2g} nats from prompt_logprobs; not used")


def _question(book: ProbeSession, text: str, **options: Any) -> tuple[str, dict[str, Any]]:
    """Path and body that put a text to whichever endpoint answers."""
    if book.found.completions:
        return "completions", {"prompt": text, **options}
    return "chat/completions", {"messages": [{"role": "user", "content": text}], **options}


def _text(answer: Mapping[str, Any]) -> str:
    choice = single_choice(answer)
    message = choice.get("message")
    text = message.get("content") if isinstance(message, Mapping) else choice.get("text")
    if not isinstance(text, str):
        raise inconsistent("an answer without text")
    return text
