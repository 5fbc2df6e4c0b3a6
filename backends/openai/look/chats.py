"""What a look asks about chats: lists, what is accepted, twins, the assistant prefill, and the rendered text."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from backends.base import Message
from backends.errors import BackendError
from backends.http.usage import reasoning_tokens
from backends.openai.capabilities import ZERO_TEMPERATURE, Prefill
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.look.copied import CHAT as COPIED
from backends.openai.look.copied import rewritten
from backends.openai.look.session import Looking, apart
from backends.openai.look.texts import COMPARED, MAX_NOISE, compare_twins, longest_list, temperature_and_noise
from backends.openai.protocol.api import single_choice
from backends.openai.scoring.next_tokens import next_chat_tokens, next_tokens
from backends.openai.scoring.top_logprobs import TopLogprobs
from backends.reading.reasoning import has_reasoned, is_opened_before, text_of

Turns = tuple[Message, ...]

_SYSTEM = Message("system", "You are a kind teacher. Answer with one word in English.")
_OTHER_SYSTEM = Message("system", "You are a strong baker. Answer with a number only.")
_USER = "Picture a friend. Is it a man or a woman? Answer with one word."
CHAT: Turns = (_SYSTEM, Message("user", _USER))
_TWINS: Mapping[str, Turns] = {
    "system turn": (_OTHER_SYSTEM, CHAT[1]),
    "end": (_SYSTEM, Message("user", _USER.replace("one word", "one letter"))),
}
_ROWS = Message("user", "Name the days of the week, and count to ten.")
#: (assistant prefill, its next word): only a server that continues it gives that word; no new answer starts with it.
_STARTS = (("Well, in order: Monday, Tuesday,", "Wednesday"), ("Well, in order: one, two, three,", "four"))
_WAYS: tuple[tuple[Prefill, dict[str, Any]], ...] = (("continued", {}), ("flags", CONTINUE_ASSISTANT))
_ALL_TURNS = (
    "a cache answers, or turns are dropped. Switch off the cache in front of the model, and let it read all turns"
)
#: Entries that are asked for at first: no chat endpoint but llama.cpp's and SGLang's gives more.
_MOST = 20
#: Tokens of a plain answer: enough for a little reasoning.
_ROOM = 1024


async def look_at_chats(look: Looking) -> None:
    """Whether chats are answered, and by which route they can be scored."""
    api = look.api
    top, k = await longest_list(look, lambda k: next_chat_tokens(api, CHAT, k), _MOST)
    if isinstance(top, BackendError) and not api.found.temperature and top.kind in ("bad_request", "unsupported"):
        api.found.temperature = 1.0  # perhaps refused without its name
        top, k = await longest_list(look, lambda k: next_chat_tokens(api, CHAT, k), _MOST)
        if isinstance(top, TopLogprobs):
            api.found.refused = (*api.found.refused, ZERO_TEMPERATURE)
        else:
            api.found.temperature = 0.0
    if isinstance(top, TopLogprobs):
        look.update(chat=True, largest_chat_k=k, identity=look.found.identity or top.identity)
        look.lists["chat"] = top
    elif top.kind != "not_found" or not look.found.completions:
        look.without_lists = str(top)
    if isinstance(top, TopLogprobs) or not (top.kind in ("not_found", "auth") and look.found.completions):
        await _parameters(look)
    if not look.found.chat:
        return
    await _prefill(look)
    if isinstance(top, TopLogprobs):
        await _with_lists(look, top)


async def _with_lists(look: Looking, top: TopLogprobs) -> None:
    k = look.found.largest_chat_k
    if look.found.text_route is None:
        await temperature_and_noise(look, top, lambda: next_chat_tokens(look.api, CHAT, k))
    twins = {place: functools.partial(next_chat_tokens, look.api, turns, k) for place, turns in _TWINS.items()}
    await compare_twins(look, "chat", top, twins, _ALL_TURNS)
    if look.noise > MAX_NOISE:
        look.distrust("chat", f"its numbers move by {look.noise:.2g} nats when a chat is repeated")
    if "chat" not in look.distrusted and look.found.chat_route is None:
        look.update(chat_route="chat_first")
    if "chat" in look.distrusted:
        look.update(chat_route=None)
    elif look.found.family == "llama.cpp" and look.found.text_route is not None:
        await _rendered(look, top)


async def _parameters(look: Looking) -> None:
    """Which parameters chats accept, by one answer with all of them; and whether the model reasons before it."""
    api = look.api
    asked: dict[str, Any] = {"temperature": api.found.temperature, "top_p": 1.0, "seed": 7, "stop": ["\n\n\n"]}
    is_plain = "chat" not in look.lists
    answer: Any = None
    for _ in range(5):
        if not look.has_room(2):
            break
        answer = await look.ask(api.chat, COPIED, max_tokens=_ROOM if is_plain else 24, **asked)
        if not isinstance(answer, BackendError) or not look.adapt(answer):
            break
    if isinstance(answer, BackendError):
        # A server without chats may have answers by the Responses API alone; one of texts has not.
        no_route = answer.kind == "not_found" and not look.found.completions
        if no_route or answer.kind in ("bad_request", "unsupported"):
            answer = await _one_by_one(look, asked)
    if isinstance(answer, BackendError):
        look.refusal = answer if look.refusal is None or answer.kind != "not_found" else look.refusal
        return
    if not isinstance(answer, Mapping):
        return
    look.update(chat=True)
    if problem := rewritten(answer):
        look.distrust("chat", problem)
    choice = _choice(answer)
    opened = is_opened_before(choice)
    reasons = opened or has_reasoned(choice) or reasoning_tokens(answer.get("usage")) > 0
    look.update(reasons=reasons, opened_before=opened)
    _tell_refused(look)


async def _one_by_one(look: Looking, asked: dict[str, Any]) -> Any:
    """The answer to the plainest chat; what is refused beside it alone is left out from then on."""
    api, taken = look.api, dict[str, Any]()
    answer = await look.ask(api.chat, COPIED[-1:], max_tokens=_ROOM)
    if isinstance(answer, BackendError) and look.has_room() and not look.found.completions:
        api.found.responses = True  # perhaps the model's only endpoint
        again = await look.ask(api.chat, COPIED[-1:], max_tokens=_ROOM)
        if isinstance(again, BackendError):
            api.found.responses = False
        else:
            answer = again
    if isinstance(answer, BackendError):
        return answer
    for name, value in asked.items():
        if not look.has_room(2):
            break
        one = await look.ask(api.chat, COPIED[-1:], max_tokens=_ROOM, **taken, **{name: value})
        if isinstance(one, BackendError):
            refused = ZERO_TEMPERATURE if name == "temperature" and not value else name
            api.found.refused = (*api.found.refused, refused)
        else:
            taken[name] = value
    return answer


def _tell_refused(look: Looking) -> None:
    refused = {*look.found.refused}
    if "temperature" in refused:
        look.notes.append("the model accepts no temperature: every text is sampled at its default, even a greedy one")
    elif ZERO_TEMPERATURE in refused:
        look.notes.append("the model accepts no temperature of 0: a greedy text is sampled at its default")
    if "top_p" in refused:
        look.notes.append("the model accepts no top_p of 1: texts and draws are sampled with its default")
    if "system" in refused:
        look.notes.append("the model accepts no system message: it is prepended to the next user turn")


async def _prefill(look: Looking) -> None:
    """Whether an assistant prefill is continued, also in lists."""
    k = min(look.found.largest_chat_k, _MOST)
    lists: dict[str, Any] = {"logprobs": True, "top_logprobs": k} if k else {}
    for way, flags in _WAYS:
        continued, repeated, in_lists = 0, 0, bool(k)
        for start, rest in _STARTS:
            if not look.has_room():
                return
            turns = (_ROWS, Message("assistant", start))
            answer = await look.ask(
                look.api.chat, turns, max_tokens=4, temperature=look.found.temperature, **lists, **flags
            )
            choice = _choice(answer) if isinstance(answer, Mapping) else {}
            text = text_of(choice) or ""
            if not text.removeprefix(start).lstrip().startswith(rest):
                break
            continued, repeated = continued + 1, repeated + text.startswith(start)
            in_lists = in_lists and rest.startswith(_first_listed(choice) or "\0")
        if continued == len(_STARTS) and repeated != 1:
            look.update(prefill="repeated" if repeated else way)
            if in_lists:
                look.update(chat_route="chat_prefill")
            return


def _first_listed(choice: Mapping[str, Any]) -> str:
    """The likeliest token of the first list."""
    try:
        entries = choice["logprobs"]["content"][0]["top_logprobs"]
        return str(max(entries, key=lambda entry: entry["logprob"])["token"]).strip(" Ġ▁")
    except (KeyError, IndexError, TypeError, ValueError):
        return ""


async def _rendered(look: Looking, top: TopLogprobs) -> None:
    """Whether the chat endpoint reads the text that the server renders: a chat is then scored like a text."""
    text = await look.ask(look.api.rendered_chat, CHAT) if look.has_room(2) else ""
    if not isinstance(text, str) or not text:
        return
    by_text = await look.ask(next_tokens, look.api, text, min(look.found.largest_k, COMPARED))
    off = apart(top, by_text)
    if off <= max(MAX_NOISE / 2, 2 * look.noise):
        look.update(chat_route="rendered")
    elif off < float("inf"):
        look.notes.append(f"its chats are {off:.2g} nats from their rendered texts, which are not used")


def _choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return single_choice(answer)
    except BackendError:
        return {}
