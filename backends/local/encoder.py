"""A model's tokenizer as scoring and generation need it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from backends.base import Prompt
from backends.errors import BackendError
from backends.local.boundary import Vocabulary
from backends.local.chat_template import render_chat


def refuse_halves(text: str) -> None:
    """Refuse a text with half a character, which has no bytes. Raises `BackendError`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = "the text holds half a character (a lone surrogate)"
        raise BackendError("bad_request", problem, hint="remove it") from None


class TextEncoder(ABC):
    """Texts to tokens and back; chat messages through the model's own template.

    Parameters
    ----------
    chat_template : str or None
        None if the model has none.
    enable_thinking : bool, optional
        As in `render_chat`.

    Attributes
    ----------
    kept_endings : dict
        What was planned for the ends of the last batch of prompts, see `backends.local.plans`.
    """

    def __init__(self, chat_template: str | None, enable_thinking: bool | None) -> None:
        self.chat_template, self._enable_thinking = chat_template, enable_thinking
        self._pieces: dict[int, bytes] = {}
        self.kept_endings: dict[Hashable, Any] = {}

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, with exactly one BOS in front if the model wants it, whatever a chat's template writes.

        Raises `BackendError` for a text that the tokenizer cannot spell (`refuse_unknown`).
        """

    @abstractmethod
    def added(self, tokens: Sequence[int], text: str) -> int:
        """How many tokens `encode` put in front of the text's own."""

    @abstractmethod
    def visible(self, token: int) -> bytes:
        """A token's text as a reader sees it: empty for a control token."""

    @property
    @abstractmethod
    def vocabulary(self) -> Vocabulary:
        """All tokens' texts; made when first needed."""

    @abstractmethod
    def _special_tokens(self) -> Mapping[str, str]:
        """The texts of ``bos_token``, ``eos_token`` and whatever else the tokenizer names, for the template."""

    @abstractmethod
    def _read_piece(self, token: int) -> bytes:
        """`piece`, from the tokenizer."""

    @property
    @abstractmethod
    def unknown(self) -> Mapping[int, str]:
        """The tokens that stand for whatever the vocabulary lacks, with their texts."""

    @property
    @abstractmethod
    def control(self) -> Sequence[str]:
        """The texts that the tokenizer takes for control tokens."""

    def refuse_unknown(self, text: str, tokens: Sequence[int]) -> None:
        """Refuse a text of which a part has no token: all texts with such a part would be the same to the model."""
        if self.unknown.keys().isdisjoint(tokens) or any(name in text for name in self.unknown.values()):
            return
        name = next(iter(self.unknown.values()))
        problem = f"the tokenizer has no token for a part of this text, which becomes {name}"
        raise BackendError("bad_request", problem, hint="write it in signs that the model knows")

    def cut(self, text: str) -> int:
        """Where a text may be cut so that both parts have the tokens of the whole, whatever follows; 0: nowhere known.

        The tokens of the second part are those of `encode_endings`.
        """
        return 0

    def encode_alike(self, texts: Sequence[str]) -> list[list[int]]:
        """As `encode`, in less time for texts that begin alike."""
        return self.encode(texts)

    def encode_endings(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens that texts have behind a `cut`, whatever is before it."""
        raise NotImplementedError

    def keeps_head(self, head: Sequence[int]) -> bool:
        """Whether the tokens before a cut are enough that what follows them changes nothing in front of them."""
        return True

    def text(self, prompt: Prompt) -> str:
        """The prompt as text. Raises `BackendError` for a chat if the model has no template."""
        if isinstance(prompt, str):
            refuse_halves(prompt)
            return prompt
        if self.chat_template is None:
            raise BackendError("unsupported", "this model has no chat template", hint='use prompt_format="raw"')
        for message in prompt:
            refuse_halves(message.content)
            if message.role == "user" and (name := next((one for one in self.control if one in message.content), "")):
                problem = f"a user's text contains {name}, which the tokenizer takes for a control token"
                raise BackendError("bad_request", problem, hint="leave it out, or ask with prompt_format='raw'")
        return render_chat(self.chat_template, prompt, self._special_tokens(), self._enable_thinking)

    def render(self, prompt: Prompt) -> list[int]:
        """Tokens of a prompt, ready to be continued."""
        return self.encode([self.text(prompt)])[0]

    def piece(self, token: int) -> bytes:
        """A token's text, special tokens as they are written."""
        if token not in self._pieces:
            self._pieces[token] = self._read_piece(token)
        return self._pieces[token]
