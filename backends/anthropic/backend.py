"""A model behind Anthropic's own API: chats are translated into its Messages, and its answers back.

https://docs.anthropic.com/en/api/messages: one endpoint, ``max_tokens`` required, system messages in a field of their
own, content in blocks. There are no log-probabilities, no seeds, and one answer to a request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.http.options import Url, Variable
from backends.openai.backend import OpenAIBackend
from backends.openai.options import OpenAIOptions
from backends.reading.reasoning import HIDDEN

#: Parameters that the API lacks. A request with one of them is refused here, before it costs anything.
_UNSUPPORTED = ("logprobs", "top_logprobs", "n", "seed", "logit_bias")
_RENAMED = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
#: Those that `backends.openai.quirks` does not name.
_FINISH_REASONS = {"model_context_window_exceeded": "length", "refusal": "content_filter"}


class AnthropicOptions(OpenAIOptions):
    """`OpenAIOptions` with Anthropic's address and key. ``reasoning_effort`` is sent as ``output_config.effort``."""

    base_url: Url = "https://api.anthropic.com/v1"
    api_key_env: Variable = "ANTHROPIC_API_KEY"
    key_header: str = "x-api-key"


class MessagesClient(HttpClient):
    """An `HttpClient` that sends chats to ``/messages`` and returns the answers in OpenAI's format."""

    headers = {**HttpClient.headers, "anthropic-version": "2023-06-01"}  # noqa: RUF012

    async def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        if not path.endswith("chat/completions"):
            raise BackendError("not_found", f"Anthropic's API has no {path.strip('/')}")
        path = f"{path.removesuffix('chat/completions')}messages"
        return chat_response(await super().post(path, message_request(payload)))


class AnthropicBackend(OpenAIBackend):
    """A model behind ``/v1/messages``: it generates texts; scores are estimated from ``samples`` drawn answers.

    Which parameters the model accepts (a temperature, a prefill) is found by a look, as for `OpenAIBackend`.

    Parameters
    ----------
    model : str
        ``claude-…``, as the API knows it.
    **options
        The fields of `AnthropicOptions`: ``samples``, ``prices``, ``extra_body`` (``{"thinking": {"type":
        "adaptive"}}``)…
    """

    engine: ClassVar[str] = "anthropic"
    options_type: ClassVar[type[OpenAIOptions]] = AnthropicOptions
    client_type: ClassVar[type[HttpClient]] = MessagesClient

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model=model, **options)


def message_request(payload: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenAI chat request as a Messages request. Raises `BackendError` for parameters that the API lacks."""
    if unsupported := next((name for name in _UNSUPPORTED if name in payload), None):
        raise BackendError("unsupported", f"Anthropic's API has no {unsupported}")
    turns = payload["messages"]
    body = {_RENAMED.get(name, name): value for name, value in payload.items() if name != "messages"}
    body["messages"] = [turn for turn in turns if turn["role"] != "system"]
    if system := [turn["content"] for turn in turns if turn["role"] == "system"]:
        body["system"] = "\n\n".join(system)
    if (effort := body.pop("reasoning_effort", None)) is not None:
        body["output_config"] = {**body.get("output_config", {}), "effort": effort}
    return body


def chat_response(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A Messages response as an OpenAI chat response. Raises `BackendError` when it is malformed."""
    blocks, reason = answer.get("content"), answer.get("stop_reason")
    if not isinstance(blocks, Sequence) or not all(isinstance(block, Mapping) for block in blocks):
        raise BackendError("malformed", "an answer without content", retryable=True)
    message: dict[str, Any] = {"role": "assistant", "content": _joined(blocks, "text")}
    if thought := _joined(blocks, "thinking"):
        message["reasoning_content"] = thought
    elif any(block.get("type") in ("thinking", "redacted_thinking") for block in blocks):  # encrypted, or left out
        message[HIDDEN] = True
    choice = {"index": 0, "message": message, "finish_reason": _FINISH_REASONS.get(str(reason), reason)}
    response = {"id": answer.get("id"), "model": answer.get("model"), "choices": [choice]}
    return {name: value for name, value in response.items() if value is not None} | _usage(answer.get("usage"))


def _joined(blocks: Sequence[Mapping[str, Any]], kind: str) -> str:
    return "".join(str(block.get(kind, "")) for block in blocks if block.get("type") == kind)


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, Mapping) or not isinstance(usage.get("input_tokens"), int):
        return {}
    read, written = (usage.get(f"cache_{what}_input_tokens") or 0 for what in ("read", "creation"))
    counted = {"prompt_tokens": usage["input_tokens"] + read + written, "completion_tokens": usage.get("output_tokens")}
    return {"usage": {**counted, "prompt_tokens_details": {"cached_tokens": read}}}
