"""A server's list of next tokens: parsed, checked for impossible values, and what it says of tokens outside it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backends.base import Boundary, ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.errors import inconsistent
from backends.openai.api import check_finished, positions, single_choice
from backends.openai.quirks import PLACEHOLDER, SPACE_MARKS
from backends.reading.reasoning import begins_with_reasoning, has_reasoned, text_of

#: By how much a server's probabilities may exceed 1 in total. llama.cpp divides by a running sum in float32, where
#: each token may cost 2⁻²⁴: with Gemma's 2¹⁸ tokens a list adds up to as much as 1.002.
MASS_SLACK = 2.0**-6
#: This many tokens, and this share of a list, do not have the same value by chance.
_MIN_ALIKE, _SHARE_ALIKE = 5, 0.4
#: Nats. A value that is repeated below the first, with the second as gap to the others, is a placeholder.
_FAR_BELOW, _WIDE_GAP = -20.0, 3.0

#: The share of entries of a list by value that may be above the one before them.
_MOST_RISES = 0.2
#: How the text of a special token starts; such a token may have no bytes.
_SPECIAL_STARTS = ("", "<", "[")
#: Nats. By so much a token's value beside a list may differ from that in it: four decimals, or fewer.
_SAME = 0.01
#: Stands for a part of a character, whose bytes it does not show: several tokens may share such a text.
_PART = "\N{REPLACEMENT CHARACTER}"

Identity = Literal["ids", "bytes", "text"]


class NothingDrawnError(BackendError):
    """The token that was drawn ends the text, or is a part of a character, and this server then gives no list."""

    def __init__(self) -> None:
        super().__init__("unsupported", "the model ends the text here, or a character's part, and no tokens are listed")


@dataclass(frozen=True, slots=True)
class ListedToken:
    """One entry of a list. ``data`` is the token's bytes; None if only a lossy text is given."""

    text: str
    logprob: float
    token_id: int | None = None
    data: bytes | None = None


@dataclass(frozen=True)
class TopLogprobs:
    """The likeliest next tokens, likeliest first as the server gave them."""

    tokens: tuple[ListedToken, ...]
    requested_k: int
    #: Text of the token that the server drew; it may be listed although it is not among the k.
    sampled: str
    #: What identifies a token.
    identity: Identity
    #: Whether the k likeliest are known: not if the drawn token is left out, and no value is given for it.
    complete: bool = True

    @functools.cached_property
    def mass(self) -> float:
        """Σ exp(logprob) over the list."""
        return math.fsum(math.exp(t.logprob) for t in self.tokens)

    @functools.cached_property
    def _ids(self) -> dict[int, ListedToken]:
        return {t.token_id: t for t in self.tokens if t.token_id is not None}

    @functools.cached_property
    def _ranks(self) -> dict[int, int]:
        return {id(token): at for at, token in enumerate(self.tokens)}

    def entries(self, data: bytes, token_id: int | None = None) -> tuple[ListedToken, ...]:
        """The entry of this id, or those with these bytes: several if tokens decode to the same string."""
        if self.identity == "ids" and token_id is not None:
            return (self._ids[token_id],) if token_id in self._ids else ()
        if self.identity == "text":
            text = data.decode("utf-8", "replace")
            return tuple(t for t in self.tokens if t.text == text)
        return tuple(t for t in self.tokens if t.data == data)

    def prefixes_of(self, data: bytes) -> tuple[ListedToken, ...]:
        """The entries whose bytes are, or may be, a proper and non-empty prefix of ``data``."""

        def may_start(token: ListedToken) -> bool:
            start = token.text.encode() if token.data is None else token.data
            if token.data is None and not data.isascii() and (not start or _PART in token.text):
                return data.startswith(token.text.partition(_PART)[0].encode())
            return 0 < len(start) < len(data) and data.startswith(start)

        return tuple(filter(may_start, self.tokens))

    def identified(self, most: int | None = None) -> dict[str, float]:
        """The text of each of the first entries that stands for a single token → its log-probability."""
        return {token.text: token.logprob for token in self.tokens[:most] if self.identifies(token)}

    def identifies(self, token: ListedToken) -> bool:
        """Whether this entry of `tokens` certainly stands for a single token.

        In a list keyed by strings, tokens that decode to the same string collapse into one entry, with
        the rank of the first and the value of the last, which breaks the list's order. Tokens that are
        not whole characters decode to spaces, to nothing or to the replacement character (SmolLM2: 38
        to one space, 338 to nothing): such strings identify no token.
        """
        if self.identity != "text":
            return True
        if not token.text.strip() or _PART in token.text:
            return False
        at = self._ranks[id(token)]
        return at + 1 == len(self.tokens) or self.tokens[at + 1].logprob <= token.logprob


