"""Google AI Studio, Groq and Together: chats "compatible with OpenAI's", each with differences of its own.

`AIStudio` (https://ai.google.dev/gemini-api/docs/openai): a key, paths below ``/v1beta/openai``. Unlike Vertex AI it
refuses what it does not know, in a list: 400 "Invalid JSON payload received. Unknown name …: Cannot find field."
(Alishahryar1/free-claude-code #542). Thoughts are hidden, use up the limit (NousResearch/hermes-agent #87209) and may
stand in ``total_tokens`` alone; where they leave nothing, the answer has no content.

`Groq` (https://console.groq.com/docs/openai, …/docs/reasoning): 400 for ``logprobs``, ``top_logprobs`` and
``logit_bias``; ``n`` must be 1; temperature 0 becomes 1e-8. The reasoning of gpt-oss is in ``reasoning``.

`Together` (https://github.com/togethercomputer/openapi): ``logprobs`` is a number, of 1 at most with many models
("5 is greater than the maximum of 1 - 'logprobs'", lmg-anon/mikupad #55). Log-probabilities come flat, without other
tokens, and the first may be positive (togethercomputer/openapi #5: 0.0947, 0.6997). ``echo`` puts the prompt's into a
field ``prompt``. Choices have no index, and end with ``eos``; ``usage`` may be null.
"""

from __future__ import annotations

from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import Answers, Manner, StrictServer, refusal

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
            return Reply({"model": self.model, "choices": choices, "usage": usage})
        usage = reply.body["usage"]
        thought = usage.pop("completion_tokens_details")["reasoning_tokens"]
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        usage["completion_tokens"] -= thought
        return reply


class Groq(StrictServer):
    def __init__(self, answers: Answers) -> None:
        said = "`{}` is not supported with this model"
        refused = ("logprobs", "top_logprobs", "logit_bias")
        super().__init__(
            Manner({name: (400, said.replace("{}", name)) for name in refused}, thinks="field"), answers, most_choices=1
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/openai/v1"

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if any("name" in turn for turn in sent.get("messages", ())):
            return refusal(400, "'messages.0' : for 'role:user' the property 'name' is unsupported")
        reply = super().reply(path.removeprefix("/openai"), sent)
        for choice in reply.body.get("choices", ()):
            message = choice["message"]
            message["reasoning"] = message.pop("reasoning_content")
            message["content"] = message["content"] or ""
        return reply


class Together(StrictServer):
    def __init__(self, answers: Answers, *, usage: bool = True) -> None:
        super().__init__(Manner({}), answers)
        self._usage = usage

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
        if not self._usage:
            reply.body["usage"] = None
        return reply
