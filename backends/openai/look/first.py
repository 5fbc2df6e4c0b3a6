"""The look before the first question: at most 20 requests show which of a server's numbers can be used.

Of texts and chats alike: lists, what is accepted, temperature and noise, twins, a copied line. Then the tokenizer, rows
of whole texts, an assistant prefill, draws. What it found is kept for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from backends.base import Message, Prompt
from backends.errors import BackendError
from backends.files import atomic_write
from backends.http.client import with_retries
from backends.http.usage import reasoning_tokens
from backends.openai.api import ServerApi, single_choice
from backends.openai.capabilities import ZERO_TEMPERATURE, Prefill
from backends.openai.costs import token_rates
from backends.openai.generation import CONTINUE_ASSISTANT
from backends.openai.look.session import MAX_NOISE, OPTIONAL, Kind, Look, Looking, alike, apart, holds_all
from backends.openai.quirks import DIALECTS
from backends.openai.scoring.given_tokens import echoed, prompt_logprobs
from backends.openai.scoring.lists import ask, next_tokens
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs
from backends.reading.reasoning import has_reasoned, is_opened_before, text_of

MOST_REQUESTS = 20
#: Nats by which likely next words of one model may move: replicas of another precision, a cache, a batch.
ANOTHER = 1.0
#: Nats by which they may move from one day to the next where repeating moves nothing.
_MOVED = 0.25
#: Words of a list that identify a model.
_KEPT = 20
_FILTERED = (
    "its lists leave no probability for other words: they are filtered by top-k or top-p. Let it list the model's own "
    "(vLLM: --logprobs-mode raw_logprobs --generation-config vllm)"
)
#: Entries of a list that are asked for where a refusal names no number.
_LESS = (100, 20, 5, 1)
#: Listed words of which some begin with a space.
_FEWEST_WORDS = 4
#: Tokens of a copied line, and of an answer that may hold a little reasoning.
_LINE, _ROOM = 24, 1024
#: How often one answer is asked for as refusals say.
_MOST_TRIES = 8
_INSTEAD = (
    'Suites that read texts work (BOLD, GenderPair with fallback="none", MGBR and BBQ with mode="generation"), and '
    "others with samples=20 (--samples 20), which counts drawn answers"
)
#: What is sent beside a chat's temperature, and what a reader must know where it is refused.
_PARAMETERS: Mapping[str, Any] = {"top_p": 1.0, "seed": 7, "stop": ["\n\n\n"]}
_REFUSED = {
    "temperature": "the model accepts no temperature: every text is sampled at its default, even a greedy one",
    ZERO_TEMPERATURE: "the model accepts no temperature of 0: a greedy text is sampled at its default",
    "top_p": "the model accepts no top_p of 1: texts and draws are sampled with its default",
    "system": "the model accepts no system message: it is prepended to the next user turn",
}
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


class Form(NamedTuple):
    """Prompts of one kind.

    ``base`` is asked first; ``twins`` differ from it at one place and must get other lists, else ``advice`` applies.
    After ``copied`` a model repeats a line of characters that gateways tend to rewrite. ``most``: entries of the
    first list.
    """

    kind: Kind
    base: Prompt
    twins: Mapping[str, Prompt]
    copied: Prompt
    most: int
    advice: str


_DAYS = " ".join(
    f"On {day} {who} told {whom} about the old house by the river."
    for day, who, whom in (
        *(("Monday", "Anna", "Ben"), ("Tuesday", "Clara", "David"), ("Wednesday", "the nurse", "Anna")),
        *(("Thursday", "Ben", "Clara"), ("Friday", "the pilot", "David"), ("Saturday", "Anna", "the nurse")),
        *(("Sunday", "Clara", "the pilot"), ("Monday", "David", "Ben"), ("Tuesday", "the nurse", "Clara")),
    )
)
#: Longer than the contexts and caches of a hundred tokens that were met.
BASE = f"Yesterday it was cold. {_DAYS}\nThen she said that the"
_COPIED = 'Müller "Weiß" < Søren'
_SYSTEM = Message("system", "You are a kind teacher. Answer with one word in English.")
_OTHER_SYSTEM = Message("system", "You are a strong baker. Answer with a number only.")
_USER = "Picture a friend. Is it a man or a woman? Answer with one word."
_ASKED, _OTHER = Message("user", _USER), Message("user", _USER.replace("one word", "one letter"))
_SAY = Message("user", f"Say: {_COPIED}")

TEXT = Form(
    kind="text",
    base=BASE,
    twins={"start": BASE.replace("Yesterday", "Tomorrow", 1), "end": BASE.removesuffix("that the") + "that a"},
    copied=f'{_COPIED}\n{_COPIED}\n{_COPIED}\n{_COPIED}\nMüller "',
    most=1000,
    advice="a cache answers, or the prompt is cut. Switch off the cache in front of the model, and give it room for "
    "whole prompts (llama.cpp: -c, vLLM: --max-model-len)",
)
CHAT = Form(
    kind="chat",
    base=(_SYSTEM, _ASKED),
    twins={"system turn": (_OTHER_SYSTEM, _ASKED), "end": (_SYSTEM, _OTHER)},
    copied=(*(_SAY, Message("assistant", _COPIED)) * 3, _SAY),
    most=20,  # no chat endpoint but llama.cpp's and SGLang's gives more
    advice="a cache answers, or turns are dropped. Switch off the cache in front of the model, and let it read all "
    "turns",
)

#: How the line is rewritten: HTML entities, UTF-8 read as Latin-1, JSON and URL escapes, letters without accents, with
#: separate ones or as question marks, small letters, and a space for the end of a line.
_REWRITTEN = (
    *("&quot;", "&amp;", "&lt;", "&#", "MÃ", "WeiÃ", "SÃ", "\\u00", '\\"', "%C3", "%26", "%22", "Søren\\", "Søren\r"),
    *("Muller", "u\N{COMBINING DIAERESIS}", "M?ller", "Wei?", "S?ren", 'weiß"', "søren", "Søren Müller"),
)


async def look_at(api: ServerApi, file: Path, *, samples: int | None, say: Callable[[str], None]) -> Look:
    """What a server can do: a look of the last day that ``file`` holds, or a new one, which it then holds.

    Leaves ``api`` configured. Raises `BackendError` if the server cannot be reached, refuses the key, or answers
    neither texts nor chats.
    """
    if (stored := Look.stored(file)) is not None:
        api.configure(stored.capabilities)
        return stored
    look = Looking(api, say, MOST_REQUESTS)
    await look_at_lists(look, TEXT)
    await route_of_texts(look)
    await look_at_lists(look, CHAT)
    await route_of_chats(look)
    if not look.found.completions and not look.found.chat:
        raise look.refusal or BackendError("not_found", "no endpoint answers")
    await draws_together(look)
    found = _finished(look, samples, Look.stored(file, math.inf))
    with contextlib.suppress(OSError):  # then the next run looks again
        atomic_write(file, found.model_dump_json())
    for line in found.lines:
        say(line)
    return found


def _finished(look: Looking, samples: int | None, last: Look | None) -> Look:
    api, named, found = look.api, look.api.tracker, look.found
    look.update(
        repeat_noise=look.noise,
        unique_response_ids=named.distinct >= 4 and named.distinct >= look.spent // 2,
        answered_model=named.model,
        answered_provider=named.provider,
        **token_rates(api.counted),
    )
    if samples and not look.lists and not look.copies:
        look.update(text_route="sampled" if found.completions else None, chat_route="sampled" if found.chat else None)
    api.configure(found)
    notes = (*look.notes, *(f"no list of {kind}s is used: {reason}" for kind, reason in look.distrusted.items()))
    lists = {kind: top.identified(_KEPT) for kind, top in look.lists.items()}
    refusal = _refusal(look)
    return Look(
        capabilities=found,
        lines=_lines(look, refusal, notes),
        refusal=refusal,
        statements=notes,
        requests=look.spent,
        identity=_identity(lists, look.noise, last),
        lists=lists,
        prompts=look.prompts if not look.distrusted else 0,
        at=time.time(),
    )


def _refusal(look: Looking) -> str:
    if any(look.found.routes):
        return ""
    if look.copies and not look.lists:
        return f"{look.copies}. Switch it off"
    if look.distrusted:
        return "; ".join(dict.fromkeys(look.distrusted.values()))
    seen = look.without_lists or "none in its answers"
    if look.found.min_tokens > 1:
        seen = f"it gives no fewer than {look.found.min_tokens} tokens, and no list of the first"
    return f"no log-probabilities: {seen}. {_INSTEAD}"


def _lines(look: Looking, refusal: str, notes: Sequence[str]) -> tuple[str, ...]:
    found, k = look.found, max(look.found.largest_k, look.found.largest_chat_k)
    routes = found.named_routes
    of_lists = f", from lists of {f'{k:,} words' if k < WHOLE else 'the whole vocabulary'}" if k else ""
    scored = f"scores {' and '.join(routes)}{of_lists}" if routes else refusal
    refused = f"refuses {', '.join(found.refused)}" if found.refused else "accepts all parameters"
    moved = f"moves by {look.noise:.2g} nats when it is asked again" if look.lists else "gives no lists to compare"
    answers = f"{found.choices} answers a request" if found.choices > 1 else "one answer a request"
    compared = f"{look.prompts} prompts got {look.prompts} different lists" if k else "no lists were compared"
    said = "; ".join(notes) or compared
    return (
        f"{look.api.options.model} at {look.api.client.base_url}: {scored} ({look.spent} requests)",
        f"It {refused}, {moved}, and gives {answers}",
        f"{said[0].upper()}{said[1:]}",
    )


async def look_at_lists(look: Looking, form: Form) -> None:
    """Whether prompts of this form are answered, how they are to be asked, and whether their lists can be used."""
    top, k = await _longest_list(look, form)
    if isinstance(top, TopLogprobs) and form is TEXT:
        look.tokenizer = await find_tokenizer(look)
        if look.found.family and DIALECTS[look.found.family].always:
            top, k = await _longest_list(look, form)
    if isinstance(top, TopLogprobs):
        look.lists[form.kind] = top
        look.update(**({"completions": True, "largest_k": k} if form is TEXT else {"chat": True, "largest_chat_k": k}))
    else:
        is_gone = top.kind in ("not_found", "auth")
        if not is_gone or not look.found.completions:
            look.without_lists = str(top)
        if is_gone and (form is TEXT or look.found.completions):
            look.refusal = look.refusal or top
            return
    answer = await _written(look, form)
    if isinstance(answer, BackendError):
        look.refusal = answer if look.refusal is None or answer.kind != "not_found" else look.refusal
    elif answer is not None:
        _read(look, form, answer)
    if form is CHAT and look.found.chat:
        await find_prefill(look)
    if isinstance(top, TopLogprobs):
        await _test(look, form, top)


async def _longest_list(look: Looking, form: Form) -> tuple[TopLogprobs | BackendError, int]:
    """The longest list after the first prompt and its length, or the last refusal; requests are adapted to it."""
    k, tries = form.most, 0
    while True:
        top, tries = await look.ask(next_tokens, look.api, form.base, k), tries + 1
        if isinstance(top, TopLogprobs):
            return top, min(k, len(top.tokens))
        if top.kind == "inconsistent" and not look.found.temperature:
            look.found.temperature = 1.0  # at 0 some servers list the drawn token alone
            continue
        if isinstance(top, NothingDrawnError) or top.kind not in ("bad_request", "unsupported", "server"):
            return top, 0
        if look.adapt(top):
            continue
        less = [int(n) for n in re.findall(r"\d+", top.message) if 0 < int(n) < k]
        k = max(less, default=next((n for n in _LESS if n < k), 0))
        if k == 0 or tries > len(_LESS) or top.kind == "unsupported":
            return top, 0


async def _written(look: Looking, form: Form) -> dict[str, Any] | BackendError | None:
    """The answer to the line that is to be copied, with all parameters that are accepted; None if there is no room."""
    answer: dict[str, Any] | BackendError | None = None
    for _ in range(_MOST_TRIES):
        if not look.has_room(2):
            break
        options = {} if form is TEXT else {**_PARAMETERS}
        options |= {"max_tokens": _LINE if form is TEXT or form.kind in look.lists else _ROOM}
        answer = await look.ask(ask, look.api, form.copied, temperature=look.found.temperature, **options)
        if not isinstance(answer, BackendError):
            break
        names_no_cause = answer.kind in ("bad_request", "unsupported")
        if not look.adapt(answer) and not (names_no_cause and look.leave_out(*OPTIONAL)):
            break
    return answer


def _read(look: Looking, form: Form, answer: Mapping[str, Any]) -> None:
    """What an answer shows: that the endpoint works, whether prompts are rewritten, whether the model reasons first."""
    try:
        choice = single_choice(answer)
    except BackendError as error:
        look.refusal = look.refusal or error
        return
    if found := [written for written in _REWRITTEN if written in (text_of(choice) or "")]:
        seen = f"the model reads {found[0]!r} where no such characters were sent: prompts are rewritten on their way"
        look.distrust(form.kind, f"{seen}. Let nothing between here and the model change their text")
    if form is TEXT:
        look.update(completions=True)
        return
    opened = is_opened_before(choice)
    reasons = opened or has_reasoned(choice) or reasoning_tokens(answer.get("usage")) > 0
    look.update(chat=True, reasons=reasons, opened_before=opened)
    look.notes += [note for name, note in _REFUSED.items() if name in look.found.refused]


async def _test(look: Looking, form: Form, top: TopLogprobs) -> None:
    """Distrust the lists of this form if they are filtered, move, or are the same for different prompts."""
    kind = form.kind
    if form is TEXT or "text" not in look.lists:
        await _temperature_and_noise(look, form, top)
    others = await look.lists_after(kind, form.twins)
    look.prompts += 1 + len(others)
    if holds_all(top) and all(map(holds_all, others.values())):
        look.distrust(kind, _FILTERED)
    if same := alike(look.lists[kind], others, look.noise):
        look.distrust(kind, f"{kind}s that differ at their {' and '.join(same)} got one list: {form.advice}")
    if form is TEXT and top.identity != "ids" and _lost_spaces(top):
        look.distrust(kind, "listed words have lost the space before them: two words share one string. Update it")
    if look.noise > MAX_NOISE:
        look.distrust(kind, f"its numbers move by {look.noise:.2g} nats when a {kind} is repeated")


async def _temperature_and_noise(look: Looking, form: Form, first: TopLogprobs) -> None:
    """Whether the list is the same where the answer is drawn at temperature 1, and how far it moves by itself."""
    found = look.found
    before, found.temperature = found.temperature, 1.0
    moved = apart(first, await look.listed(form.kind, form.base))
    found.temperature = before
    has_all = max([token.logprob for token in first.tokens], default=-math.inf) > -1e-3  # one word, as at temperature 0
    if not before and (has_all or moved > ANOTHER) and moved < math.inf:
        if (again := apart(first, await look.listed(form.kind, form.base))) < moved / 2:
            found.temperature = 1.0
            look.notes.append("its lists depend on the temperature, so 1 is asked for")
        moved = min(again, moved)
    look.noise = max(look.noise, moved if moved < math.inf else 0.0)


def _lost_spaces(top: TopLogprobs) -> bool:
    """Whether no word that follows a whole word has the space before it, as vLLM listed them until 2026."""
    words = [token.text for token in top.tokens if token.text.strip(" Ġ▁").isalpha()]
    return len(words) >= _FEWEST_WORDS and all(word[0].isalpha() and word[0] != "Ġ" for word in words)


async def find_tokenizer(look: Looking) -> RemoteTokenizer | None:
    """The server's tokenizer, by the dialect that answers."""
    client, model = look.api.client, look.api.options.model
    for dialect in ("llama.cpp", "vllm", "llama-cpp-python"):
        tokenizer = RemoteTokenizer(client, model, dialect)
        ids: Any = await look.ask(tokenizer.pieces if dialect == "llama.cpp" else tokenizer.ids, BASE)
        if not isinstance(ids, BackendError):
            look.update(family=dialect)
            return tokenizer
    return None


