"""A server that tells one lie, and a small known model behind it.

The honest server knows words, numbers and punctuation as tokens; its next-token distribution is a
fixed function of the token before. It serves ``/v1/completions`` with lists, echo, and text
prompts, as OpenAI's own did. A lie changes one answer of it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

from tests.backends.openai.raw_server import RawServer, Reply

MODEL = "honest-1"
_WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]", re.S)
WORDS = (
    *(" Male", " Female", " doctor", " nurse", " Wednesday", " Thursday", " Friday", " Saturday", " Tuesday", " is"),
    *(" Paris", " and", " the", " capital", " of", " Italy", " Rome", " France", ",", ".", "\n", ":", " A"),
)


def tokens_of(text: str) -> list[str]:
    return _WORD.findall(text)


def distribution(before: str) -> dict[str, float]:
    """log P(next token | token before), over a closed vocabulary."""
    last = (tokens_of(before) or [""])[-1]
    weights = {w: 1 + hashlib.sha256(f"{last}|{w}".encode()).digest()[0] / 16 for w in WORDS}
    total = math.fsum(weights.values())
    return {w: math.log(x / total) for w, x in weights.items()}


Lie = Callable[[dict[str, Any], Reply], None]


class Liar(RawServer):
    """Honest until ``lie`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.lie: Lie | None = None
        self._numbers = itertools.count()

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        reply = self.honest(path, sent)
        if self.lie is not None and reply.status == 200:
            self.lie(sent, reply)
        return reply

    def honest(self, path: str, sent: dict[str, Any]) -> Reply:
        """The truthful reply to one request."""
        if path != "/v1/completions" or not isinstance(sent.get("prompt"), str):
            return Reply({"error": {"message": "no such route", "code": "not_found"}}, 404)
        if sent["model"] != MODEL:
            return Reply({"error": {"message": "no such model", "code": "model_not_found"}}, 404)
        prompt = sent["prompt"]
        k = min(int(sent.get("logprobs", 0)), 20)
        nexts = sorted(distribution(prompt).items(), key=lambda item: -item[1])
        answer = nexts[0][0]
        tokens, values, tops, offsets = [answer], [nexts[0][1]], [dict(nexts[:k])], [len(prompt)]
        if sent.get("echo"):
            own = tokens_of(prompt)
            starts = [0, *itertools.accumulate(map(len, own))][: len(own)]
            before = ["".join(own[:i]) for i in range(len(own))]
            tokens, offsets = [*own, *tokens], [*starts, *offsets]
            known = [distribution(b).get(t, -15.0) for b, t in zip(before, own, strict=True)]
            values = [None, *known[1:], *values]  # type: ignore[list-item]
            tops = [None, *[{} for _ in own[1:]], *tops]  # type: ignore[list-item]
        choice = {
            "index": 0,
            "text": (prompt if sent.get("echo") else "") + answer,
            "finish_reason": "length",
            "logprobs": {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets},
        }
        count = len(tokens_of(prompt))
        usage = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        number = f"cmpl-{next(self._numbers)}"
        return Reply({"id": number, "model": MODEL, "choices": [choice], "usage": usage})
