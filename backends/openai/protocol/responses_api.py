"""Translates chat requests into OpenAI's Responses API, and its answers back.

Some models are reached by ``/v1/responses`` alone (https://platform.openai.com/docs/api-reference/responses). It takes
turns as ``input`` and at least 16 tokens, has no ``n``, ``seed`` or ``stop``, and answers with a list of output items.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backends.errors import BackendError
from backends.openai.quirks import RESPONSES_MIN_TOKENS

_UNSUPPORTED = ("n", "seed", "stop", "logit_bias", "continue_final_message", "add_generation_prompt")
_LIMITS = ("max_tokens", "max_completion_tokens")
_FINISH_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def responses_request(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A chat request as a request for a response, which the provider does not keep.

    Raises `BackendError` ``unsupported`` for parameters that the API lacks.
    """
    if unsupported := next((name for name in _UNSUPPORTED if name in payload), None):
        raise BackendError("unsupported", f"the Responses API has no {unsupported}")
    body: dict[str, Any] = {"store": False}
    for name, value in payload.items():
        if name == "messages":
            body["input"] = value
        elif name in _LIMITS:
            body["max_output_tokens"] = max(value, RESPONSES_MIN_TOKENS)
        elif name == "logprobs":
            body["include"] = [*payload.get("include", ()), "message.output_text.logprobs"]
        elif name == "reasoning_effort":
            body["reasoning"] = {**payload.get("reasoning", {}), "effort": value}
        else:
            body.setdefault(name, value)
    return body


def chat_response(response: Mapping[str, Any]) -> dict[str, Any]:
    """A response in the format of a chat's. Raises `BackendError` where it failed or is malformed."""
    status, output = response.get("status"), response.get("output")
    if status == "failed":
        error = response.get("error")
        reason = error.get("message") if isinstance(error, Mapping) else None
        raise BackendError("server", f"the response failed: {reason or 'no reason given'}", retryable=True)
    if status not in ("completed", "incomplete") or not isinstance(output, Sequence) or isinstance(output, str):
        raise BackendError("malformed", f"a response without output (status {str(status)[:40]!r})", retryable=True)
    messages, remarks = _messages(output)
    parts = [part for item in messages for part in _parts(item, "message", "content")]
    texts = [part for part in parts if part.get("type") == "output_text"]
    message: dict[str, Any] = {"role": "assistant", "content": _joined(texts, "text") if texts else None}
    if refusals := [part for part in parts if part.get("type") == "refusal"]:
        message["refusal"] = _joined(refusals, "refusal")
    thoughts = [part for item in output for part in (*_parts(item, "reasoning", "summary"), *_parts(item, "reasoning"))]
    thoughts += [part for item in remarks for part in _parts(item, "message", "content")]
    if thought := _joined(thoughts, "text"):
        message["reasoning_content"] = thought
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    finish = "stop" if status == "completed" else _FINISH_REASONS.get(str(reason), reason)
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    if listed := [token for part in texts for token in part.get("logprobs") or ()]:
        choice["logprobs"] = {"content": listed}
    named = {name: response[name] for name in ("id", "model") if response.get(name) is not None}
    return {**named, "choices": [choice], **_usage(response.get("usage"))}


def _messages(output: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The messages that are the answer, and those that are remarks on the way to it.

    gpt-5.3-codex and later give a message a ``phase``: ``commentary`` or ``final_answer`` (vercel/ai #12860).
    """
    remarks = [item for item in output if isinstance(item, Mapping) and item.get("phase") == "commentary"]
    return [item for item in output if item not in remarks], remarks


def _parts(item: Any, kind: str, name: str = "content") -> Iterator[Mapping[str, Any]]:
    """The parts that an output item of this kind has under ``name``."""
    if isinstance(item, Mapping) and item.get("type") == kind and isinstance(item.get(name), Sequence):
        yield from (part for part in item[name] if isinstance(part, Mapping))


def _joined(parts: Sequence[Mapping[str, Any]], name: str) -> str:
    return "".join(part[name] for part in parts if isinstance(part.get(name), str))


def _usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, Mapping):
        return {}
    return {
        "usage": {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        }
    }
