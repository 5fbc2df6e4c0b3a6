"""Where a continuation starts among the tokens of prompt + continuation.

The two are tokenised together, as a model would read them, and the boundary is found by counting
bytes back from the end: the offsets that some tokenizers report leave out spaces.

    prompt  "The nurse said that "      continuation "herself"
    tokens  The| nurse| said| that| herself        " herself" straddles: it holds the prompt's space

A straddling token is scored by exact marginalisation. With e the last token boundary inside the
prompt and r the prompt's text after e,

    log P(continuation | prompt text) = log P(tokens after e) - log P(the text after e begins with r)

where the last term sums over every token that begins with r and, if shorter tokens can spell a prefix of r,
over all minimal tokenizations of r.

A space that the tokenizer inserts after a special token (`<|a|>` and `She` become `<|a|>|▁|S|he`) is there only
because of the continuation, so its token counts as the continuation's first.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from backends.base import Boundary
from backends.errors import BackendError

MOST_TOKENIZATIONS = 4096  # of a prompt's remainder; a request with more is refused
_MOST_KEPT = 256  # remainders whose tokens and tokenizations are kept


class Vocabulary:
    """The text of every token, as bytes.

    Parameters
    ----------
    pieces : sequence of bytes
        Text of each token id; empty for tokens without text.
    control : set of int
        Special tokens that are not visible text (``<|im_start|>``): they never begin a remainder.

    Attributes
    ----------
    beginning_with : callable
        Ids of all tokens whose text begins with some bytes; not to be written to.
    tokenizations : callable
        `prefix_tokenizations` of a remainder.
    """

    def __init__(self, pieces: Sequence[bytes], control: set[int]) -> None:
        self.pieces = pieces
        self._sorted = sorted((piece, i) for i, piece in enumerate(pieces) if piece and i not in control)
        self._ids_of: dict[bytes, list[int]] = {}
        for piece, i in self._sorted:
            self._ids_of.setdefault(piece, []).append(i)
        self._sorted_ids = np.array([i for _, i in self._sorted], dtype=np.int64)
        # The prompts of a suite end alike.
        self.beginning_with = functools.lru_cache(_MOST_KEPT)(self._beginning_with)
        self.tokenizations = functools.lru_cache(_MOST_KEPT)(partial(prefix_tokenizations, self))

    def _beginning_with(self, start: bytes) -> npt.NDArray[np.int64]:
        low = bisect.bisect_left(self._sorted, (start, -1))
        high = bisect.bisect_right(self._sorted, start, lo=low, key=lambda entry: entry[0][: len(start)])
        found = self._sorted_ids[low:high]  # a view: no memory of its own
        found.flags.writeable = False
        return found

    def proper_starts(self, text: bytes) -> Iterator[tuple[int, int]]:
        """(id, length) of all tokens whose text is a proper prefix of ``text``."""
        for length in range(1, len(text)):
            for i in self._ids_of.get(text[:length], ()):
                yield i, length


@dataclass(frozen=True, slots=True)
class PrefixTokenization:
    """The first tokens of a minimal tokenization: they spell the remainder up to ``rest``."""

    tokens: tuple[int, ...]
    rest: bytes


def prefix_tokenizations(vocabulary: Vocabulary, remainder: bytes) -> list[PrefixTokenization]:
    """All ways to spell a prefix of ``remainder`` with whole tokens, including the empty prefix.

    Each, followed by any token that begins with its ``rest``, is a minimal tokenization of the
    remainder. These events are mutually exclusive, and their union is "the text begins with ``remainder``".

    Raises
    ------
    BackendError
        ``unsupported``, when there are more than `MOST_TOKENIZATIONS`.
    """
    starts = [PrefixTokenization((), remainder)]
    for start in starts:  # the loop appends to it
        for token, length in vocabulary.proper_starts(start.rest):
            if len(starts) == MOST_TOKENIZATIONS:
                raise BackendError(
                    "unsupported",
                    f"a token straddles the boundary, and the prompt's part of it, {remainder!r}, "
                    f"has more than {MOST_TOKENIZATIONS} tokenizations",
                    hint="end the prompt, or start the continuation, at a space",
                )
            starts.append(PrefixTokenization((*start.tokens, token), start.rest[length:]))
    return starts


@dataclass(frozen=True, slots=True)
class Span:
    """A token's position in the continuation, in characters; negative: in the prompt."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SplitTokens:
    """The tokens of prompt + continuation, split at the boundary.

    Attributes
    ----------
    tokens : tuple of int
        All tokens, including those that the tokenizer puts in front.
    first : int
        Index of the first token that holds part of the continuation, or the space inserted before it.
    boundary : Boundary
    remainder : bytes
        The prompt's part of a straddling token, otherwise empty.
    spans : tuple of Span
        One per token from ``first`` on.
    """

    tokens: tuple[int, ...]
    first: int
    boundary: Boundary
    remainder: bytes
    spans: tuple[Span, ...]


