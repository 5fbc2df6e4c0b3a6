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

    ``ids[:first]`` is the prompt side; ``pieces[first:]`` are the continuation's tokens.
    ``straddle`` is the number of the prompt's bytes that ``pieces[first]`` begins with, 0 unless
    the boundary is straddled.
    """

    pieces: tuple[Piece, ...]
    first: int
    boundary: Boundary
    straddle: int = 0

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids of prompt and continuation."""
        return tuple(p.token_id for p in self.pieces)

    def spans(self) -> Iterator[tuple[Piece, str, int, int]]:
        """The continuation's tokens: piece, text, and first and last character (exclusive), 0 = the continuation's."""
        position = -len(self.pieces[self.first].data[: self.straddle].decode("utf-8", "replace"))
        for piece in self.pieces[self.first :]:
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
                return Joined(together, first, "straddled", boundary - position)
            position += len(piece.data)
        raise BackendError("unsupported", "the server's tokens do not reach the continuation")

    async def _ask(self, text: str) -> list[Piece]:
        tokens = await self._tokens(text)
        if not DIALECTS[self.dialect].detokenize:
            return [Piece(t["id"], _piece_bytes(t["piece"])) for t in tokens]
        return [Piece(i, await self._decoded(i)) for i in tokens]

    async def _tokens(self, text: str) -> list[Any]:
        quirks = DIALECTS[self.dialect]
        body = {"model": self._model, quirks.text_field: text, **quirks.tokenize_options}
        return _tokens(await self._client.post(quirks.tokenize, body))

    async def _decoded(self, token_id: int) -> bytes:
        if token_id not in self._data:
            body = {"model": self._model, "tokens": [token_id]}
            answer = await self._client.post(DIALECTS[self.dialect].detokenize, body)
            text = answer.get("prompt", answer.get("text"))  # vLLM; llama-cpp-python and SGLang
            if not isinstance(text, str):
                raise BackendError("malformed", "the server's detokenise endpoint gives no text")
            self._data[token_id] = text.encode()
        return self._data[token_id]


def _tokens(answer: dict[str, Any]) -> list[Any]:
    tokens = answer.get("tokens")
    if not isinstance(tokens, list) or not tokens:
        raise BackendError("unsupported", "the server's tokenise endpoint gives no tokens")
    plain = all(isinstance(t, int) or (isinstance(t, dict) and isinstance(t.get("id"), int)) for t in tokens)
    if not plain:
        raise BackendError("malformed", "the server's tokenise endpoint gives no token ids")
    return tokens


def _piece_bytes(piece: Any) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


def _without_specials(pieces: Sequence[Piece], text: bytes) -> tuple[Piece, ...]:
    """The tokens, with no bytes for a leading BOS or for a space that the tokenizer adds."""
    whole = b"".join(p.data for p in pieces)
    if whole == text:
        return tuple(pieces)
    if pieces and whole[len(pieces[0].data) :] == text:
        return (Piece(pieces[0].token_id, b""), *pieces[1:])
    for at in (0, 1):
        if len(pieces) > at and pieces[at].data.startswith(b" "):
            rest = (Piece(pieces[at].token_id, pieces[at].data[1:]), *pieces[at + 1 :])
            if b"".join(p.data for p in rest) == text:
                return (*(Piece(p.token_id, b"") for p in pieces[:at]), *rest)
    raise BackendError("unsupported", "the server's tokens do not spell the text")
