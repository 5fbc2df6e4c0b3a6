"""By which route texts and chats can be scored: the tokenizer, rows of whole texts, an assistant prefill, draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.openai.capabilities import Prefill
from backends.openai.costs import token_rates
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.look.forms import BASE, CHAT, TEXT
from backends.openai.look.session import MAX_NOISE, Looking, apart
from backends.openai.scoring.given_tokens import ONE_AT_A_TIME, echoed, prompt_logprobs
from backends.openai.scoring.next_tokens import ask
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.reading.reasoning import text_of

#: More entries than a vocabulary has.
WHOLE = 10**6
#: Nats by which a row may differ from the list after the same text: half precision.
_OFF = 0.05
#: Of a server's tokens a piece (`capabilities.PIECE`) there are more, unless the prompt was cut.
_LEAST_COUNTED = 0.7
#: Answers asked for at once: Google's servers give 8 at most.
_CHOICES = (20, 8, 1)
#: What is drawn. Three such answers are alike by chance once in ten million looks: SmolLM2 gives the likeliest eight
#: tokens a probability of e^-8, and a surer model's opening words leave sixteen.
_RANDOM = "Ten random letters and digits:"
_TOKENS = 24
_ROWS = Message("user", "Name the days of the week, and count to ten.")
#: (assistant prefill, its next word): only a server that continues it gives that word; no new answer starts with it.
_STARTS = (("Well, in order: Monday, Tuesday,", "Wednesday"), ("Well, in order: one, two, three,", "four"))
_WAYS: tuple[tuple[Prefill, Mapping[str, Any]], ...] = (("continued", {}), ("flags", CONTINUE_ASSISTANT))


async def find_tokenizer(look: Looking) -> RemoteTokenizer | None:
    """The server's tokenizer, by the dialect that answers."""
    client, model = look.api.client, look.api.options.model
    for dialect in ("llama.cpp", "vllm", "llama-cpp-python"):
        tokenizer = RemoteTokenizer(client, model, dialect)
        ids: Any = await look.ask(tokenizer.pieces if dialect == "llama.cpp" else tokenizer.ids, BASE)
        if isinstance(ids, BackendError):
            continue
        look.update(family=dialect)
        return tokenizer
    return None


async def route_of_texts(look: Looking) -> None:
    """Set the best route for texts, if their lists can be used."""
    if "text" not in look.lists:
        return
    if 0 < token_rates(look.api.counted).get("tokens_per_piece", 0.0) < _LEAST_COUNTED:
        look.distrust(
            "text", f"a text of {len(BASE.split())} words is counted as fewer tokens: it was cut. {TEXT.advice}"
        )
    if look.found.largest_k == TEXT.most and look.found.family in ("llama.cpp", "llama-cpp-python"):
        look.update(largest_k=WHOLE)
    by_ids = look.tokenizer is not None and await _takes_ids(look, look.tokenizer)
    route = await _rows(look, look.tokenizer if by_ids else None)
    if "text" not in look.distrusted:
        look.update(text_route=route or ("top_k_ids" if by_ids else "top_k"))


async def _takes_ids(look: Looking, tokenizer: RemoteTokenizer) -> bool:
    """Whether a prompt may be given as token ids, BOS included."""
    if look.found.family == "llama-cpp-python" or not look.has_room(2):  # it refuses them, with 500
        return False
    ids = await look.ask(tokenizer.ids, BASE)
    by_ids = ids if isinstance(ids, BackendError) else await look.listed("text", ids)
    if isinstance(by_ids, BackendError):
        return False
    off = apart(look.lists["text"], by_ids)
    if off > max(_OFF, 2 * look.noise):
        look.distrust("text", f"a prompt as token ids is {off:.2g} nats from the same prompt as text")
        return False
    return True


async def _rows(look: Looking, tokenizer: RemoteTokenizer | None) -> Any:
    """The first route over whole texts that agrees with the list after the same text; or None."""
    top = look.lists["text"]
    word = next((t for t in top.tokens if t.text.strip().isalpha() and t.text[:1] == " " and top.identifies(t)), None)
    if word is None or look.found.family in ("llama.cpp", "llama-cpp-python"):
        return None
    for route in reversed(ONE_AT_A_TIME):
        value = await look.ask(_last_row, look, route, tokenizer, word.text) if look.has_room(2) else None
        if value is None or isinstance(value, BackendError):
            continue
        if abs(value - word.logprob) <= max(_OFF, 2 * look.noise):
            return route
        look.notes.append(f"{route} is {abs(value - word.logprob):.2g} nats from its lists, and is not used")
    return None


