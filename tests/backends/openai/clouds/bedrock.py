"""Amazon Bedrock's endpoint for chats, ``https://bedrock-runtime.REGION.amazonaws.com/openai/v1``, as gpt-oss is there.

- Paths, model names, and keys of 12 hours at most as bearer tokens:
  https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html and …/api-keys-generate.html.
- gpt-oss writes its reasoning into the content, in ``<reasoning>``, several of them in a row (CherryHQ/cherry-studio
  #10225; promptfoo/promptfoo #9587).
- A token that has ended is a 403, not a 401 (anthropics/claude-code #28032); errors are ``{"Message": …}``
  (BerriAI/litellm #39166).

Whether the endpoint gives log-probabilities or several choices is not documented: here it ignores both fields.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import Answers, Manner, StrictServer

MODEL = "openai.gpt-oss-20b-1:0"


def token_of(clock: Callable[[], float], seconds: float) -> str:
    """A token that lasts so many seconds by this clock."""
    return f"bedrock-api-key-{clock() + seconds}"


class Bedrock(StrictServer):
    """``clock`` is the server's."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(Manner({}, thinks="inline"), answers)
        self.model = MODEL
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


def plain(answers: Mapping[str, float]) -> Answers:
    """The same answers to any question."""
    return lambda _: answers