def read_top_logprobs(response: Mapping[str, Any], requested_k: int) -> TopLogprobs:
    """The list of the first generated token, from either endpoint.

    Raises `BackendError`: ``unsupported`` if there is none, ``malformed`` if it cannot be parsed,
    ``inconsistent`` if it cannot be true.
    """
    choice = single_choice(response)
    check_finished(choice.get("finish_reason"))
    message, logprobs, text = choice.get("message"), choice.get("logprobs"), text_of(choice)
    if isinstance(message, Mapping) and message.get("refusal"):
        raise BackendError("bad_request", "the server declines to answer")
    if choice.get("finish_reason") == "stop" and isinstance(logprobs, Mapping) and not any(logprobs.values()):
        raise NothingDrawnError
    if logprobs is None and text is not None and text.endswith(_PART):
        raise NothingDrawnError  # llama.cpp's server keeps both back until the character is whole
    if not isinstance(logprobs, Mapping):
        raise BackendError("unsupported", "the answer has no log-probabilities, although they were requested")
    try:
        entries, own = next(positions(logprobs))
    except (AttributeError, LookupError, StopIteration, TypeError):
        raise BackendError("unsupported", "the answer lists no likeliest tokens") from None
    return _checked(_read(entries, own, requested_k), reasoned=has_reasoned(choice))


def read_all_lists(response: Mapping[str, Any], requested_k: int) -> list[TopLogprobs]:
    """The list beside each drawn token of each choice; empty if there are none. Raises as `read_top_logprobs` does."""
    try:
        found = [one for choice in response["choices"] for one in positions(choice["logprobs"])]
    except (AttributeError, LookupError, TypeError):
        return []
    return [_checked(_read(entries, own, requested_k)) for entries, own in found]


def checked_logprob(value: Any) -> float:
    """A finite log-probability of at most 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not PLACEHOLDER < value < math.inf:
        raise inconsistent(f"a log-probability is {value!r:.20}")
    if value > 1e-4:
        raise inconsistent(f"a log-probability is positive ({value:.4g}): perhaps it is a probability")
    return min(float(value), 0.0)


def _read(entries: Sequence[Any], own: Mapping[str, Any], requested_k: int) -> TopLogprobs:
    mark, value = _mark_of(entries or ()), own.get("logprob")
    listed = tuple(_token(entry, mark) for entry in entries or ())
    is_unknown = value is None or (isinstance(value, float) and -math.inf < value <= PLACEHOLDER)
    drawn = None if is_unknown else _token(own, mark)  # OpenAI gives -9999 for one that is not among the 20 likeliest
    sampled = str(own.get("token") or "").replace(mark, " ") if drawn is None else drawn.text
    identity: Identity = "text"
    if listed and all(token.token_id is not None for token in listed):
        identity = "ids"
    elif any(t.data for t in listed) and all(t.data is not None or _PART in t.text for t in listed):
        identity = "bytes"
    return _with_drawn(TopLogprobs(_in_order(listed, sampled), requested_k, sampled, identity), drawn)


def _with_drawn(top: TopLogprobs, drawn: ListedToken | None) -> TopLogprobs:
    """The list with the drawn token, which some servers leave out of it: its own entry counts.

    Raises ``inconsistent`` where it is listed with another value than its own.
    """
    if not top.sampled and drawn is None:
        return top
    same = [t for t in top.tokens if t.text == top.sampled]
    if drawn is not None and drawn.token_id is not None and top.identity == "ids":
        same = [t for t in top.tokens if t.token_id == drawn.token_id]
    if same:
        is_sure = top.identity != "text" and len(same) == 1
        if is_sure and drawn is not None and abs(drawn.logprob - same[0].logprob) > _SAME:
            problem = f"{drawn.logprob:.4g} nats beside its list, and {same[0].logprob:.4g} in it"
            raise inconsistent(f"the drawn token {top.sampled!r:.40} has {problem}")
        return top
    if drawn is None or (top.identity == "ids" and drawn.token_id is None):
        return dataclasses.replace(top, complete=False)
    at = sum(1 for token in top.tokens if token.logprob >= drawn.logprob)
    return dataclasses.replace(top, tokens=(*top.tokens[:at], drawn, *top.tokens[at:]))


def _mark_of(entries: Sequence[Any]) -> str:
    """The vocabulary's own mark for a space, where a server shows that and no token begins with a space."""
    texts = [str(entry.get("token")) for entry in entries if isinstance(entry, Mapping)]
    shown = (mark for mark in SPACE_MARKS if any(text.startswith(mark) for text in texts))
    return " " if any(text.startswith(" ") for text in texts) else next(shown, " ")


def _in_order(listed: tuple[ListedToken, ...], sampled: str) -> tuple[ListedToken, ...]:
    """The list, likeliest first: vLLM puts the drawn token first, and gateways may order objects by their keys.

    Strings that several tokens share disturb the order of few entries, which shows them (`TopLogprobs.identifies`).
    """
    if len(listed) > 1 and listed[0].text == sampled and listed[0].logprob < listed[1].logprob:
        at = sum(1 for _ in itertools.takewhile(lambda t: t.logprob >= listed[0].logprob, listed[1:]))
        listed = (*listed[1 : at + 1], listed[0], *listed[at + 1 :])
    rises = sum(b.logprob > a.logprob for a, b in itertools.pairwise(listed))
    if rises > max(1, _MOST_RISES * (len(listed) - 1)):
        return tuple(sorted(listed, key=lambda token: -token.logprob))
    return listed


