"""A server whose model is asked by the Responses API alone, as OpenAI's reference and users' reports have it.

Chats are refused with "This model is only supported in v1/responses and not in v1/chat/completions."
(open-webui/open-webui #15356). ``/v1/responses``: ``input``, ``max_output_tokens`` of at least 16, ``include`` and
``top_logprobs``, a ``reasoning`` table; an answer is a list of output items with a status
(https://platform.openai.com/docs/api-reference/responses/object). A field that it does not have is refused by name.
"""

from __future__ import annotations

from typing import Any

from tests.backends.openai.raw_server import Reply
from tests.backends.openai.strict_server import StrictServer, refusal

ONLY_HERE = "This model is only supported in v1/responses and not in v1/chat/completions."
_FIELDS = {
    *("model", "input", "max_output_tokens", "temperature", "top_p", "store", "include", "top_logprobs"),
    *("reasoning", "service_tier", "metadata", "text"),
}


class ResponsesServer(StrictServer):
    """`StrictServer`, asked by ``/v1/responses``."""

    def reply(self, path: str, sent: dict[str, Any]) -> Reply:
        if path == "/v1/chat/completions":
            return refusal(404, ONLY_HERE)
        if path != "/v1/responses":
            return refusal(404, f"Unknown request URL: POST {path}")
        if unknown := sorted(set(sent) - _FIELDS):
            return refusal(400, f"Unknown parameter: '{unknown[0]}'.")
        if sent.get("store", True):
            return refusal(400, "these tests want nothing stored")
        if sent.get("max_output_tokens", 16) < 16:
            return refusal(400, "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
        if "message.output_text.logprobs" in sent.get("include", ()) and "logprobs" in self.manner.refuses:
            return refusal(400, "logprobs are not supported with reasoning models.")
        chat = {name: sent[name] for name in ("model", "temperature", "top_p") if name in sent}
        chat |= {"messages": sent["input"], "max_completion_tokens": sent.get("max_output_tokens")}
        answered = super().reply("/v1/chat/completions", chat)
        if answered.status != 200:
            return self._unfinished() if "Could not finish" in str(answered.body) else answered
        return Reply(self._response(answered.body))

    def _response(self, body: dict[str, Any]) -> dict[str, Any]:
        (choice,), usage = body["choices"], body["usage"]
        message = choice["message"]
        output: list[dict[str, Any]] = []
        if self.manner.thinks:
            summary = [{"type": "summary_text", "text": message.get("reasoning_content") or ""}]
            output.append(
                {"type": "reasoning", "id": "rs_1", "summary": summary if self.manner.thinks == "field" else []}
            )
        if message["content"] is not None:
            content = [{"type": "output_text", "text": message["content"], "annotations": [], "logprobs": []}]
            output.append({"type": "message", "id": "msg_1", "role": "assistant", "content": content})
        ended = choice["finish_reason"] == "stop"
        return {
            "id": body["id"].replace("chat", "resp"),
            "object": "response",
            "model": body["model"],
            "status": "completed" if ended else "incomplete",
            "incomplete_details": None if ended else {"reason": "max_output_tokens"},
            "output": output,
            "usage": _usage(usage["prompt_tokens"], usage["completion_tokens"], usage.get("completion_tokens_details")),
        }

    def _unfinished(self) -> Reply:
        """All tokens went into a thought that is not shown."""
        body = {
            "id": f"resp-{self.requests}",
            "model": "strict-1",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "reasoning", "id": "rs_1", "summary": []}],
            "usage": _usage(9, 64, {"reasoning_tokens": 64}),
        }
        return Reply(body)


def _usage(given: int, generated: int, details: dict[str, int] | None) -> dict[str, Any]:
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": generated,
        "output_tokens_details": details or {"reasoning_tokens": 0},
        "total_tokens": given + generated,
    }