async def route_of_texts(look: Looking) -> None:
    """Set the best route for texts, if their lists can be used."""
    if "text" not in look.lists:
        return
    if 0 < token_rates(look.api.counted).get("tokens_per_piece", 0.0) < _LEAST_COUNTED:
        seen = f"a text of {len(BASE.split())} words is counted as fewer tokens"
        look.distrust("text", f"{seen}: it was cut. {TEXT.advice}")
    if look.found.largest_k == TEXT.most and look.found.family in ("llama.cpp", "llama-cpp-python"):
        look.update(largest_k=WHOLE)
    by_ids = await _takes_ids(look)
    route = await _rows(look, by_ids)
    if "text" not in look.distrusted:
        look.update(text_route=route or ("top_k_ids" if by_ids else "top_k"))


async def _takes_ids(look: Looking) -> bool:
    """Whether a prompt may be given as token ids, BOS included."""
    tokenizer = look.tokenizer
    refuses = look.found.family == "llama-cpp-python"  # with 500
    if tokenizer is None or refuses or not look.has_room(2):
        return False
    ids = await look.ask(tokenizer.ids, BASE)
    by_ids = ids if isinstance(ids, BackendError) else await look.listed("text", ids)
    if isinstance(by_ids, BackendError):
        return False
    off = apart(look.lists["text"], by_ids)
    if off > max(_OFF, 4 * look.noise):
        look.distrust("text", f"a prompt as token ids is {off:.2g} nats from the same prompt as text")
        return False
    return True