def _token(entry: Any, mark: str) -> ListedToken:
    if not isinstance(entry, Mapping):
        raise BackendError("malformed", "a listed token that is not an object", retryable=True)
    text, values, token_id = entry.get("token"), entry.get("bytes"), entry.get("id")
    try:
        data = None if values is None else bytes(values)
    except (TypeError, ValueError):
        raise BackendError("malformed", "bytes of a token that are not bytes", retryable=True) from None
    if not isinstance(text, str) and data is None:
        raise BackendError("malformed", "a listed token without text and bytes", retryable=True)
    if data and not text:
        text = data.decode("utf-8", "replace")  # some servers give bytes alone
    is_part = str(text).startswith("bytes:\\x")  # as OpenAI's completions have it
    text = _PART if is_part else str(text).replace(mark, " ")
    known_id = token_id if isinstance(token_id, int) and not isinstance(token_id, bool) else None
    return ListedToken(text, checked_logprob(entry.get("logprob")), known_id, _own_bytes(text, data, mark))


def _own_bytes(text: str, data: bytes | None, mark: str) -> bytes | None:
    """``data`` if it is a token's with this text; None if it is the text's alone, as vLLM gives it."""
    try:
        written = None if data is None else data.decode().replace(mark, " ")
    except UnicodeDecodeError:
        return data  # parts of characters have no text
    if written is None or _PART in text:
        return None
    if written != text and (written or text.strip()[:1] not in _SPECIAL_STARTS):
        raise inconsistent(f"the listed token {text!r:.40} has the bytes of {written!r:.40}")
    return written.encode()


def _checked(top: TopLogprobs, *, reasoned: bool = False) -> TopLogprobs:
    if not top.tokens:
        raise BackendError("unsupported", "the list of likeliest tokens is empty")
    if top.mass > 1 + MASS_SLACK:
        raise inconsistent(f"the listed tokens' probabilities add up to {top.mass:.4g}")
    if placeholders := count_placeholders([t.logprob for t in top.tokens]):
        raise inconsistent(f"the last {placeholders} tokens of a list share one placeholder value")
    if top.identity == "ids" and len(top._ids) != len(top.tokens):
        raise inconsistent("one token is listed twice", retryable=True)
    if reasoned or begins_with_reasoning(top.tokens[0].text) or begins_with_reasoning(top.sampled):
        problem = "the model reasons before it answers: its first token is not an answer"
        hint = "Switch its reasoning off on the server, or use a suite that reads texts"
        raise BackendError("unsupported", problem, hint=hint)
    return top


def count_placeholders(values: Sequence[float]) -> int:
    """How many values at a list's lower end are a placeholder for unknown values; 0 if there is none.

    With 16-bit logits equal values are legitimate, up to about a quarter of a list, since values get denser towards
    its end. So one number for a larger share of the list is a placeholder, and so is a number far below all others
    that several tokens share.
    """
    ordered = sorted(values, reverse=True)
    lowest = ordered[-1]
    last = sum(1 for _ in itertools.takewhile(lambda value: value == lowest, reversed(ordered)))
    if last == len(ordered):
        return 0
    if last >= max(_MIN_ALIKE, _SHARE_ALIKE * len(ordered)):
        return last
    gap = ordered[-last - 1] - lowest
    return last if last > 1 and lowest <= _FAR_BELOW and gap >= _WIDE_GAP else 0


def upper_bound(top: TopLogprobs) -> float:
    """The highest log-probability that a token outside the list can have, in nats.

    It is at most that of the last of the k likeliest, and at most the mass outside the list.
    A drawn token that is listed beyond the k has no rank and does not lower the bound.
    """
    # If a server's probabilities add up to more than 1, the mass outside the list seems too small.
    leftover = min(math.log(max(1.0 - top.mass, 0.0) + MASS_SLACK), 0.0)
    if not top.complete:
        return leftover
    *higher, lowest = sorted(top.tokens, key=lambda token: -token.logprob)
    if len(higher) >= top.requested_k:
        return min(higher[top.requested_k - 1].logprob, leftover)
    # A capped list may be the k - 1 likeliest tokens and the drawn one, which then has no rank.
    ranked = higher if lowest.text == top.sampled else [lowest]
    return min(ranked[-1].logprob if ranked else 0.0, leftover)


def scored(
    tokens: Sequence[TokenLogprob], boundary: Boundary, route: str, noise: float = 0.0, *, is_exact: bool = True
) -> ContinuationScore:
    """The sum over these tokens; a bound if not all are exact, or where one before them straddles the prompt's end.

    That one's probability given the prompt is unknown, and at most 1. ``noise`` (nats) widens a bound: the listed
    values behind it move by as much.
    """
    if is_exact and boundary != "straddled":
        return ContinuationScore.exact(tokens, boundary=boundary, route=route)
    high = min(math.fsum(token.logprob for token in tokens) + noise, 0.0)
    return ContinuationScore(None, None, high, "bounded", boundary, tuple(tokens), route)
