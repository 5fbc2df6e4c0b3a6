"""A server of chats, and a small known model behind it: its next-token distribution is a function of the question."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from random import Random
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


def draw(logprobs: dict[str, float], temperature: float, random: Random) -> str:
    """One of the words; the likeliest at temperature 0."""
    if temperature == 0:
        return max(logprobs, key=lambda word: logprobs[word])
    weights = [math.exp(value / temperature) for value in logprobs.values()]
    return random.choices(list(logprobs), weights)[0]


class ChatLiar(RawServer):
    """A server of chats only, with lists of 20. ``weights`` is its model: which one answers can be exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = "one"
        self._numbers = itertools.count()
        self._random = Random(0)

    def after(self, question: str) -> dict[str, float]:
        """log P(first token of the answer). All models know the days of the week."""
        first = "Wednesday" if "Tuesday" in question else "Male"
        words = [first, "Female", "Yes", "No", *"0123456789", *(word.strip().lower() for word in WORDS if word.strip())]
        sure = {"Wednesday": 1e5}
        read = f"{self.weights}|{question}|"
        weights = {w: sure.get(w, 1 + hashlib.sha256(f"{read}{w}".encode()).digest()[0] / 16) for w in words}
        total = math.fsum(weights.values())
        return {w: math.log(x / total) for w, x in weights.items()}

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path != "/v1/chat/completions" or sent["model"] != MODEL:
            return Reply({"error": {"message": "no such route or model", "code": "not_found"}}, 404)
        if sent.get("top_logprobs", 0) > 20:
            return Reply({"error": {"message": "top_logprobs must be at most 20"}}, 400)
        question = "\n".join(turn["content"] for turn in sent["messages"])
        after = self.after(question)
        nexts = sorted(after.items(), key=lambda item: -item[1])
        entries = [{"token": w, "bytes": list(w.encode()), "logprob": v} for w, v in nexts]
        choices: list[dict[str, Any]] = []
        for index in range(sent.get("n", 1)):
            answer = draw(after, sent.get("temperature", 1), self._random)
            choice: dict[str, Any] = {"index": index, "message": {"role": "assistant", "content": answer}}
            choice |= {"finish_reason": "length", "logprobs": None}
            if sent.get("logprobs"):
                own = next(entry for entry in entries if entry["token"] == answer)
                choice["logprobs"] = {"content": [{**own, "top_logprobs": entries[: sent["top_logprobs"]]}]}
            choices.append(choice)
        count = len(tokens_of(question)) + 4
        usage = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        return Reply({"id": f"chat-{next(self._numbers)}", "model": MODEL, "choices": choices, "usage": usage})
