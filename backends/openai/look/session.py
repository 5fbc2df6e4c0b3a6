"""A look: what it found, how its requests are sent and counted, and what two lists have in common."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict

from backends.base import Prompt
from backends.errors import BackendError
from backends.http.client import with_retries
from backends.openai.api import OtherProviderError, ServerApi
from backends.openai.capabilities import ZERO_TEMPERATURE, ServerCapabilities
from backends.openai.scoring.lists import Sent, next_tokens
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

Kind = Literal["text", "chat"]
P = ParamSpec("P")
T = TypeVar("T")

#: Seconds for which a look holds.
DAY = 86_400.0
#: How many words of a list must be listed again, and below how many nats they do not count.
_FEWEST, _LIKELY = 3, -6.0
#: Failures that say nothing of what the server accepts.
_FATAL = ("rate_limited", "timeout", "connection", "quota")
#: Seconds after which the line is said again.
_TELL_EVERY = 1.8
#: Nats. Lists that move more are of no use.
MAX_NOISE = 1.0
#: Nats below a list's likeliest tokens where noise is large, and of no weight.
_NEGLIGIBLE = -8.0
#: Nats by which entries of one list may differ, and share of them that two equal lists have in common.
_EQUAL, _MOST_NOISE, _COMMON = 1e-3, 0.02, 0.9
#: Different values without which two true lists may be equal: of a sure model's answer.
_FEWEST_VALUES = 5
#: Entries of a short list, a probability that is next to nothing, and the share of a list's least one that others have.
_SHORT, _NOTHING, _LEFT = 200, 1e-5, 0.1
#: What chats may go without, and how a refusal names the fewest tokens.
OPTIONAL = ("temperature", "top_p", "seed", "stop", "system")
_LEAST = re.compile(r"max_(?:completion_|output_)?tokens\D{0,80}?(\d+)|at least (\d+)", re.I)
_LARGEST_LEAST = 64
#: How a refusal says that a temperature of 1 is taken.
_ONE_ALONE = re.compile(r"default|only|must be|does not support 0")


class Look(BaseModel):
    """What a look found."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    capabilities: ServerCapabilities
    #: Three sentences for the terminal.
    lines: tuple[str, ...]
    #: Why no answer can be scored; empty if some can.
    refusal: str = ""
    #: What a reader of figures must know: what is not used, and why.
    statements: tuple[str, ...] = ()
    #: How many it took.
    requests: int = 0
    #: Stays the same as long as the server lists the same next words: part of the model's fingerprint.
    identity: str = ""
    #: Of each kind of prompt the next words of one prompt, with their log-probabilities (nats).
    lists: dict[Kind, dict[str, float]] = {}
    #: Different prompts that got different lists.
    prompts: int = 0
    #: When, in seconds since the epoch.
    at: float = 0.0

    @classmethod
    def stored(cls, file: Path, age: float = DAY) -> Look | None:
        """The last look, if it is at most so many seconds old and can be read. Sends nothing."""
        try:
            last = cls.model_validate_json(file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return last if 0 <= time.time() - last.at <= age else None

    def moved(self, now: Mapping[Kind, Mapping[str, float]]) -> float:
        """The largest move of a likely word in nats; inf where lists of one kind have too few words in common."""
        moves = [0.0]
        for kind, values in self.lists.items():
            other = now.get(kind, {})
            common = values.keys() & other.keys()
            if len(common) < min(_FEWEST, len(values)):
                return float("inf")
            moves += [abs(values[w] - other[w]) for w in common if max(values[w], other[w]) > _LIKELY]
        return max(moves)


class Looking:
    """A look in progress.

    ``lists`` holds the list after the first prompt of each kind, ``distrusted`` why none of a kind is used, ``notes``
    what a reader of figures must know. ``prompts`` counts different prompts that got different lists, ``noise`` is by
    how many nats a list moved when it was asked for again. ``without_lists``: why there are none; ``copies``: why
    drawn answers do not count; ``refusal``: why not even the plainest request is answered.
    """

    def __init__(self, api: ServerApi, say: Callable[[str], None], most: int) -> None:
        self.api, self._say, self.most = api, say, most
        self._before = api.client.requests
        self.distrusted: dict[Kind, str] = {}
        self.notes: list[str] = []
        self.lists: dict[Kind, TopLogprobs] = {}
        self.prompts, self.noise = 0, 0.0
        self.without_lists = self.copies = ""
        self.refusal: BackendError | None = None
        self.tokenizer: RemoteTokenizer | None = None

    @property
    def found(self) -> ServerCapabilities:
        """What has been shown so far."""
        return self.api.found

    @property
    def spent(self) -> int:
        """How many requests were sent."""
        return self.api.client.requests - self._before

    def has_room(self, requests: int = 1) -> bool:
        """Whether so many more may be sent."""
        return self.spent + requests <= self.most

    def update(self, **found: Any) -> None:
        """Set fields of `found`."""
        for name, value in found.items():
            setattr(self.found, name, value)

    def distrust(self, kind: Kind, reason: str) -> None:
        """Use no list of this kind; the first reason is kept."""
        self.distrusted.setdefault(kind, reason)

    async def ask(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T | BackendError:
        """The answer, or why there is none. Raises `BackendError` if the server cannot be reached."""
        task = asyncio.ensure_future(self._answer(ask, *args, **options))
        started = time.monotonic()
        while not task.done():
            waited = time.monotonic() - started
            wait = f", {waited:.0f} s" if waited > 1 else ""
            self._say(f"looking at {self.api.client.base_url}: request {self.spent + 1} of at most {self.most}{wait}\r")
            await asyncio.wait({task}, timeout=_TELL_EVERY)
        return task.result()

    async def _answer(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T | BackendError:
        is_first = not self.spent
        try:
            return await with_retries(ask, *args, **options) if is_first else await ask(*args, **options)
        except OtherProviderError:
            raise  # an unpinned gateway: nothing that is found of one provider holds for another
        except BackendError as error:
            if error.kind not in _FATAL:
                return error
            if is_first:
                raise
            return await with_retries(ask, *args, **options)

    async def listed(self, kind: Kind, prompt: Sent) -> TopLogprobs | BackendError:
        """The list after a prompt, as long as lists are compared."""
        return await self.ask(next_tokens, self.api, prompt, self.found.compared(texts=kind == "text"))

    async def lists_after(self, kind: Kind, prompts: Mapping[str, Prompt]) -> dict[str, TopLogprobs]:
        """By name the lists after these prompts, as far as there is room; those that are refused are left out."""
        found = {name: await self.listed(kind, prompt) for name, prompt in prompts.items() if self.has_room()}
        return {name: top for name, top in found.items() if isinstance(top, TopLogprobs)}

    def adapt(self, refusal: BackendError) -> bool:
        """Write requests as a refusal says they must be. Returns whether to ask again."""
        found, said = self.found, refusal.message.lower()
        if refusal.kind not in ("bad_request", "unsupported"):
            return False
        least = max((int(n) for n in sum(_LEAST.findall(said), ()) if n), default=0)
        if 1 < least <= _LARGEST_LEAST and found.min_tokens < least:
            found.min_tokens = least
            return True
        if "temperature" in said and not found.temperature:
            found.temperature = 1.0
            # Some take 1 alone, and say so; others take no temperature at all (Claude from Opus 4.7 on), and draw at 1.
            return self.leave_out(ZERO_TEMPERATURE if _ONE_ALONE.search(said) else "temperature")
        return self.leave_out(*(name for name in OPTIONAL if re.search(rf"\b{name}\b", said)))

    def leave_out(self, *names: str) -> bool:
        """Send these parameters no more. Returns whether any of them was sent."""
        before, self.found.refused = self.found.refused, tuple(sorted({*self.found.refused, *names}))
        return self.found.refused != before


def apart(a: TopLogprobs | BackendError, b: TopLogprobs | BackendError) -> float:
    """Largest difference of two lists of one prompt, in nats, over likely tokens that both identify; inf if none."""
    if isinstance(a, BackendError) or isinstance(b, BackendError):
        return float("inf")
    values = _values(b.tokens)
    gaps = [
        abs(value - values[key])
        for key, value in _values(a.tokens).items()
        if key in values and max(value, values[key]) > _NEGLIGIBLE
    ]
    return max(gaps, default=float("inf"))


def alike(base: TopLogprobs, others: Mapping[str, TopLogprobs], noise: float) -> list[str]:
    """The names of lists of other prompts that are ``base``, cut to their length."""
    return [name for name, other in others.items() if _are_equal(base.tokens[: other.requested_k], other.tokens, noise)]


def _are_equal(a: Sequence[ListedToken], b: Sequence[ListedToken], noise: float) -> bool:
    """Whether two lists are one, which has too many values to be equal by chance."""
    one, other = _values(a), _values(b)
    common = one.keys() & other.keys()
    if min(len({*one.values()}), len({*other.values()})) < _FEWEST_VALUES:
        return False
    if len(common) < _COMMON * max(len(one), len(other)):
        return False
    return max(abs(one[key] - other[key]) for key in common) <= max(_EQUAL, min(2 * noise, _MOST_NOISE))


def holds_all(top: TopLogprobs) -> bool:
    """Whether a short list leaves next to nothing for all other words: it is filtered, or made to add up to 1."""
    least = min(math.exp(token.logprob) for token in top.tokens)
    return len(top.tokens) < _SHORT and least > _NOTHING and abs(1 - top.mass) < _LEFT * least


def _values(tokens: Sequence[ListedToken]) -> dict[object, float]:
    """The values of tokens that are listed once."""
    counts = Counter(map(_key, tokens))
    return {_key(token): token.logprob for token in tokens if counts[_key(token)] == 1}


def _key(token: ListedToken) -> object:
    return token.token_id if token.token_id is not None else token.data or token.text
