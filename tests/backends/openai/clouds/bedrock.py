"""Amazon Bedrock's endpoint for chats, ``https://bedrock-runtime.REGION.amazonaws.com/openai/v1``, as gpt-oss is there.

- Paths, model names, and keys of 12 hours at most as bearer tokens:
  https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html and …/api-keys-generate.html. A
  token is a request that was signed beforehand, with its date and duration (`aws-bedrock-token-generator`).
- gpt-oss writes its reasoning into the content, in ``<reasoning>``, several of them in a row (CherryHQ/cherry-studio
  #10225; promptfoo/promptfoo #9587).
- A token that has ended is a 403, not a 401 (anthropics/claude-code #28032); a clock that is wrong by more than five
  minutes is "Signature expired" or "Signature not yet current" (anthropics/anthropic-sdk-go #122; aws/aws-sdk-js
  #1652).
- 429 "Too many tokens, please wait before trying again." is a limit on speed; errors are ``{"message": …}`` or
  ``{"Message": …}`` (BerriAI/litellm #39166).

Whether the endpoint gives log-probabilities or several choices is not documented: here it ignores both fields.
"""

from __future__ import annotations

import base64
import datetime
import email.utils
import random
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import Answers, Manner, StrictServer

MODEL = "openai.gpt-oss-20b-1:0"
KEY_ID = "AKIASTANDIN"
_FORMAT = "%Y%m%dT%H%M%SZ"
_SKEW = 300.0


def token_of(clock: Callable[[], float], seconds: float, key_id: str = KEY_ID) -> str:
    """A token as the generator makes it, but for its signature: signed at ``clock()``, to last so many seconds."""
    at = datetime.datetime.fromtimestamp(clock(), datetime.UTC)
    query = {
        "Action": "CallWithBearerToken",
        "X-Amz-Credential": f"{key_id}/{at:%Y%m%d}/us-west-2/bedrock/aws4_request",
        "X-Amz-Date": at.strftime(_FORMAT),
        "X-Amz-Expires": str(int(seconds)),
        "X-Amz-Signature": f"{random.getrandbits(256):064x}",
    }
    signed = f"bedrock.amazonaws.com/?{urllib.parse.urlencode(query)}&Version=1"
    return "bedrock-api-key-" + base64.b64encode(signed.encode()).decode()


class Bedrock(StrictServer):
    """``clock`` is the server's. ``busy`` is how often it answers 429, ``failing`` how often the model fails."""

    def __init__(self, answers: Answers) -> None:
        super().__init__(Manner({}, thinks="inline"), answers)
        self.model = MODEL
        self.clock: Callable[[], float] = time.time
        self.busy = self.failing = 0.0
        self.refused: list[str] = []
        self._moods = random.Random(5)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/openai/v1"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path != "/openai/v1/chat/completions":
            return self._error(404, "UnknownOperationException", "")
        if problem := self._refusal():
            self.refused.append(problem)
            return self._error(403, "ExpiredTokenException", problem)
        mood = self._moods.random()
        if mood < self.busy:
            return self._error(429, "ThrottlingException", "Too many tokens, please wait before trying again.")
        if mood < self.busy + self.failing:
            return self._error(424, "ModelErrorException", "The system encountered an unexpected error.")
        ignored = {"logprobs", "top_logprobs", "n"}
        reply = super().reply("/v1/chat/completions", {k: v for k, v in sent.items() if k not in ignored})
        if reply.status == 200:
            for choice in reply.body["choices"]:
                message = choice["message"]
                message["content"] = _in_several(message["content"])
        return reply

    def _refusal(self) -> str:
        """Why the token is refused; empty if it is not."""
        found = re.search(r"authorization: bearer bedrock-api-key-(\S+)", self.headers[-1], re.I)
        if not found:
            return "Invalid API Key format: Must start with pre-defined prefix"
        query = dict(urllib.parse.parse_qsl(base64.b64decode(found[1]).decode().partition("?")[2]))
        if not query["X-Amz-Credential"].startswith(f"{KEY_ID}/"):
            return "The security token included in the request is invalid."
        signed = datetime.datetime.strptime(query["X-Amz-Date"], _FORMAT).replace(tzinfo=datetime.UTC).timestamp()
        now = self.clock()
        if signed > now + _SKEW:
            return f"Signature not yet current: {query['X-Amz-Date']} is still later than the server's time + 5 min."
        if now > signed + float(query["X-Amz-Expires"]):
            return "The security token included in the request is expired"
        return ""

    def _error(self, status: int, kind: str, message: str) -> Reply:
        kinds = f"{kind}:http://internal.amazon.com/coral/com.amazon.coral.service/"
        headers = {
            "Content-Type": "application/json",
            "x-amzn-errortype": kinds,
            "Date": email.utils.formatdate(self.clock(), usegmt=True),
        }
        name = "Message" if status == 403 else "message"
        return Reply({name: message}, status, headers)


def _in_several(content: str) -> str:
    """The thought in two passages, as gpt-oss writes it there."""
    renamed = content.replace("think>", "reasoning>")
    middle = renamed.find(" I consider")
    begun = middle >= 0 and "</reasoning>" in renamed
    return f"{renamed[:middle]}</reasoning><reasoning>{renamed[middle:]}" if begun else renamed


def plain(answers: Mapping[str, float]) -> Answers:
    """The same answers to any question."""
    return lambda _: answers
