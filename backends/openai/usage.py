"""What was asked and what it costs: tokens counted, prices given by the user, a limit that holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.errors import BackendError, ConfigError


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices per million tokens, in any currency.

    ``cached`` is the price of prompt tokens that the server took from its cache; None: as ``prompt``.
    """

    prompt: float
    completion: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            value = getattr(self, name)
            if value is None and name == "cached":
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value < float("inf"):
                raise ConfigError(f"prices.{name}", value, "a price per million tokens", "Give a number from 0 on")

    @classmethod
    def of(cls, prices: PriceTable | Mapping[str, float] | None) -> PriceTable | None:
        """The table that a config gives as a mapping of ``prompt``, ``completion`` and perhaps ``cached``."""
        if prices is None or isinstance(prices, PriceTable):
            return prices
        if not isinstance(prices, Mapping):
            raise ConfigError("prices", prices, "no table of prices", "Give {prompt = 0.15, completion = 0.6}")
        for name in prices:
            if name not in ("prompt", "completion", "cached"):
                raise ConfigError(f"prices.{name}", prices[name], "unknown", "Use prompt, completion and cached")
        for name in ("prompt", "completion"):
            if name not in prices:
                raise ConfigError(f"prices.{name}", None, "missing", "Give the price of a million tokens")
        return cls(**prices)

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """What these tokens cost. ``cached_tokens`` are part of ``prompt_tokens``."""
        cached_price = self.prompt if self.cached is None else self.cached
        fresh = prompt_tokens - cached_tokens
        return (fresh * self.prompt + cached_tokens * cached_price + completion_tokens * self.completion) / 1e6


class Usage:
    """Counters of one backend, and its limit.

    Attributes
    ----------
    requests, prompt_tokens, completion_tokens, cached_tokens : int
        As the server counted them. ``uncounted`` requests came without any count.
    cost : float or None
        In the currency of the prices; None without prices. Requests that failed or came
        without a count are taken at their highest possible price.
    """

    def __init__(self, prices: PriceTable | None = None, max_cost: float | None = None) -> None:
        self._prices, self._max_cost = prices, max_cost
        self.requests = self.prompt_tokens = self.completion_tokens = self.cached_tokens = self.uncounted = 0
        self._spent = 0.0
        self._reserved = 0.0

    @property
    def cost(self) -> float | None:
        """What was spent so far."""
        return None if self._prices is None else self._spent

    def limit(self, most: float) -> None:
        """Let `reserve` refuse what could take the cost above ``most``; an earlier, lower limit stays."""
        self._max_cost = most if self._max_cost is None else min(most, self._max_cost)

    def reserve(self, payload: Mapping[str, Any]) -> float:
        """Set aside the most that a request can cost; `settle` it afterwards.

        Raises `BackendError` ``quota`` when that could pass the limit.
        """
        highest = self._highest_cost(payload)
        if self._max_cost is not None and self._spent + self._reserved + highest > self._max_cost:
            raise BackendError(
                "quota",
                f"the cost limit of {self._max_cost:g} could be passed: {self._spent:.6g} spent, "
                f"{self._reserved:.6g} under way, the next request costs up to {highest:.6g}",
                hint="Raise max_cost to go on",
            )
        self.requests += 1
        self._reserved += highest
        return highest

    def settle(self, reserved: float, answer: Mapping[str, Any] | None, *, charged: bool = True) -> int | None:
        """Count an answer's tokens and return those of the prompt, None where it tells none."""
        self._reserved -= reserved
        usage = (answer or {}).get("usage")
        prompt = _count(usage, "prompt_tokens")
        completion = _count(usage, "completion_tokens")
        if prompt is None or completion is None:
            self.uncounted += 1
            self._spent += reserved if charged else 0.0
            return prompt
        cached = min(_count((usage or {}).get("prompt_tokens_details"), "cached_tokens") or 0, prompt)
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.cached_tokens += cached
        if self._prices is not None:
            self._spent += self._prices.cost(prompt, completion, cached)
        return prompt

    def _highest_cost(self, payload: Mapping[str, Any]) -> float:
        """The most that a request can cost: a token is at least one byte, and a turn adds a few."""
        if self._prices is None:
            return 0.0
        prompt = payload.get("prompt")
        prompts = 1
        if isinstance(prompt, str):
            tokens = _most_tokens(prompt)
        elif prompt is None:
            tokens = sum(len(str(m["content"]).encode()) + 16 for m in payload["messages"]) + 64
        elif isinstance(prompt[0], str):
            tokens, prompts = sum(map(_most_tokens, prompt)), len(prompt)
        else:
            tokens = len(prompt)
        answer = int(payload.get("max_tokens", payload.get("max_completion_tokens", 1)))
        return self._prices.cost(tokens, answer * prompts * int(payload.get("n", 1)))


def _most_tokens(text: str) -> int:
    return len(text.encode()) + 2


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
