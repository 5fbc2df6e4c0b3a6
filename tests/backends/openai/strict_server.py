"""Chat servers that refuse parameters, or think before they answer, as their providers and users say.

`O_SERIES`: OpenAI's o and gpt-5 series. 403 "You are not allowed to request logprobs from this model" (quoted in many
projects, e.g. HELM's and ScandEval's OpenAI clients); "Unsupported parameter: 'max_tokens' … Use
'max_completion_tokens'" and "'temperature' does not support 0 with this model. Only the default (1) value" (OpenAI's
guide to reasoning models, and its users' reports); 400 "Could not finish the message because max_tokens or model
output limit was reached" where the limit is spent before the answer.

`DEPRECATED`: Claude Opus 4.7 and later behind OpenAI-style gateways: 400 "`temperature` is deprecated for this model."
(RooCodeInc/Roo-Code #12162, cline/cline #10572, sipeed/picoclaw #2939).

`THINKING`: DeepSeek, Kimi, GLM and vLLM with a reasoning parser: ``reasoning_content`` beside the answer, counted in
``completion_tokens_details``; with too few tokens ``content`` is null and the reason is ``length``
(darkmatter/nixmac #199, BerriAI/litellm-docs #559).

`INLINE` and `OPENED`: vLLM without a parser: ``<think>…</think>`` in the content, or its end alone, where the template
opens it (Qwen3-Thinking, DeepSeek-R1: their model cards).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tests.backends.openai.raw_server import RawServer, Reply

MODEL = "strict-1"
_THOUGHT = "The user asks. I consider every side of it, and then I decide on one word."


@dataclass(frozen=True)
class Manner:
    """What a server refuses, parameter by parameter with status and message, and how it thinks."""

    refuses: Mapping[str, tuple[int, str]]
    thinks: Literal["", "hidden", "field", "inline", "opened"] = ""


_OLD_LIMIT = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
)
O_SERIES = Manner(
    {
        "logprobs": (403, "You are not allowed to request logprobs from this model"),
        "max_tokens": (400, _OLD_LIMIT),
        "temperature": (
            400,
            "Unsupported value: 'temperature' does not support {} with this model. Only the default (1)",
        ),
        "top_p": (400, "Unsupported parameter: 'top_p' is not supported with this model."),
        "stop": (400, "Unsupported parameter: 'stop' is not supported with this model."),
    },
    thinks="hidden",
)
DEPRECATED = Manner(
    {
        "temperature": (400, "`temperature` is deprecated for this model."),
        "top_p": (400, "`top_p` is deprecated for this model."),
        "logprobs": (400, "logprobs: Extra inputs are not permitted"),
    }
)
#: A gateway that says nothing of the cause: found by leaving out one after the other.
SILENT = Manner(dict.fromkeys(("temperature", "logprobs", "system"), (400, "Invalid request data")))
THINKING = Manner({"logprobs": (400, "logprobs is not supported for this model")}, thinks="field")
INLINE = Manner({"logprobs": (400, "logprobs is not supported for this model")}, thinks="inline")
OPENED = Manner({"logprobs": (400, "logprobs is not supported for this model")}, thinks="opened")

Answers = Callable[[str], Mapping[str, float]]


class StrictServer(RawServer):
    """Chats of one model: ``answers`` gives the probability of each answer to a question."""

    def __init__(self, manner: Manner, answers: Answers, *, thought_tokens: int = 40, most_choices: int = 128) -> None:
        super().__init__()
        self.manner, self.answers, self.thought_tokens = manner, answers, thought_tokens
        self.most_choices, self.served = most_choices, MODEL
        self._numbers, self._random = itertools.count(), random.Random(0)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path != "/v1/chat/completions":
            return refusal(404, f"Unknown request URL: POST {path}")
        if sent.get("model") != self.served:
            return refusal(404, f"The model {sent.get('model')!r} does not exist")
        if refused := self._refused(sent):
            return refused
        limit = int(sent.get("max_completion_tokens") or sent.get("max_tokens") or 10**6)
        if sent.get("n", 1) > self.most_choices:
            return refusal(400, f"n must be at most {self.most_choices}")
        question = "\n".join(turn["content"] for turn in sent["messages"])
        warmth = float(sent.get("temperature", 1.0))
        choices = [self._choice(index, question, limit, warmth) for index in range(sent.get("n", 1))]
        if any(choice is None for choice in choices):
            message = "Could not finish the message because max_tokens or model output limit was reached."
            return refusal(400, message)
        thoughts = self.thought_tokens * len(choices) if self.manner.thinks else 0
        completion = min(limit * len(choices), thoughts + 4 * len(choices))
        usage: dict[str, Any] = {"prompt_tokens": len(question.split()) + 8, "completion_tokens": completion}
        if self.manner.thinks in ("hidden", "field"):
            usage["completion_tokens_details"] = {"reasoning_tokens": min(thoughts, completion)}
        return Reply({"id": f"chat-{next(self._numbers)}", "model": self.served, "choices": choices, "usage": usage})

    def _refused(self, sent: Mapping[str, Any]) -> Reply | None:
        for name, (status, message) in self.manner.refuses.items():
            given = sent.get(name)
            if name == "system":
                given = any(turn["role"] == "system" for turn in sent["messages"]) or None
            if given is not None and not (name == "temperature" and given == 1 and "default" in message):
                return refusal(status, message.format(given))
        return None

    def _choice(self, index: int, question: str, limit: int, temperature: float) -> dict[str, Any] | None:
        after, sharper = self.answers(question), 1 / max(temperature, 0.01)
        answer = self._random.choices(list(after), [share**sharper for share in after.values()])[0]
        thinks, unfinished = self.manner.thinks, self.manner.thinks != "" and limit <= self.thought_tokens
        if thinks == "hidden" and unfinished:
            return None
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if thinks == "field":
            message = {**message, "content": None if unfinished else answer, "reasoning_content": _THOUGHT}
        elif thinks in ("inline", "opened"):
            begun = ("<think>\n" if thinks == "inline" else "") + _THOUGHT
            message["content"] = begun[:40] if unfinished else f"{begun}\n</think>\n\n{answer}"
        return {"index": index, "message": message, "finish_reason": "length" if unfinished else "stop"}


def refusal(status: int, message: str) -> Reply:
    """An error as OpenAI's body has it."""
    return Reply({"error": {"message": message, "type": "invalid_request_error", "code": None}}, status)


def varied(question: str) -> Mapping[str, float]:
    """Answers to anything: words that differ from draw to draw."""
    return dict.fromkeys(_WORDS, 1.0)


_WORDS: Sequence[str] = ("Male", "Female", "Other", "blue", "seven", "a river", "Tuesday", "yes", "no", "perhaps")
