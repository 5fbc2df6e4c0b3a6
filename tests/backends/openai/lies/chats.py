"""Servers of the word model whose chats are continued from an assistant's start, or shown as rendered text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tests.backends.openai.lies.server import HONEST, Asked, Lie, Style, WordServer, rendered_chat
from tests.backends.openai.raw_server import Reply

Turns = list[dict[str, Any]]


class PrefillServer(WordServer):
    """Continues an assistant's start, in chats for which ``continues`` holds; else the answer begins anew."""

    def __init__(self, style: Style, seed: int, lie: Lie = HONEST, *, continues: Callable[[Turns], bool]) -> None:
        super().__init__(style, seed, lie)
        self._continues = continues

    def _asked(self, path: str, sent: dict[str, Any]) -> Asked | None:
        asked = super()._asked(path, sent)
        turns = sent.get("messages", [])
        if asked is None or turns[-1]["role"] != "assistant" or not self._continues(turns):
            return asked
        text = rendered_chat(turns[:-1]) + turns[-1]["content"]
        return dataclasses.replace(asked, text=text, tokens=self.tokens(text))


class RenderingServer(WordServer):
    """As llama.cpp: the whole vocabulary, and ``/apply-template``, which renders ``shown`` of a chat's turns."""

    def __init__(self, seed: int, *, shown: Callable[[Turns], Turns] = lambda turns: turns) -> None:
        super().__init__("whole", seed)
        self._shown = shown

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/apply-template":
            return Reply({"prompt": rendered_chat(self._shown(sent["messages"]))})
        if path != "/v1/chat/completions":
            return super().reply(path, sent)
        asked = {name: value for name, value in sent.items() if name != "messages"}
        if asked.get("logprobs"):
            asked["logprobs"] = asked.pop("top_logprobs", 1)
        reply = super().reply("/v1/completions", {**asked, "prompt": rendered_chat(sent["messages"])})
        for choice in reply.body.get("choices", ()):
            choice["message"] = {"role": "assistant", "content": choice.pop("text")}
        return reply
