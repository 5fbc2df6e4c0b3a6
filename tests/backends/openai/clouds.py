"""Chats of clouds that are "compatible with OpenAI's", each with differences of its own.

`Bedrock`: Amazon's endpoint for chats, ``https://bedrock-runtime.REGION.amazonaws.com/openai/v1``, as gpt-oss is there.

- Paths, model names, and keys of 12 hours at most as bearer tokens:
  https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html and …/api-keys-generate.html.
- gpt-oss writes its reasoning into the content, in ``<reasoning>``, several of them in a row (CherryHQ/cherry-studio
  #10225; promptfoo/promptfoo #9587).
- A token that has ended is a 403, not a 401 (anthropics/claude-code #28032); errors are ``{"Message": …}``
  (BerriAI/litellm #39166).

Whether the endpoint gives log-probabilities or several choices is not documented: here it ignores both fields.

`AIStudio` (https://ai.google.dev/gemini-api/docs/openai): a key, paths below ``/v1beta/openai``. Unlike Vertex AI it
refuses what it does not know, in a list: 400 "Invalid JSON payload received. Unknown name …: Cannot find field."
(Alishahryar1/free-claude-code #542). Thoughts are hidden, use up the limit (NousResearch/hermes-agent #87209) and may
stand in ``total_tokens`` alone; where they leave nothing, the answer has no content.

`Together` (https://github.com/togethercomputer/openapi): ``logprobs`` is a number, of 1 at most with many models
("5 is greater than the maximum of 1 - 'logprobs'", lmg-anon/mikupad #55). Log-probabilities come flat, without other
tokens, and the first may be positive (togethercomputer/openapi #5: 0.0947, 0.6997). ``echo`` puts the prompt's into a
field ``prompt``. Choices have no index, and end with ``eos``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import Answers, Manner, StrictServer, refusal

BEDROCK_MODEL = "openai.gpt-oss-20b-1:0"


def token_of(clock: Callable[[], float], seconds: float) -> str:
    """A token that lasts so many seconds by this clock."""
    return f"bedrock-api-key-{clock() + seconds}"


class Bedrock(StrictServer):
    """``clock`` is the server's."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(Manner({}, thinks="inline"), answers)
        self.served = BEDROCK_MODEL
        self.clock: Callable[[], float] = time.time

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/openai/v1"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path != "/openai/v1/chat/completions":
            return Reply({"message": ""}, 404)
        found = re.search(r"authorization: bearer bedrock-api-key-([\d.]+)", self.headers[-1], re.I)
        if not found:
            return Reply({"Message": "The security token included in the request is invalid."}, 403)
        if float(found[1]) < self.clock():
            return Reply({"Message": "The security token included in the request is expired"}, 403)
        ignored = {"logprobs", "top_logprobs", "n"}
        reply = super().reply("/v1/chat/completions", {k: v for k, v in sent.items() if k not in ignored})
        if reply.status == 200:
            for choice in reply.body["choices"]:
                message = choice["message"]
                message["content"] = _in_several(message["content"])
        return reply


def _in_several(content: str) -> str:
    """The thought in two passages, as gpt-oss writes it there."""
    renamed = content.replace("think>", "reasoning>")
    middle = renamed.find(" I consider")
    begun = middle >= 0 and "</reasoning>" in renamed
    return f"{renamed[:middle]}</reasoning><reasoning>{renamed[middle:]}" if begun else renamed


_KNOWN_TO_AI_STUDIO = {
    "model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "stop", "reasoning_effort",
    "response_format", "tools", "tool_choice", "stream", "stream_options", "extra_body",
}  # fmt: skip


def unequal(answers: Answers) -> Answers:
    """The same answers, earlier ones likelier, so that a temperature has an effect."""
    return lambda question: {word: p / (place + 1) for place, (word, p) in enumerate(answers(question).items())}


class AIStudio(StrictServer):
    def __init__(self, answers: Answers) -> None:
        super().__init__(Manner({}, thinks="hidden"), answers, most_choices=8)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1beta/openai"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path != "/v1beta/openai/chat/completions":
            return Reply([{"error": {"code": 404, "message": "Not found", "status": "NOT_FOUND"}}], 404)
        if unknown := [name for name in sent if name not in _KNOWN_TO_AI_STUDIO]:
            said = "\n".join(
                f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.' for name in unknown
            )
            return Reply([{"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}], 400)
        reply = super().reply("/v1/chat/completions", sent)
        if reply.status != 200:
            if "Could not finish" not in str(reply.body):
                return Reply([reply.body], reply.status)
            limit = int(sent.get("max_tokens") or sent["max_completion_tokens"])
            choices = [{"index": 0, "message": {"role": "assistant"}, "finish_reason": "length"}]
            usage = {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10 + limit}
            return Reply({"model": self.served, "choices": choices, "usage": usage})
        usage = reply.body["usage"]
        thought = usage.pop("completion_tokens_details")["reasoning_tokens"]
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["completion_tokens"] -= thought
        return reply


class Together(StrictServer):
    def __init__(self, answers: Answers) -> None:
        super().__init__(Manner({}), answers)

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        asked = sent.get("logprobs")
        if isinstance(asked, int) and asked > 1:
            return refusal(400, f"{asked} is greater than the maximum of 1 - 'logprobs'")
        is_text = path == "/v1/completions"
        if is_text and not isinstance(sent["prompt"], str):
            return refusal(400, "Input should be a valid string - 'prompt'")
        chat = {**sent, "messages": [{"role": "user", "content": sent.pop("prompt")}]} if is_text else sent
        reply = super().reply("/v1/chat/completions" if is_text else path, chat)
        if reply.status != 200:
            return reply
        for choice in reply.body["choices"]:
            text = choice["message"]["content"]
            choice.update(seed=self._random.randrange(2**53), finish_reason="eos")
            if asked:
                words = text.split()
                flat = [0.0947, *(-0.5 for _ in words[1:])]
                choice["logprobs"] = {"tokens": words, "token_logprobs": flat, "token_ids": [*range(len(words))]}
            if is_text:
                choice["text"] = text
                del choice["message"], choice["index"]
        if is_text and sent.get("echo"):
            reply.body["prompt"] = [{"text": chat["messages"][0]["content"], "logprobs": None}]
        return reply
