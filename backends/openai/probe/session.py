"""What the experiments of a probe share: how they ask, and where they write down what they found."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ParamSpec, TypeVar

from backends.base import Message
from backends.errors import BackendError
from backends.openai.api import ServerApi
from backends.openai.patience import is_down, patiently
from backends.openai.probe.capabilities import Check, ServerCapabilities
from backends.openai.scoring.tokenizer import RemoteTokenizer
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

P = ParamSpec("P")
T = TypeVar("T")

#: Short, since some servers need seconds for a prompt's log-probabilities.
PROMPT = "Q: Who found the nurse's letter? Answer with one word.\nA:"
OTHER = "It was a bright cold day in April, and the"
#: Two independent routes to one number agree to this in full precision.
FULL_PRECISION = 1e-3
#: A server whose own numbers move by more is not asked for scores.
LARGEST_SPREAD = 1.0
#: Noise of what hardly ever comes says little.
FAR_DOWN = -8.0
_FATAL = ("rate_limited", "timeout", "connection", "quota")


class ProbeSession:
    """One probe under way.

    Attributes
    ----------
    found : ServerCapabilities
        What is known so far; `learn` adds to it.
    checks : list of Check
        The report's lines; `note` adds one.
    tokenizer : RemoteTokenizer or None
    refused : BackendError or None
        The first answer that the key is wrong. Gateways say so too of paths and models that they do not know.
    """

    def __init__(self, api: ServerApi) -> None:
        self.api = api
        self.found = ServerCapabilities()
        self.checks: list[Check] = []
        self.tokenizer: RemoteTokenizer | None = None
        self.refused: BackendError | None = None
        self._lists, self._heaviest = 0, 0.0
        self._impossible: BackendError | None = None

    def learn(self, **found: Any) -> None:
        """Set fields of `found`."""
        self.found = dataclasses.replace(self.found, **found)

    def note(self, name: str, passed: bool | None, detail: str) -> None:
        """Write one line of the report."""
        self.checks.append(Check(name, passed, detail))

    async def ask(self, ask: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs) -> T | BackendError:
        """The answer, or why there is none. Passing troubles are waited for.

        Raises `BackendError` when the server cannot be reached: what it can do is not to be told while it is down,
        and what was found would name the model from then on. A gateway may say so of one question only, which the
        server's answer to a plain one shows.
        """
        try:
            return await patiently(ask, *args, **options)
        except BackendError as error:
            if error.kind in _FATAL:
                raise
            if is_down(error) and (self.found.completions or self.found.chat):
                await patiently(self.plain, PROMPT, max_tokens=1, temperature=0.0)
                try:
                    return await patiently(ask, *args, **options)
                except BackendError as again:
                    error = again
            if error.kind == "auth":
                self.refused = self.refused or error
            return error

    async def plain(self, text: str, **options: Any) -> dict[str, Any]:
        """The answer to a text, by whichever way the server answers."""
        if self.found.completions:
            return await self.api.completion(text, **options)
        return await self.api.chat((Message("user", text),), **options)

    async def listed(self, prompt: str | Sequence[int], k: int) -> TopLogprobs | BackendError:
        """The k likeliest tokens after a text or token ids."""
        return self._weighed(await self.ask(self.api.next_tokens, prompt, k))

    async def listed_in_chat(self, messages: Sequence[Message], k: int, **extra: Any) -> TopLogprobs | BackendError:
        """The k likeliest tokens that go on with a chat."""
        return self._weighed(await self.ask(self.api.next_chat_tokens, messages, k, **extra))

    def note_values(self) -> None:
        """Whether all lists so far could be true."""
        if self._impossible is not None:
            self.note("possible values", False, str(self._impossible))
        elif self._lists:
            detail = f"{self._lists} lists: finite, at most 0, adding up to at most {self._heaviest:.6g}"
            self.note("possible values", True, detail)

    def tolerance(self) -> float:
        """How far two routes to one number may be apart, in nats."""
        return max(FULL_PRECISION, 2 * self.found.spread)

    def _weighed(self, listing: TopLogprobs | BackendError) -> TopLogprobs | BackendError:
        if isinstance(listing, TopLogprobs):
            self._lists += 1
            self._heaviest = max(self._heaviest, listing.mass)
        elif listing.kind == "inconsistent":
            self._impossible = self._impossible or listing
        return listing


def distance(a: TopLogprobs, b: TopLogprobs) -> float:
    """How far two lists of one question are apart, in nats, over tokens that both name once."""
    mine, theirs = Counter(map(_name, a.tokens)), Counter(map(_name, b.tokens))
    there = {_name(t): t for t in b.tokens if theirs[_name(t)] == 1}
    gaps = [
        abs(t.logprob - other.logprob)
        for t in a.tokens
        if mine[_name(t)] == 1
        and (other := there.get(_name(t))) is not None
        and max(t.logprob, other.logprob) > FAR_DOWN
        and a.names(t)
        and b.names(other)
    ]
    return max(gaps, default=float("inf"))


def _name(token: ListedToken) -> object:
    return token.token_id if token.token_id is not None else (token.data or token.text)
