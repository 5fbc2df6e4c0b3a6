"""A server that tells one lie, and a small known model behind it.

The honest server knows words, numbers and punctuation as tokens; its next-token distribution is a
fixed function of the text before. It serves ``/v1/completions`` with lists, echo, and text
prompts, as OpenAI's own did. A lie changes one answer of it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from tests.backends.openai.raw_server import RawServer, Reply

MODEL = "honest-1"
_WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]+|[^A-Za-z0-9]", re.S)
WORDS = (
    *(" Male", " Female", " doctor", " nurse", " Wednesday", " Thursday", " Friday", " Saturday", " Tuesday", " is"),
    *(" Paris", " and", " the", " capital", " of", " Italy", " Rome", " France", ",", ".", "\n", ":", " A"),
)
#: Tokens. Stores of earlier versions know this model by the last token of its canary.
_SHORT = 4


def tokens_of(text: str) -> list[str]:
    return _WORD.findall(text)


def distribution(before: str) -> dict[str, float]:
    """log P(next token | text before), over a closed vocabulary. Of a short text only the last token counts."""
    read = tokens_of(before)
    key = before if len(read) > _SHORT else "".join(read[-1:])
    weights = {w: 1 + hashlib.sha256(f"{key}|{w}".encode()).digest()[0] / 16 for w in WORDS}
    total = math.fsum(weights.values())
    return {w: math.log(x / total) for w, x in weights.items()}


def unknown_value(token: str, before: str) -> float:
    """The log-probability of a token that a small model does not know: small, and no placeholder."""
    return -15.0 - zlib.crc32(f"{before}|{token}".encode()) / 2**32


def draw(logprobs: dict[str, float], temperature: float, random: Random) -> str:
    """One of the words; the likeliest at temperature 0."""
    if temperature == 0:
        return max(logprobs, key=lambda word: logprobs[word])
    weights = [math.exp(value / temperature) for value in logprobs.values()]
    return random.choices(list(logprobs), weights)[0]


Lie = Callable[[dict[str, Any], Reply], None]


class Liar(RawServer):
    """Honest until ``lie`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.lie: Lie | None = None
        self._numbers = itertools.count()
        self._random = Random(0)

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
        answers = [draw(dict(nexts), sent.get("temperature", 1), self._random) for _ in range(sent.get("n", 1))]
        answer = answers[0]
        tokens, values, tops, offsets = [answer], [dict(nexts)[answer]], [dict(nexts[:k])], [len(prompt)]
        if sent.get("echo"):
            own = tokens_of(prompt)
            starts = [0, *itertools.accumulate(map(len, own))][: len(own)]
            before = ["".join(own[:i]) for i in range(len(own))]
            tokens, offsets = [*own, *tokens], [*starts, *offsets]
            known = [distribution(b).get(t, unknown_value(t, b)) for b, t in zip(before, own, strict=True)]
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
        others = [{"index": at, "text": text, "finish_reason": "length"} for at, text in enumerate(answers)][1:]
        return Reply({"id": number, "model": MODEL, "choices": [choice, *others], "usage": usage})


class IdLiar(Liar):
    """As vLLM: it lends its tokenizer, takes prompts as token ids and gives ``prompt_logprobs``, but no echo."""

    def __init__(self) -> None:
        super().__init__()
        self._vocabulary: list[str] = list(WORDS)

    def honest(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/tokenize" and "prompt" in sent:
            return Reply({"tokens": self.ids_of(sent["prompt"])})
        if path == "/detokenize":
            return Reply({"prompt": self.text_of(sent["tokens"])})
        prompt = sent.get("prompt")
        if sent.get("echo") or (isinstance(prompt, list) and not all(isinstance(i, int) for i in prompt)):
            return Reply({"error": {"message": "not supported", "code": "bad_request"}}, 400)
        text = self.text_of(prompt) if isinstance(prompt, list) else prompt
        reply = super().honest(path, {**sent, "prompt": text})
        if reply.status == 200 and "prompt_logprobs" in sent:
            ids = self.ids_of(str(text))
            known = [(self.text_of([i]), self.text_of(ids[:at])) for at, i in enumerate(ids)]
            rows = [distribution(before).get(token, unknown_value(token, before)) for token, before in known]
            later = [{str(i): {"logprob": row}} for i, row in zip(ids[1:], rows[1:], strict=True)]
            reply.choice["prompt_logprobs"] = [None, *later]
        return reply

    def ids_of(self, text: str) -> list[int]:
        words = tokens_of(text)
        self._vocabulary += [w for w in dict.fromkeys(words) if w not in self._vocabulary]
        return [self._vocabulary.index(w) for w in words]

    def text_of(self, ids: list[int]) -> str:
        return "".join(self._vocabulary[i] for i in ids)


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
