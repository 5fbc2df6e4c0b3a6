"""What a look asks of texts and chats alike: lists, what is accepted, temperature and noise, twins, a copied line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backends.errors import BackendError
from backends.http.usage import reasoning_tokens
from backends.openai.capabilities import ZERO_TEMPERATURE
from backends.openai.look.forms import CHAT, TEXT, Form, rewritten
from backends.openai.look.routes import find_prefill, find_tokenizer
from backends.openai.look.session import FILTERED, MAX_NOISE, OPTIONAL, SAME, Looking, alike, apart, holds_all
from backends.openai.protocol.api import single_choice
from backends.openai.quirks import DIALECTS
from backends.openai.scoring.next_tokens import ask, next_tokens
from backends.openai.scoring.top_logprobs import NothingDrawnError, TopLogprobs
from backends.reading.reasoning import has_reasoned, is_opened_before

#: Entries of a list that are asked for where a refusal names no number.
_LESS = (100, 20, 5, 1)
#: Listed words of which some begin with a space.
_FEWEST_WORDS = 4
#: Tokens of a copied line, and of an answer that may hold a little reasoning.
_LINE, _ROOM = 24, 1024
#: How often one answer is asked for as refusals say.
_MOST_TRIES = 8
#: What is sent beside a chat's temperature, and what a reader must know where it is refused.
_PARAMETERS: Mapping[str, Any] = {"top_p": 1.0, "seed": 7, "stop": ["\n\n\n"]}
_REFUSED = {
    "temperature": "the model accepts no temperature: every text is sampled at its default, even a greedy one",
    ZERO_TEMPERATURE: "the model accepts no temperature of 0: a greedy text is sampled at its default",
    "top_p": "the model accepts no top_p of 1: texts and draws are sampled with its default",
    "system": "the model accepts no system message: it is prepended to the next user turn",
}


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
    if problem := rewritten(choice):
        look.distrust(form.kind, problem)
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
        look.distrust(kind, FILTERED)
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
    if before or moved <= SAME:
        look.noise = max(look.noise, moved if moved < float("inf") else 0.0)
        return
    noise = apart(first, await look.listed(form.kind, form.base))
    if noise < moved / 2:
        look.noise, found.temperature = max(look.noise, noise), 1.0
        look.notes.append("its lists depend on the temperature, so 1 is asked for")
    else:
        look.noise = max(look.noise, min(noise, moved))


def _lost_spaces(top: TopLogprobs) -> bool:
    """Whether no word that follows a whole word has the space before it, as vLLM listed them until 2026."""
    words = [token.text for token in top.tokens if token.text.strip(" Ġ▁").isalpha()]
    return len(words) >= _FEWEST_WORDS and all(word[0].isalpha() and word[0] != "Ġ" for word in words)
