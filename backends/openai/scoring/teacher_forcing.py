"""Scores from lists of next tokens: for each token of a continuation, the list after the tokens before it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.http.retries import together
from backends.openai.scoring.next_tokens import Sent
from backends.openai.scoring.tokenizer import Joined, Piece, RemoteTokenizer
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs, bounded, upper_bound

#: Length of the first list requested. It holds most tokens; a list of the whole vocabulary takes megabytes.
FIRST_K = 2000

Ask = Callable[[Sent, int], Awaitable[TopLogprobs]]


@dataclass(frozen=True)
class Reach:
    """How long a server's lists are, and how far its numbers move when a question is repeated."""

    largest_k: int
    repeat_noise: float
    route: str


class TeacherForcing:
    """Scores by the server's own tokens. Each prefix that continuations share is requested once.

    Parameters
    ----------
    tokenizer : RemoteTokenizer
    ask : callable
        Lists after a text or token ids.
    by_ids : bool
        Whether token ids are accepted.
    """

    def __init__(self, tokenizer: RemoteTokenizer, ask: Ask, reach: Reach, *, by_ids: bool) -> None:
        self._tokenizer, self._ask, self._reach, self._by_ids = tokenizer, ask, reach, by_ids

    async def score(self, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        """One score per continuation: exact, or bounded if a list is too short."""
        paths = [await self._tokenizer.joined(prompt, c) for c in continuations]
        wanted: dict[tuple[int, ...], set[Piece]] = {}
        pieces_of: dict[tuple[int, ...], tuple[Piece, ...]] = {}
        for path in paths:
            for at in range(path.first, len(path.pieces)):
                wanted.setdefault(path.ids[:at], set()).add(path.pieces[at])
                pieces_of[path.ids[:at]] = path.pieces[:at]
        starts = {path.ids[: path.first]: path.pieces[path.first].data[: path.straddle] for path in paths}
        found = await together(self._list(pieces_of[p], pieces, starts.get(p, b"")) for p, pieces in wanted.items())
        lists = dict(zip(wanted, found, strict=True))
        return tuple(self._score(path, lists) for path in paths)

    async def _list(self, before: tuple[Piece, ...], wanted: set[Piece], start: bytes) -> TopLogprobs | None:
        """The list after these tokens, as long as needed if possible; None if they cannot be forced.

        ``start``: the prompt's part of a token that straddles the boundary here.
        """
        sent: Sent = tuple(p.token_id for p in before)
        if not self._by_ids:
            try:
                text = b"".join(p.data for p in before).decode()
                alone = await self._tokenizer.ids(text)
            except UnicodeDecodeError:
                return None
            if tuple(alone) != sent:
                return None  # alone, the text is tokenised differently: a different condition
            sent = text
        top: TopLogprobs | None = None
        for k in sorted({min(FIRST_K, self._reach.largest_k), self._reach.largest_k}):
            top = await self._ask(sent, k)
            # A longer list helps a straddling token only if everything that begins with its start can be summed.
            summed = not start or top.is_whole or not _can_be_summed(top, start)
            if summed and all(top.entries(piece.data, piece.token_id) for piece in wanted):
                break
        return top

    def _score(self, path: Joined, lists: dict[tuple[int, ...], TopLogprobs | None]) -> ContinuationScore:
        tokens: list[TokenLogprob] = []
        straddled_whole = True
        for at, (piece, text, start, end) in enumerate(path.spans(), path.first):
            top = lists[path.ids[:at]]
            if top is None:
                break
            value, is_exact = _value_of(top, piece.data, piece.token_id)
            if at == path.first and path.straddle:
                before, straddled_whole = _log_of_start(top, piece.data[: path.straddle])
                value, is_exact = min(value - before, 0.0), is_exact and straddled_whole
            tokens.append(TokenLogprob(text, start, end, value, piece.token_id, is_exact))
        complete = len(tokens) == len(path.pieces) - path.first
        if complete and straddled_whole and all(t.exact for t in tokens):
            return ContinuationScore.exact(tokens, boundary=path.boundary, route=self._reach.route)
        high = math.fsum(t.logprob for t in tokens)
        return bounded(
            tuple(tokens), high, repeat_noise=self._reach.repeat_noise, boundary=path.boundary, route=self._reach.route
        )


def _value_of(top: TopLogprobs, data: bytes, token_id: int | None = None) -> tuple[float, bool]:
    """A token's log-probability and True, or its upper bound and False."""
    entries = top.entries(data, token_id)
    if not entries:
        return upper_bound(top), False
    if len(entries) == 1 and top.identifies(entries[0]):
        return entries[0].logprob, True
    return _collided(top, entries), False


def _collided(top: TopLogprobs, entries: Sequence[ListedToken]) -> float:
    """The highest log-probability that one of several tokens with the same string can have."""
    if top.identity == "bytes":
        return max(t.logprob for t in entries)
    # The entry has the rank of its likeliest token, which is below the entry before it. If the order means
    # nothing, its value is its own.
    at = min(top.tokens.index(t) for t in entries)
    return max(top.tokens[at - 1].logprob, *(t.logprob for t in entries)) if at else 0.0


def _log_of_start(top: TopLogprobs, start: bytes) -> tuple[float, bool]:
    """log P(the text goes on with the prompt's last bytes, ``start``), and whether it is exact or a lower bound.

    It is a bound if part of the vocabulary is listed, or if shorter tokens can spell those bytes too: what may follow
    those tokens is not requested.
    """
    siblings = [t for t in top.tokens if t.data is not None and t.data.startswith(start)]
    if not siblings:
        return -math.inf, False
    total = math.log(math.fsum(math.exp(t.logprob) for t in siblings))
    return total, top.is_whole and _can_be_summed(top, start)


def _can_be_summed(top: TopLogprobs, start: bytes) -> bool:
    """Whether only single tokens of known bytes can begin with ``start``."""
    if top.identity == "text" or top.prefixes_of(start):
        return False
    return not any(t.data is None and _may_begin(t.text, start) for t in top.tokens)


def _may_begin(text: str, start: bytes) -> bool:
    """Whether a token of unknown bytes may begin with ``start``: "�" only stands for bytes from 0x80 on."""
    head = text.partition("�")[0].encode()
    return head.startswith(start) or (start.startswith(head) and start[len(head)] >= 0x80)


def score_by_first_token(
    top: TopLogprobs, reach: Reach, start: str, continuations: Sequence[str]
) -> tuple[ContinuationScore, ...]:
    """Scores for a server that neither shows its tokens nor accepts them: by the bytes of the first listed tokens.

    A continuation that is a single listed token is scored. One that is split is at most as likely as the likeliest
    token that it may start with. ``start``: the text (or the assistant prefill) that it is appended to.
    """
    return tuple(_by_first_token(top, reach, start, continuation) for continuation in continuations)


def _by_first_token(top: TopLogprobs, reach: Reach, start: str, continuation: str) -> ContinuationScore:
    data = continuation.encode()
    if not starts_a_token(start, continuation):
        raise BackendError(
            "unsupported",
            f"without a tokenizer it is unknown which token of {continuation[:40]!r} follows {start[-20:]!r}",
            hint="Put the space at the start of the continuation, not at the end of the prompt",
        )
    value, is_exact = _value_of(top, data)
    if is_exact:
        (entry,) = top.entries(data)
        token = TokenLogprob(continuation, 0, len(continuation), value, entry.token_id)
        return ContinuationScore.exact((token,), route=reach.route)
    if not top.entries(data):
        starts = top.prefixes_of(data)
        value = max([value, *(t.logprob if top.identifies(t) else _collided(top, [t]) for t in starts)])
    return bounded((), value, repeat_noise=reach.repeat_noise, boundary="clean", route=reach.route)


def starts_a_token(before: str, text: str) -> bool:
    """Whether every tokenizer puts a token boundary between the two: at a space or line break that begins a word.

    The tokenizers of Llama 3 and GPT-4 join a line break to the punctuation before it.
    """
    if not before or before[-1] == "\n":
        return not text[0].isspace()
    return (text[0] == " " and not before[-1].isspace()) or (text[0] == "\n" and before[-1].isalnum())
