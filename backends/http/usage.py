"""What requests cost: token counts, prices given by the user, and a limit that is never exceeded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from backends.errors import BackendError
from backends.http.errors import UnsentError
from backends.options import OnError, Table
from backends.reading.reasoning import UnfinishedThoughtError, text_of

#: After these errors the server may have done the work and charged for it.
_MAY_BE_CHARGED = ("timeout", "connection", "malformed", "inconsistent")
Price = Annotated[
    float, Field(ge=0, allow_inf_nan=False), OnError("not a price per million tokens", "Give a number, 0 or more")
]


@dataclass(frozen=True, slots=True)
class PriceTable(Table):
    """Prices per million tokens, in any currency.

    ``cached`` is the price of prompt tokens that the server read from its cache; None: the same as ``prompt``.
    """

    prompt: Price
    completion: Price
    cached: Price | None = None

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """The cost of these tokens. ``cached_tokens`` are part of ``prompt_tokens``."""
        cached_price = self.prompt if self.cached is None else self.cached
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.prompt + cached_tokens * cached_price + completion_tokens * self.completion) / 1e6


class Usage:
    """Counters of one backend, and its cost limit."""

    def __init__(self, prices: PriceTable | None = None, max_cost: float | None = None) -> None:
        self._prices, self._max_cost = prices, max_cost
        #: As the server counted them.
        self.requests = self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self._spent = 0.0
        self._reserved = 0.0

    @property
    def cost(self) -> float | None:
        """The cost so far in the currency of the prices; None without prices.

        Requests that failed, or whose response has no token count, are charged at their highest possible price.
        """
        return None if self._prices is None else self._spent

    async def paid(
        self, payload: Mapping[str, Any], ask: Callable[[], Awaitable[dict[str, Any]]], factor: float = 1.0
    ) -> dict[str, Any]:
        """The response of ``ask``, within the limit.

        ``payload`` is what is asked, in OpenAI's terms, at ``factor`` times the prices. Raises `BackendError`:
        ``quota`` if the most that it can cost, beside what is under way, could exceed the limit.
        """
        highest = factor * self._highest_cost(payload)
        if self._max_cost is not None and self._spent + self._reserved + highest > self._max_cost:
            raise BackendError(
                "quota",
                f"the cost limit of {self._max_cost:g} could be exceeded: {self._spent:.6g} spent "
                f"({self._spent / max(self.requests, 1):.3g} a request), {self._reserved:.6g} in flight, the next "
                f"request costs up to {highest:.6g}",
                hint="What was answered is kept; --dry-run says what the rest takes: set max_cost to that",
            )
        self.requests += 1
        self._reserved += highest
        try:
            response = await ask()
        except BaseException as error:
            self._spent += highest if _may_be_charged(error) else 0.0
            raise
        finally:
            self._reserved -= highest
        prompt, completion = counted_prompt(response), generated_tokens(response.get("usage"))
        if prompt is None or completion is None:
            self._spent += highest
            return response
        details = response["usage"].get("prompt_tokens_details")
        cached = min(reported_tokens(details, "cached_tokens") or 0, prompt)
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.cached_tokens += cached
        if self._prices is not None:
            self._spent += factor * self._prices.cost(prompt, completion, cached)
        return response

    def _highest_cost(self, payload: Mapping[str, Any]) -> float:
        """The most that a request can cost: a token has at least one byte, and a chat turn adds a few tokens."""
        if self._prices is None:
            return 0.0
        prompt = payload.get("prompt")
        if prompt is None:
            tokens = sum(len(str(turn["content"]).encode()) + 16 for turn in payload["messages"]) + 64
        else:
            tokens = len(prompt.encode()) + 2 if isinstance(prompt, str) else len(prompt)
        drawn = int(payload.get("max_tokens", payload.get("max_completion_tokens", 1)))
        return self._prices.cost(tokens, drawn * int(payload.get("n", 1)))


def _may_be_charged(error: BaseException) -> bool:
    """Whether the server may have done the work: a thought that used up the limit is charged, though it is an error."""
    if not isinstance(error, BackendError) or isinstance(error, UnfinishedThoughtError):
        return True
    return error.kind in _MAY_BE_CHARGED and not isinstance(error, UnsentError)


def counted_prompt(response: Mapping[str, Any]) -> int | None:
    """Tokens of a response's prompt; None if its server does not count: it says 0, or 0 for a text that it gave."""
    usage, choices = response.get("usage"), response.get("choices")
    texts = map(text_of, choices) if isinstance(choices, list) and all(isinstance(c, Mapping) for c in choices) else ()
    counts_nothing = generated_tokens(usage) == 0 and any(texts)
    return None if counts_nothing else reported_tokens(usage, "prompt_tokens") or None


def reported_tokens(usage: Any, name: str) -> int | None:
    """A count in a response's ``usage``; None if it is missing or not a count."""
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def generated_tokens(usage: Any) -> int | None:
    """All generated tokens, including reasoning, which xAI and Gemini count only in the total."""
    prompt, completion, total = (reported_tokens(usage, f"{name}_tokens") for name in ("prompt", "completion", "total"))
    thought, written = reasoning_tokens(usage), completion or 0
    if completion is None and not thought:
        return None
    beside = written + thought if thought > written else 0  # else it is counted there
    return max(written, beside, 0 if total is None or prompt is None else total - prompt)


def reasoning_tokens(usage: Any) -> int:
    """How many of a response's generated tokens are reasoning; 0 if not reported.

    Gemini, and gateways to it, may report them in the total alone.
    """
    details = usage.get("completion_tokens_details") if isinstance(usage, Mapping) else None
    if (reported := reported_tokens(details, "reasoning_tokens")) is not None:
        return reported
    prompt, completion, total = (reported_tokens(usage, f"{name}_tokens") for name in ("prompt", "completion", "total"))
    return 0 if prompt is None or total is None else max(0, total - prompt - (completion or 0))
