"""The look before the first question: at most 20 requests show which of a server's numbers can be used.

What it found is kept for a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from backends.errors import BackendError
from backends.files import atomic_write
from backends.http.retries import with_retries
from backends.openai.capabilities import ServerCapabilities
from backends.openai.costs import token_rates
from backends.openai.look.forms import CHAT, FORMS, TEXT
from backends.openai.look.routes import WHOLE, draws_together, look_at_lists, route_of_chats, route_of_texts
from backends.openai.look.session import COMPARED, Looking
from backends.openai.protocol.api import ServerApi
from backends.openai.scoring.next_tokens import next_tokens
from backends.openai.scoring.top_logprobs import TopLogprobs

MOST_REQUESTS = 20
#: Nats by which likely next words of one model may move: replicas of another precision, a cache, a batch.
ANOTHER = 1.0
#: Nats by which they may move from one day to the next where repeating moves nothing.
_MOVED = 0.25
#: Words of a list that identify a model, how many of them must be listed again, and below what they do not count.
_KEPT, _FEWEST, _LIKELY = 20, 3, -6.0
#: Seconds for which a look holds.
DAY = 86_400.0


class Look(BaseModel):
    """What a look found.

    Attributes
    ----------
    capabilities : ServerCapabilities
    lines : tuple of str
        Three sentences for the terminal.
    refusal : str
        Why no answer can be scored; empty if some can.
    statements : tuple of str
        What a reader of figures must know: what is not used, and why.
    requests : int
        How many it took.
    identity : str
        Stays the same as long as the server lists the same next words: part of the model's fingerprint.
    lists : dict
        Of each kind of prompt ("text", "chat") the next words of one prompt, with their log-probabilities (nats).
    prompts : int
        Different prompts that got different lists.
    at : float
        When, in seconds since the epoch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    capabilities: ServerCapabilities
    lines: tuple[str, ...]
    refusal: str = ""
    statements: tuple[str, ...] = ()
    requests: int = 0
    identity: str = ""
    lists: dict[str, dict[str, float]] = {}
    prompts: int = 0
    at: float = 0.0

    @property
    def is_distrusted(self) -> bool:
        """Whether the server gives log-probabilities, and none of them is used."""
        return bool(self.lists) and not any(self.capabilities.routes)


def stored_look(file: Path, age: float = DAY) -> Look | None:
    """The last look, if it is at most so many seconds old and can be read. Sends nothing."""
    try:
        last = Look.model_validate_json(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return last if 0 <= time.time() - last.at <= age else None


async def look_at(api: ServerApi, file: Path, *, samples: int | None, say: Callable[[str], None]) -> Look:
    """What a server can do: a look of the last day that ``file`` holds, or a new one, which it then holds.

    Leaves ``api`` configured. Raises `BackendError` if the server cannot be reached, refuses the key, or answers
    neither texts nor chats.
    """
    if (stored := stored_look(file)) is not None:
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
    found = _finished(look, samples, stored_look(file, math.inf))
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
    lists: dict[str, dict[str, float]] = {kind: _kept(top) for kind, top in look.lists.items()}
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
    if look.found.min_tokens > 1:
        return (
            f"no log-probabilities: it gives no fewer than {look.found.min_tokens} tokens, and no list of the first. "
            "Suites that read texts (GenderPair, benchmarks, prompt_format with answers in words) still work, and so "
            "does samples=20"
        )
    return f"no log-probabilities: {look.without_lists or 'none in its answers'}; set samples=20 to count drawn answers"


def _lines(look: Looking, refusal: str, notes: Sequence[str]) -> tuple[str, ...]:
    found, k = look.found, max(look.found.largest_k, look.found.largest_chat_k)
    routes = found.named_routes
    of_lists = f", from lists of {f'{k:,} words' if k < WHOLE else 'the whole vocabulary'}" if k else ""
    scored = f"scores {' and '.join(routes)}{of_lists}" if routes else refusal
    refused = f"refuses {', '.join(found.refused)}" if found.refused else "accepts all parameters"
    moved = f"moves by {look.noise:.2g} nats when it is asked again" if look.lists else "gives no lists to compare"
    answers = f"{found.choices} answers a request" if found.choices > 1 else "one answer a request"
    said = "; ".join(notes) or f"{look.prompts} prompts got {look.prompts} different lists"
    return (
        f"{look.api.options.model} at {look.api.client.base_url}: {scored} ({look.spent} requests)",
        f"It {refused}, {moved}, and gives {answers}",
        f"{said[0].upper()}{said[1:]}",
    )


def _kept(top: TopLogprobs) -> dict[str, float]:
    return {token.text: token.logprob for token in top.tokens[:_KEPT] if top.identifies(token)}


def _identity(lists: Mapping[str, Mapping[str, float]], noise: float, last: Look | None) -> str:
    """That of the last look, if the lists are the same; else the likeliest words, and a mark if these are the same."""
    if last is not None and _moved(last.lists, lists) <= min(max(_MOVED, 4 * noise), ANOTHER):
        return last.identity
    words = [f"{kind}:{max(values, key=values.__getitem__).strip()}" for kind, values in lists.items() if values]
    if last is None:
        return " ".join(words)
    digest = hashlib.sha256(json.dumps(lists, sort_keys=True).encode()).hexdigest()
    return " ".join([*words, f"after another {digest[:8]}"])


def _moved(then: Mapping[str, Mapping[str, float]], now: Mapping[str, Mapping[str, float]]) -> float:
    """The largest move of a likely word in nats; inf where lists of one kind have too few words in common."""
    moves = [0.0]
    for kind, values in then.items():
        other = now.get(kind, {})
        common = values.keys() & other.keys()
        if len(common) < min(_FEWEST, len(values)):
            return float("inf")
        moves += [abs(values[w] - other[w]) for w in common if max(values[w], other[w]) > _LIKELY]
    return max(moves)


async def same_model(api: ServerApi, look: Look) -> bool:
    """Whether the server lists what the look saw, but for noise: one request for each kind of prompt."""
    found, now = look.capabilities, dict[str, dict[str, float]]()
    for kind in look.lists:
        k = min(found.largest_k if kind == "text" else found.largest_chat_k, COMPARED)
        try:
            now[kind] = _kept(await with_retries(next_tokens, api, FORMS[kind].base, k))
        except BackendError as error:
            if error.retryable or error.kind in ("auth", "quota", "not_found"):
                raise
            return False
    return _moved(look.lists, now) <= ANOTHER
