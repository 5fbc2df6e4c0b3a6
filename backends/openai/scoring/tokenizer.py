"""The server's own tokenizer, if it offers one, and where a continuation starts in its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from backends.base import Boundary
from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.openai.quirks import DIALECTS, Dialect

_CACHED_TEXTS = 4096


@dataclass(frozen=True, slots=True)
class Piece:
    """One token: its id and its bytes (none for a BOS token)."""

    token_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """Prompt and continuation, tokenised together.

    ``pieces[first_scored:]`` are tokens of the continuation alone. One that straddles the boundary stands before them,
    and ``skipped`` is its part of the continuation.
    """

    pieces: tuple[Piece, ...]
    first_scored: int
    boundary: Boundary
    skipped: str = ""

    def spans(self) -> Iterator[tuple[Piece, str, int, int]]:
        """The continuation's own tokens: piece, text, and first and last character (exclusive) in the continuation."""
        position = len(self.skipped)
        for piece in self.pieces[self.first_scored :]:
            text = piece.data.decode("utf-8", "replace")
            yield piece, text, position, position + len(text)
            position += len(text)


class RemoteTokenizer:
    """Tokenises a prompt as the server does, BOS included."""

    def __init__(self, client: HttpClient, model: str, dialect: Dialect) -> None:
        self._client, self._model, self.dialect = client, model, dialect
        self._texts: dict[str, tuple[Piece, ...]] = {}
        self._data: dict[int, bytes] = {}

    async def pieces(self, text: str) -> tuple[Piece, ...]:
        """The tokens of ``text``. Raises ``unsupported`` if their bytes do not add up to the text."""
        if text not in self._texts:
            if len(self._texts) >= _CACHED_TEXTS:
                self._texts.pop(next(iter(self._texts)))
            self._texts[text] = _without_specials(await self._ask(text), text.encode())
        return self._texts[text]

    async def ids(self, text: str) -> list[int]:
        """The token ids of ``text``, BOS included, without requests for their texts."""
        if text in self._texts:
            return [piece.token_id for piece in self._texts[text]]
        return [token["id"] if isinstance(token, dict) else token for token in await self._tokens(text)]

    async def joined(self, prompt: str, continuation: str) -> Joined:
        """Where the continuation starts when both are tokenised together."""
        together = await self.pieces(prompt + continuation)
        alone = tuple(p.token_id for p in await self.pieces(prompt))
        boundary, position = len(prompt.encode()), 0
        for first, piece in enumerate(together):
            if position == boundary and piece.data:
                clean = tuple(p.token_id for p in together[:first]) == alone
                return Joined(together, first, "clean" if clean else "merged")
            if position < boundary < position + len(piece.data):
                skipped = piece.data[boundary - position :].decode("utf-8", "replace")
                return Joined(together, first + 1, "straddled", skipped)
            position += len(piece.data)
        raise BackendError("unsupported", "the server's tokens do not reach the continuation")

    async def _ask(self, text: str) -> list[Piece]:
        tokens = await self._tokens(text)
        if DIALECTS[self.dialect].detokenize:
            return [Piece(i, await self._decoded(i)) for i in tokens]
        pieces = ((token["id"], token["piece"]) for token in tokens)
        return [Piece(i, piece.encode() if isinstance(piece, str) else bytes(piece)) for i, piece in pieces]

    async def _tokens(self, text: str) -> list[Any]:
        quirks = DIALECTS[self.dialect]
        body = {"model": self._model, quirks.text_field: text, **quirks.tokenize_options}
        tokens = (await self._client.post(quirks.tokenize, body)).get("tokens")
        if not isinstance(tokens, list) or not tokens:
            raise BackendError("unsupported", "the server's tokenise endpoint gives no tokens")
        if not all(isinstance(token.get("id") if isinstance(token, dict) else token, int) for token in tokens):
            raise BackendError("malformed", "the server's tokenise endpoint gives no token ids")
        return tokens

    async def _decoded(self, token_id: int) -> bytes:
        if token_id not in self._data:
            body = {"model": self._model, "tokens": [token_id]}
            answer = await self._client.post(DIALECTS[self.dialect].detokenize, body)
            text = answer.get("prompt", answer.get("text"))  # vLLM; llama-cpp-python and SGLang
            if not isinstance(text, str):
                raise BackendError("malformed", "the server's detokenise endpoint gives no text")
            self._data[token_id] = text.encode()
        return self._data[token_id]


def _without_specials(pieces: Sequence[Piece], text: bytes) -> tuple[Piece, ...]:
    """The tokens, with no bytes for a leading BOS or for a space that the tokenizer adds."""
    bare = [Piece(piece.token_id, b"") for piece in pieces[:1]]
    spaces = (at for at in (0, 1) if len(pieces) > at and pieces[at].data.startswith(b" "))
    trimmed = ((*bare[:at], Piece(pieces[at].token_id, pieces[at].data[1:]), *pieces[at + 1 :]) for at in spaces)
    for spelled in (tuple(pieces), (*bare, *pieces[1:]), *trimmed):
        if b"".join(piece.data for piece in spelled) == text:
            return spelled
    raise BackendError("unsupported", "the server's tokens do not spell the text")