def locate_continuation(
    prompt: str,
    continuation: str,
    prompt_tokens: Sequence[int],
    tokens: Sequence[int],
    pieces: Sequence[bytes],
    added: int,
    *,
    first_given: bool = False,
) -> SplitTokens:
    """Find where ``continuation`` starts in the tokens of ``prompt + continuation``.

    Parameters
    ----------
    prompt_tokens, tokens
        Tokens of the prompt alone and of both together.
    pieces
        Text of each of ``tokens``.
    added : int
        How many tokens the tokenizer put in front (BOS).
    first_given : bool
        Do not score the continuation's first token if nothing stands before it.

    Raises
    ------
    BackendError
        ``unsupported`` when the tokens do not spell the continuation (a tokenizer that rewrites
        the text); ``bad_request`` when its first token has nothing before it.
    """
    wanted = continuation.encode("utf-8", "surrogatepass")
    first, length = len(tokens), 0
    while length < len(wanted) and first > added:
        first -= 1
        length += len(pieces[first])
    tail = b"".join(pieces[first:])
    text = (prompt + continuation).encode("utf-8", "surrogatepass")
    kept = tuple(tokens[: len(prompt_tokens)]) == tuple(prompt_tokens)
    spaced = kept and _begins_with_added_space(prompt, wanted, pieces, len(prompt_tokens), added)
    if spaced:
        first, length = len(prompt_tokens), len(wanted) + 1
        tail = b" " + wanted
    # Some tokenizers put one space in front of every text.
    spelt = spaced or text.endswith(tail) or (tail == b" " + text and first == added)
    if length < len(wanted) or not spelt:
        raise BackendError(
            "unsupported",
            f"the tokenizer rewrites the text: the tokens spell {tail!r} where the continuation is {continuation!r}",
            hint="write the continuation as the tokenizer keeps it",
        )
    remainder = tail[: length - len(wanted)] if prompt and not spaced else b""
    spans = _spans(pieces[first:], length - len(wanted))
    if first == 0 and first_given:
        first, spans = 1, spans[1:]
    if first == 0:
        raise BackendError(
            "bad_request",
            "the continuation's first token has no token before it: this model has no beginning-of-text token",
            hint="give a prompt that is not empty",
        )
    boundary: Boundary
    if remainder:
        boundary = "straddled"
    elif kept and first == len(prompt_tokens):
        boundary = "clean"
    else:
        boundary = "merged"
    return SplitTokens(tuple(tokens), first, boundary, remainder, spans)


def _begins_with_added_space(prompt: str, continuation: bytes, pieces: Sequence[bytes], start: int, added: int) -> bool:
    """Whether the pieces from ``start`` on, after the prompt's own, spell the continuation with a space in front.

    The prompt's last piece must reach the prompt's end: if a tokenizer drops a text's trailing space, that space
    belongs to the prompt although its tokens do not hold it.
    """
    if b"".join(pieces[start:]) != b" " + continuation:
        return False
    if not prompt:
        return start == added
    before = pieces[start - 1] if start else b""
    return before != b"" and prompt.encode("utf-8", "surrogatepass").endswith(before)


def _spans(pieces: Sequence[bytes], before: int) -> tuple[Span, ...]:
    """Character spans of pieces that begin ``before`` bytes ahead of the continuation."""
    text = b"".join(pieces)
    # Which character each byte belongs to: a byte 0b10xxxxxx continues the one before it.
    character = range(len(text)) if text.isascii() else np.cumsum([byte & 0xC0 != 0x80 for byte in text])
    origin = int(character[before]) if before < len(text) else 0
    spans, start = [], 0
    for piece in pieces:
        end = start + len(piece)
        if piece:
            low, high = int(character[start]) - origin, int(character[end - 1]) - origin + 1
        else:
            low = high = int(character[start - 1]) - origin + 1 if start else 0
        spans.append(Span(piece.decode("utf-8", "replace"), low, high))
        start = end
    return tuple(spans)
