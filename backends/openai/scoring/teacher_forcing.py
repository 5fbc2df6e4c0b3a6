"""Scores from lists of next tokens: each token of a continuation is asked for after the ones before it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from backends.base import ContinuationScore, TokenLogprob
from backends.errors import BackendError
from backends.openai.scoring.censoring import bounded, upper_bound
from backends.openai.scoring.tokenizer import Joined, Piece, RemoteTokenizer
from backends.openai.scoring.top_logprobs import ListedToken, TopLogprobs

#: A first list of this length finds most tokens; the whole vocabulary weighs megabytes.
FIRST_K = 2000

AskIds = Callable[[tuple[int, ...], int], Awaitable[TopLogprobs]]
AskText = Callable[[str, int], Awaitable[TopLogprobs]]


@dataclass(frozen=True)
class Reach:
    """How far a server's lists reach, and how far its numbers move by themselves."""

    largest_k: int
    spread: float
    route: str


@dataclass(frozen=True)
class _Found:
    """One token's value, or its upper bound."""

    logprob: float
    exact: bool


class TeacherForcing:
    """Scores by the server's own tokens. Prefixes that continuations share are asked once.

    Parameters
    ----------
    tokenizer : RemoteTokenizer
    ask_ids : callable or None
        Lists after a prompt of token ids; None for a server that takes texts only.
    ask_text : callable
        Lists after a text.
    """

    def __init__(self, tokenizer: RemoteTokenizer, ask_ids: AskIds | None, ask_text: AskText, reach: Reach) -> None:
        self._tokenizer, self._ask_ids, self._ask_text, self._reach = tokenizer, ask_ids, ask_text, reach

    async def score(self, prompt: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        """One score a continuation: exact, or bounded where a list does not reach."""
        joined = [await self._tokenizer.joined(prompt, c) for c in continuations]
        wanted: dict[tuple[int, ...], set[Piece]] = {}
        for path in joined:
            for at in range(path.first, len(path.pieces)):
                wanted.setdefault(path.ids[:at], set()).add(path.pieces[at])
        pieces_of = {path.ids[:at]: path.pieces[:at] for path in joined for at in range(path.first, len(path.pieces))}
        starts = {path.ids[: path.first]: path.pieces[path.first].data[: path.straddle] for path in joined}
        lists: dict[tuple[int, ...], TopLogprobs | None] = {}
        for prefix in sorted(wanted, key=len):
            lists[prefix] = await self._list(pieces_of[prefix], wanted[prefix], starts.get(prefix, b""))
        return tuple(self._one(path, lists) for path in joined)

    async def _list(self, before: tuple[Piece, ...], wanted: set[Piece], start: bytes) -> TopLogprobs | None:
        """The list after these tokens, long enough if it can be; None where they cannot be forced.

        ``start``: the prompt's part of a token that straddles the boundary here.
        """
        ids = tuple(p.token_id for p in before)
        text = ""
        if self._ask_ids is None:
            try:
                text = b"".join(p.data for p in before).decode()
                alone = await self._tokenizer.pieces(text)
            except (UnicodeDecodeError, BackendError) as error:
                if isinstance(error, BackendError) and error.kind != "unsupported":
                    raise
                return None
            if tuple(p.token_id for p in alone) != ids:
                return None  # the text alone becomes other tokens: another condition
        listing: TopLogprobs | None = None
        for k in sorted({min(FIRST_K, self._reach.largest_k), self._reach.largest_k}):
            listing = await (self._ask_text(text, k) if self._ask_ids is None else self._ask_ids(ids, k))
            # A longer list helps a straddling token only where all that begins with its start can be summed.
            summed = not start or listing.is_whole or not _can_be_summed(listing, start)
            if summed and all(_entry(listing, piece) for piece in wanted):
                break
        return listing

    def _one(self, path: Joined, lists: dict[tuple[int, ...], TopLogprobs | None]) -> ContinuationScore:
        tokens: list[TokenLogprob] = []
        straddled_whole = True
        position = -len(path.pieces[path.first].data[: path.straddle].decode("utf-8", "replace"))
        for at in range(path.first, len(path.pieces)):
            piece, listing = path.pieces[at], lists[path.ids[:at]]
            if listing is None:
                break
            found = _found(listing, piece)
            if at == path.first and path.straddle:
                found, straddled_whole = _given_its_start(listing, piece, path.straddle, found)
            text = piece.data.decode("utf-8", "replace")
            start = position
            position += len(text)
            tokens.append(TokenLogprob(text, start, position, found.logprob, piece.token_id, found.exact))
        complete = len(tokens) == len(path.pieces) - path.first
        if complete and straddled_whole and all(t.exact for t in tokens):
            return ContinuationScore.exact(tokens, boundary=path.boundary, route=self._reach.route)
        high = math.fsum(t.logprob for t in tokens)
        return bounded(tuple(tokens), high, spread=self._reach.spread, boundary=path.boundary, route=self._reach.route)


def _entry(listing: TopLogprobs, piece: Piece) -> ListedToken | None:
    if listing.identity == "ids":
        return listing.by_id(piece.token_id)
    entries = listing.by_bytes(piece.data)
    return entries[0] if entries else None


def _found(listing: TopLogprobs, piece: Piece) -> _Found:
    if listing.identity == "ids":
        entry = listing.by_id(piece.token_id)
        return _Found(entry.logprob, True) if entry else _Found(upper_bound(listing), False)
    entries = listing.by_bytes(piece.data)
    if not entries:
        return _Found(upper_bound(listing), False)
    if len(entries) == 1 and listing.names(entries[0]):
        return _Found(entries[0].logprob, True)
    return _Found(_collided(listing, entries), False)


def _collided(listing: TopLogprobs, entries: Sequence[ListedToken]) -> float:
    """The most that one of several tokens of one string can have."""
    if listing.identity == "bytes":
        return max(t.logprob for t in entries)
    # The entry stands at the rank of its likeliest token, whose value is below the one before it.
    at = min(listing.tokens.index(t) for t in entries)
    return listing.tokens[at - 1].logprob if at else 0.0


def _given_its_start(listing: TopLogprobs, piece: Piece, straddle: int, found: _Found) -> tuple[_Found, bool]:
    """P(token | the text begins with the prompt's last bytes).

    An upper bound over a part of the vocabulary, and where shorter tokens spell those bytes too: what
    may follow these is not asked.
    """
    start = piece.data[:straddle]
    siblings = [t for t in listing.tokens if t.data is not None and t.data.startswith(start)]
    if not siblings:
        return _Found(0.0, False), False
    total = math.log(math.fsum(math.exp(t.logprob) for t in siblings))
    whole = listing.is_whole and _can_be_summed(listing, start)
    return _Found(min(found.logprob - total, 0.0), found.exact and whole), whole


def _can_be_summed(listing: TopLogprobs, start: bytes) -> bool:
    """Whether single tokens of known bytes are all that can begin with ``start``."""
    if listing.identity == "text" or listing.prefixes_of(start):
        return False
    return not any(t.data is None and _may_begin(t.text, start) for t in listing.tokens)


def _may_begin(text: str, start: bytes) -> bool:
    """Whether a token of unknown bytes may begin with ``start``: a "�" hides bytes from 0x80 on only."""
    head = text.partition("�")[0].encode()
    return head.startswith(start) or (start.startswith(head) and start[len(head)] >= 0x80)


class TextForcing:
    """Scores for a server that neither tells its tokens nor takes them: by the tokens' own bytes.

    A continuation that is one listed token is scored. One that is split is bounded: which split
    the model's tokenizer would take is not known, so the likeliest listed split counts.
    """

    def __init__(self, ask: AskText, reach: Reach, *, steps: int = 4) -> None:
        self._ask, self._reach, self._steps = ask, reach, steps

    async def score(self, start: str, continuations: Sequence[str]) -> tuple[ContinuationScore, ...]:
        """One score a continuation. ``start``: the text (or the answer's start) that it is appended to."""
        first = await self._ask(start, self._reach.largest_k)
        return tuple([await self._one(first, start, c) for c in continuations])

    async def _one(self, first: TopLogprobs, start: str, continuation: str) -> ContinuationScore:
        data = continuation.encode()
        route, spread = self._reach.route, self._reach.spread
        if not starts_a_token(start, continuation):
            raise BackendError(
                "unsupported",
                f"without a tokenizer it is not known where {continuation[:40]!r} starts after {start[-20:]!r}",
                hint="Put the space at the start of the continuation, not at the end of the prompt",
            )
        entries = first.by_bytes(data)
        if len(entries) == 1 and first.names(entries[0]):
            entry = entries[0]
            token = TokenLogprob(continuation, 0, len(continuation), entry.logprob, entry.token_id)
            return ContinuationScore.exact((token,), route=route)
        if entries:
            return bounded((), _collided(first, entries), spread=spread, boundary="clean", route=route)
        high = await self._highest(first, start, data, self._steps)
        return bounded((), high, spread=spread, boundary="clean", route=route)

    async def _highest(self, listing: TopLogprobs, before: str, data: bytes, steps: int) -> float:
        """The most that any split of ``data`` can have after ``before``."""
        entries = listing.by_bytes(data)
        highest = max((_collided(listing, [t]) for t in entries), default=upper_bound(listing))
        # The likeliest first: what cannot pass the highest so far need not be asked for.
        for token in sorted(listing.prefixes_of(data), key=lambda t: -t.logprob):
            if not listing.names(token):
                highest = max(highest, _collided(listing, [token]))
                continue
            if token.logprob <= highest:
                break
            rest = data[len(token.data if token.data is not None else token.text.encode()) :]
            try:
                further, remaining = before + data[: -len(rest)].decode(), rest.decode()
            except UnicodeDecodeError:
                further, remaining = "", ""
            # Forced as text, the token must stay the token that it is: only a clear edge is safe.
            if steps == 0 or not remaining or not starts_a_token(further, remaining):
                highest = max(highest, token.logprob)
                continue
            after = await self._ask(further, self._reach.largest_k)
            highest = max(highest, token.logprob + await self._highest(after, further, rest, steps - 1))
        return highest


def starts_a_token(before: str, text: str) -> bool:
    """Whether tokenizers surely put an edge between the two: at a space or line break that begins a word.

    Llama 3's and GPT-4's join a line break to the punctuation before it.
    """
    if not before or before[-1] == "\n":
        return not text[0].isspace()
    return (text[0] == " " and not before[-1].isspace()) or (text[0] == "\n" and before[-1].isalnum())
