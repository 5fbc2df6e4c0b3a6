"""A model that OpenAI's Responses API alone reaches: chats are translated into it, and its answers back.

https://platform.openai.com/docs/api-reference/responses: turns are its ``input``, an answer is a list of output items.
It has no ``n``, ``seed`` or ``stop``, takes limits of 16 tokens or more, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from backends.errors import BackendError
from backends.http.client import HttpClient
from backends.openai.backend import OpenAIBackend

#: Parameters that the API lacks. A request with one of them is refused here, before it costs anything.
_UNSUPPORTED = ("n", "seed", "stop", "logit_bias", "continue_final_message", "add_generation_prompt")
_RENAMED = {"messages": "input", "max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ResponsesClient(HttpClient):
    """An `HttpClient` that sends chats to ``/responses`` and returns the answers in a chat's format."""

    async def post(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        if not path.endswith("chat/completions"):
            raise BackendError("not_found", f"the Responses API has no {path.strip('/')}")
        return chat_response(await super().post("responses", responses_request(payload)))


class ResponsesBackend(OpenAIBackend):
    """A model behind ``/v1/responses``, such as OpenAI's codex and pro models. Options are `OpenAIBackend`'s."""

    engine: ClassVar[str] = "responses"
    client_type: ClassVar[type[HttpClient]] = ResponsesClient


def responses_request(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request as a request for a response, which the provider does not keep.

    Raises `BackendError` for parameters that the API lacks.
    """
    if unsupported := next((name for name in _UNSUPPORTED if name in payload), None):
        raise BackendError("unsupported", f"the Responses API has no {unsupported}")
    body = {"store": False, **{_RENAMED.get(name, name): value for name, value in payload.items()}}
    if body.pop("logprobs", None):
        body["include"] = [*body.get("include", ()), "message.output_text.logprobs"]
    if (effort := body.pop("reasoning_effort", None)) is not None:
        body["reasoning"] = {**body.get("reasoning", {}), "effort": effort}
    return body


def chat_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """A response in the format of a chat's. Raises `BackendError` where it failed or is malformed."""
    status, output = response.get("status"), response.get("output")
    if status == "failed":
        raise BackendError("server", f"the response failed: {response.get('error')}", retryable=True)
    if status not in ("completed", "incomplete") or not isinstance(output, Sequence) or isinstance(output, str):
        raise BackendError("malformed", f"a response without output (status {str(status)[:40]!r})", retryable=True)
    # gpt-5.3-codex and later give a message a phase: a remark on the way is none of the answer (vercel/ai #12860).
    remarks = [item for item in output if isinstance(item, Mapping) and item.get("phase") == "commentary"]
    parts = [part for item in output if item not in remarks for part in _parts(item, "message", "content")]
    texts = [part for part in parts if part.get("type") == "output_text"]
    message: dict[str, Any] = {"role": "assistant", "content": _joined(texts, "text") if texts else None}
    if refusals := [part for part in parts if part.get("type") == "refusal"]:
        message["refusal"] = _joined(refusals, "refusal")
    thoughts = [p for item in output for name in ("summary", "content") for p in _parts(item, "reasoning", name)]
    thoughts += [part for item in remarks for part in _parts(item, "message", "content")]
    if thought := _joined(thoughts, "text"):
        message["reasoning_content"] = thought
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    finish = "stop" if status == "completed" else _FINISH_REASONS.get(str(reason), reason)
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish}
    if listed := [token for part in texts for token in part.get("logprobs") or ()]:
        choice["logprobs"] = {"content": listed}
    named = {name: response[name] for name in ("id", "model") if response.get(name) is not None}
    return {**named, "choices": [choice], **_usage(response.get("usage"))}


def _parts(item: Any, kind: str, name: str) -> Iterator[Mapping[str, Any]]:
    """The parts that an output item of this kind has under ``name``."""
    if isinstance(item, Mapping) and item.get("type") == kind and isinstance(item.get(name), Sequence):
        yield from (part for part in item[name] if isinstance(part, Mapping))


def _joined(parts: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(part[name] for part in parts if isinstance(part.get(name), str))


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, Mapping):
        return {}
    counts = {"prompt_tokens": usage.get("input_tokens"), "completion_tokens": usage.get("output_tokens")}
    details = {"prompt": usage.get("input_tokens_details"), "completion": usage.get("output_tokens_details")}
    return {"usage": {**counts, **{f"{name}_tokens_details": found for name, found in details.items()}}}
