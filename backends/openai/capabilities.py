"""What a server has been proven to do: how requests are sent to it, and which of this may change an answer."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

from backends.base import Capability, Form, Prompt
from backends.openai.quirks import Dialect, LimitName

TextRoute = Literal["prompt_logprobs", "echo", "top_k_ids", "top_k", "sampled"]
ChatRoute = Literal["rendered", "chat_prefill", "chat_first", "sampled"]
Prefill = Literal["continued", "flags"]

#: About how tokenizers cut a text: words with the space before them, numbers, marks; long words in parts.
PIECE = re.compile(r"\s?[^\W\d_]{1,12}|\s?\d{1,3}|\s?[^\w\s]+|\s+|_+")
#: Stands among the refused parameters for a temperature of 0 alone.
ZERO_TEMPERATURE = "temperature 0"
#: Entries of lists that are compared.
_COMPARED = 100
#: The fields that may change an answer.
_ANSWER_FIELDS = (
    *("text_route", "chat_route", "completions", "family", "prefill", "seed_works", "answered_model"),
    *("largest_k", "largest_chat_k", "temperature"),
)
#: Parameters whose absence changes answers. A refused ``stop`` is applied by this backend, a seed has a field of its
#: own, and system messages had no answers at all before they were prepended to the user's.
_REFUSED_FIELDS = {"temperature", "top_p", ZERO_TEMPERATURE}


class ServerCapabilities(BaseModel):
    """What a server can do: the look fills it in, and the client reads it with every request."""

    model_config = ConfigDict(extra="forbid")

    #: The best proven routes; None if there is none.
    text_route: TextRoute | None = None
    chat_route: ChatRoute | None = None
    #: Which endpoints answer.
    completions: bool = False
    chat: bool = False
    #: Which dialect of extra endpoints and options the server understands.
    family: Dialect | None = None
    #: The longest list of next tokens that it gives; larger than the vocabulary if it gives all tokens.
    largest_k: int = 0
    largest_chat_k: int = 0
    #: How far the server's own numbers move when a request is repeated, in nats.
    repeat_noise: float = 0.0
    #: How it continues a last assistant turn.
    prefill: Prefill | None = None
    #: The temperature at which its lists are the model's own probabilities.
    temperature: float = 0.0
    #: Whether a seed determines what is drawn.
    seed_works: bool = False
    #: How many answers one request gives by ``n``; 1 if that is ignored or refused.
    choices: int = 1
    #: Whether each response carries an id of its own.
    unique_response_ids: bool = False
    #: The names of the model and, behind a gateway, of its provider in the responses.
    answered_model: str | None = None
    answered_provider: str | None = None
    #: Chat parameters that are left out; ``system`` means turns of that role, which are prepended to the next user
    #: turn, and `ZERO_TEMPERATURE` a temperature of 0 alone.
    refused: tuple[str, ...] = ()
    #: Its name for the limit on generated tokens in chats.
    limit_name: LimitName = "max_tokens"
    #: Whether it reasons before it answers a chat; and whether its template opens the reasoning, so that a text only
    #: holds its end.
    reasons: bool = False
    opened_before: bool = False
    #: The fewest tokens that a request may ask for: of a longer answer, the first token's list is read.
    min_tokens: int = 1
    #: Of its prompts (`PIECE`), and around the turns of a chat, by its own counts; 0 if it gives none.
    tokens_per_piece: float = 0.0
    template_tokens: float = 0.0
    #: Of an answer, its thought included, on average; 0 if unknown.
    answer_tokens: float = 0.0

    @property
    def routes(self) -> tuple[TextRoute | ChatRoute | None, ...]:
        """The route for texts and the one for chats."""
        return self.text_route, self.chat_route

    @property
    def named_routes(self) -> list[str]:
        """Those that there are, by what they score."""
        return [f"{kind}s by {route}" for kind, route in zip(("text", "chat"), self.routes, strict=True) if route]

    def route_of(self, prompt: Prompt) -> TextRoute | ChatRoute | None:
        """The route of a prompt: of a chat that is rendered, that of its text."""
        route = self.text_route if isinstance(prompt, str) else self.chat_route
        return self.text_route if route == "rendered" else route

    def compared(self, *, texts: bool) -> int:
        """How many entries of the longest list of texts, or of chats, are asked for where lists are compared."""
        return min(self.largest_k if texts else self.largest_chat_k, _COMPARED)

    @property
    def absent_forms(self) -> dict[Capability | Form, str]:
        """Form of prompt that it cannot answer → why."""
        absent: dict[Capability | Form, str] = {}
        if self.text_route is None and self.chat_route is not None:
            absent["score_text"] = "it scores answers in chats alone"
        if self.chat_route is None and self.text_route is not None:
            absent["score_chat"] = "it scores texts alone"
        if self.chat and self.prefill is None:
            absent["generate_prefill"] = "it does not continue an assistant prefill"
        if self.chat_route == "chat_first" or (self.chat_route == "sampled" and self.prefill is None):
            first = "lists of an answer's first token, which only bound a longer start asked for"
            scores = first if self.chat_route == "chat_first" else "drawn answers"
            absent["score_prefill"] = f"it does not continue an assistant prefill, and scores come from {scores}"
        return absent

    def fingerprint(self) -> dict[str, str | int | float | bool | None]:
        """The fields that may change an answer."""
        found = {name: getattr(self, name) for name in _ANSWER_FIELDS}
        refused = " ".join(sorted(_REFUSED_FIELDS & set(self.refused)))
        return {**found, "refused": refused, "provider": self.answered_provider}