async def _last_row(look: Looking, route: str, tokenizer: RemoteTokenizer | None, word: str) -> float | None:
    if route == "echo":
        last = (await echoed(look.api, BASE + word))[-1]
        return last.logprob if last.text == word else None
    if tokenizer is None:
        return None
    return (await prompt_logprobs(look.api, await tokenizer.ids(BASE + word)))[-1]


async def find_prefill(look: Looking) -> None:
    """Whether an assistant prefill is continued; lists are then those of its continuation."""
    k = look.longest("chat")
    for way, flags in _WAYS:
        continued, repeated = 0, 0
        for start, rest in _STARTS:
            if not look.has_room():
                return
            turns = (_ROWS, Message("assistant", start))
            temperature = look.found.temperature
            answer = await look.ask(ask, look.api, turns, k, max_tokens=4, temperature=temperature, **flags)
            text = "" if isinstance(answer, BackendError) else "".join(_texts(answer)[:1])
            if not text.removeprefix(start).lstrip().startswith(rest):
                break
            continued, repeated = continued + 1, repeated + text.startswith(start)
        if continued == len(_STARTS) and repeated != 1:
            look.update(prefill="repeated" if repeated else way)
            if k and not repeated:
                look.update(chat_route="chat_prefill")
            return


async def route_of_chats(look: Looking) -> None:
    """Set the best route for chats, if their lists can be used: as texts where the server shows how it renders them."""
    top, found = look.lists.get("chat"), look.found
    if top is None or "chat" in look.distrusted:
        look.update(chat_route=None)
        return
    look.update(chat_route=found.chat_route or "chat_first")
    if found.family != "llama.cpp" or found.text_route is None:
        return
    text = await look.ask(look.api.rendered_chat, CHAT.base) if look.has_room(2) else ""  # type: ignore[arg-type]
    if not isinstance(text, str) or not text:
        return
    off = apart(top, await look.listed("text", text))
    if off <= max(MAX_NOISE / 2, 2 * look.noise):
        look.update(chat_route="rendered")
    elif off < float("inf"):
        look.notes.append(f"its chats are {off:.2g} nats from their rendered texts, which are not used")


async def draws_together(look: Looking) -> None:
    """How many answers one request gives by ``n``, whether a seed determines them, and whether they vary at all."""
    if look.found.family in ("llama.cpp", "llama-cpp-python"):  # of these it is known
        look.update(seed_works=True)
        return
    first: list[str] = []
    for n in _CHOICES:
        if not first and look.has_room(3):
            first = await _drawn(look, 7, n)
    n = len(first)
    look.update(choices=max(n, 1))
    if not first or not look.has_room(2):
        return
    few = min(n, 2)
    again, other = await _drawn(look, 7, few), await _drawn(look, 8, few)
    if n == 1 and first == again == other and look.has_room():
        other += await _drawn(look, 9, 1)
    said = [text for text in (*first, *again, *other) if text]  # a thought alone says nothing
    if len(said) > 1 and len(set(said)) == 1:
        look.copies = "drawn answers to one question are all the same: a cache answers, or the likeliest word is taken"
    look.update(seed_works=again == first[:few] != other)


async def _drawn(look: Looking, seed: int, n: int) -> list[str]:
    """The texts of one request for ``n`` answers; empty if it is refused."""
    prompt = _RANDOM if look.found.completions else (Message("user", _RANDOM),)
    options: dict[str, Any] = {"max_tokens": _TOKENS, "temperature": 1.0, "top_p": 1.0, "seed": seed}
    answer = await look.ask(ask, look.api, prompt, **options, **({"n": n} if n > 1 else {}))
    return [] if isinstance(answer, BackendError) else _texts(answer)


def _texts(answer: Mapping[str, Any]) -> list[str]:
    """The texts of all choices; empty if one is malformed."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return []
    return [text_of(choice) or "" for choice in choices]