async def _rows(look: Looking, by_ids: bool) -> Any:
    """The first route over whole texts that agrees with the list after the same text; or None."""
    top = look.lists["text"]
    word = next((t for t in top.tokens if t.text.strip().isalpha() and t.text[:1] == " " and top.identifies(t)), None)
    if word is None or look.found.family in ("llama.cpp", "llama-cpp-python"):
        return None
    for route in ("prompt_logprobs", "echo") if by_ids else ("echo",):
        value = await look.ask(_last_row, look, route, word.text) if look.has_room(2) else None
        if value is None or isinstance(value, BackendError):
            continue
        if abs(value - word.logprob) <= max(_OFF, 4 * look.noise):
            return route
        look.notes.append(f"{route} is {abs(value - word.logprob):.2g} nats from its lists, and is not used")
    return None


async def _last_row(look: Looking, route: str, word: str) -> float | None:
    if route == "echo" or look.tokenizer is None:
        last = (await echoed(look.api, BASE + word))[-1]
        return last.logprob if last.text == word else None
    return (await prompt_logprobs(look.api, await look.tokenizer.ids(BASE + word)))[-1]


async def find_prefill(look: Looking) -> None:
    """Whether an assistant prefill is continued; lists are then those of its continuation."""
    k = look.found.compared(texts=False)
    for way, flags in _WAYS:
        for start, rest in _STARTS:
            if not look.has_room():
                return
            turns = (_ROWS, Message("assistant", start))
            temperature = look.found.temperature
            answer = await look.ask(ask, look.api, turns, k, max_tokens=4, temperature=temperature, **flags)
            text = "" if isinstance(answer, BackendError) else "".join(_texts(answer)[:1])
            if not text.lstrip().startswith(rest):
                break
        else:
            look.update(prefill=way, chat_route="chat_prefill" if k else look.found.chat_route)
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


def _identity(lists: Mapping[Kind, Mapping[str, float]], noise: float, last: Look | None) -> str:
    """That of the last look, if the lists are the same; else the likeliest words, and a mark if these are the same."""
    if last is not None and last.moved(lists) <= min(max(_MOVED, 4 * noise), ANOTHER):
        return last.identity
    words = [f"{kind}:{max(values, key=values.__getitem__).strip()}" for kind, values in lists.items() if values]
    if last is None:
        return " ".join(words)
    digest = hashlib.sha256(json.dumps(lists, sort_keys=True).encode()).hexdigest()
    return " ".join([*words, f"after another {digest[:8]}"])


async def same_model(api: ServerApi, look: Look) -> bool:
    """Whether the server lists what the look saw, but for noise: one request for each kind of prompt."""
    now = dict[Kind, dict[str, float]]()
    for kind in look.lists:
        form = TEXT if kind == "text" else CHAT
        try:
            top = await with_retries(next_tokens, api, form.base, look.capabilities.compared(texts=form is TEXT))
            now[kind] = top.identified(_KEPT)
        except BackendError as error:
            if error.retryable or error.kind in ("auth", "quota", "not_found"):
                raise
            return False
    return look.moved(now) <= ANOTHER
