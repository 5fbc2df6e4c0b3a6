"""Turns HTTP failures, and responses that cannot be true, into `BackendError`."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import httpx

from backends.errors import BackendError, ErrorKind
from backends.reading.reasoning import UnfinishedThoughtError

#: For each exception of httpx the kind; the first class that fits applies. All of these may be over in a moment.
_KINDS: Mapping[type[Exception], ErrorKind] = {
    httpx.TimeoutException: "timeout",
    httpx.NetworkError: "connection",
    httpx.RemoteProtocolError: "connection",
    httpx.DecodingError: "malformed",
}
#: Failures before a request has reached its server, which cannot have charged for it.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.PoolTimeout)

MAX_MESSAGE_CHARS = 240
_QUOTA = re.compile(r"insufficient_quota|quota|billing|credit|balance", re.I)
#: Google's quotas that come back by themselves, although it names no wait.
_SHORT_QUOTA = re.compile(r"check quota|per.?(?:second|minute|base_model)", re.I)
#: Google says only in the text when a per-minute quota is available again.
_RETRY_IN = re.compile(r"retry in (\d+(?:\.\d+)?) ?s", re.I)
#: OpenAI's words when the token limit was used up before the answer began.
_UNFINISHED = re.compile(r"could not finish the message because max_tokens", re.I)
_USED_UP = "The account's credit or quota is used up"
#: What a status means: statuses, what their text must say, kind and hint. The first that fits applies.
_MEANINGS: Sequence[tuple[Collection[int], str, ErrorKind, str]] = (
    (range(300, 400), "", "bad_request", "Redirects are not followed: give the final URL"),
    # Money that is used up, which Anthropic and OpenAI say by a 400 (continuedev/continue #5499).
    ((400, 403), "credit balance is too low|billing.{0,6}hard.{0,6}limit|insufficient.{0,6}balance", "quota", _USED_UP),
    # A parameter of the request that a model refuses: such a 403 says nothing about the key.
    (
        (403,),
        r"(?=.*\b(?:logprobs|temperature|top_p|max_\w*tokens|stop|seed|parameter|argument)\b)"
        r".*(?:not allowed|not supported|unsupported|deprecated|does not support|not permitted|invalid)",
        "unsupported",
        "The model does not accept this parameter",
    ),
    ((401, 403), "", "auth", "Check the key and its permissions"),
    ((402,), "", "quota", _USED_UP),
    ((404, 405), "", "not_found", "Check base_url (most end in /v1) and the model's name"),
    ((408,), "", "timeout", ""),
    (
        (400, 413, 422, 500),
        r"context.{0,12}(?:length|size|window)|exceed_context|maximum context|too many tokens",
        "context_length",
        "",
    ),
    # A permanent refusal that llama-cpp-python sends as a 500: the body failed validation.
    ((500,), "validation error|value_error|must be one of", "bad_request", ""),
    ((501,), "", "unsupported", ""),
    ((424, *range(500, 600)), "", "server", ""),  # 424 is Bedrock's: the model failed, not the request
    (range(400, 500), "", "bad_request", ""),
)
#: Codes and types of errors that come with status 200 → the status that they stand for.
_STATUS_OF_CODE = {
    r"rate.?limit|overload": 429,
    r"quota|billing": 402,
    r"auth|api.?key|permission": 401,
    r"not.?found": 404,
    r"invalid|bad.?request": 400,
}


class UnsentError(BackendError):
    """A request that never reached its server."""


def inconsistent(message: str, *, retryable: bool = False) -> BackendError:
    """The error for a response that can be read but cannot be true."""
    return BackendError("inconsistent", message, retryable=retryable)


def from_exception(error: Exception, url: str = "") -> BackendError:
    """An exception of httpx as `BackendError`: its type, its text and ``url``, never its headers or body."""
    kind = next((meaning for known, meaning in _KINDS.items() if isinstance(error, known)), None)
    # What is wrong with a request may be its key, and is not shown.
    reason = message_of(str(error).encode(), longest=80) if kind else ""
    is_tls, hint = "SSL" in reason, ""
    if is_tls or isinstance(error, OSError):  # httpx wraps those of the network
        hint = "Check SSL_CERT_FILE: for a private authority it names the file of its certificate"
    elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        hint = "Check base_url, the proxy if there is one, and that the server is running"
    failed = UnsentError if isinstance(error, _NEVER_SENT) else BackendError
    message = f"{type(error).__name__} at {url}" + (f": {reason}" if reason else "")
    return failed(kind or "internal", message, retryable=kind is not None and not is_tls, hint=hint)


def from_status(status: int, headers: Mapping[str, str], text: str) -> BackendError:
    """The error for an HTTP response other than 200. ``text`` is its body, as `message_of` returns it."""
    message = f"HTTP {status}" + (f": {text[:MAX_MESSAGE_CHARS]}" if text else "")
    wait = seconds_to_wait(headers, text)
    if status == 400 and _UNFINISHED.search(text):
        return UnfinishedThoughtError(message)
    if status == 429:
        # Google and Azure also say "quota" for a limit that resets in a moment, and then say when.
        temporary = wait is not None or _SHORT_QUOTA.search(text)
        if _QUOTA.search(text) and (not temporary or "insufficient_quota" in text):
            return BackendError("quota", message, hint=_USED_UP)
        return BackendError("rate_limited", message, retryable=True, retry_after=wait)
    for statuses, says, kind, hint in _MEANINGS:
        if status in statuses and re.search(says, text, re.I | re.S):
            return BackendError(kind, message, retryable=kind in ("timeout", "server"), retry_after=wait, hint=hint)
    return BackendError("malformed", message)


def seconds_to_wait(headers: Mapping[str, str], text: str) -> float | None:
    """Seconds that a response asks to wait, by a number in ``Retry-After`` or in Google's words; None if by neither."""
    said = _RETRY_IN.search(text)
    for given in (headers.get("retry-after"), said and said[1]):
        with contextlib.suppress(TypeError, ValueError):
            if 0 <= (seconds := float(given)) < math.inf:  # type: ignore[arg-type]
                return seconds
    return None


def from_error_body(body: Mapping[str, Any], headers: Mapping[str, str]) -> BackendError | None:
    """The error inside a body with status 200, or inside one of its choices (OpenRouter); None if there is none."""
    choices = body.get("choices")
    listed = choices if isinstance(choices, Sequence) else ()
    error = body.get("error") or next((c["error"] for c in listed if isinstance(c, Mapping) and c.get("error")), None)
    if not error and body.get("object") != "error":
        return None
    text = message_of({"error": error} if error else body, longest=2**14)
    details = error if isinstance(error, Mapping) else body
    codes = f"{details.get('code', '')} {details.get('type', '')}"
    number = re.search(r"\b[45]\d\d\b", codes)
    meant = next((status for pattern, status in _STATUS_OF_CODE.items() if re.search(pattern, codes, re.I)), 0)
    if number or meant:
        return from_status(int(number[0]) if number else meant, headers, text)
    return BackendError("server", f"an error with HTTP 200: {text[:MAX_MESSAGE_CHARS]}", retryable=True)


def message_of(body: bytes | Mapping[str, Any], *, longest: int = MAX_MESSAGE_CHARS) -> str:
    """The message of an error body, as one short line of printable characters."""
    content: Any = body
    if isinstance(body, bytes):
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            content = body[: 4 * longest].decode("utf-8", "replace")
    if isinstance(content, list) and content:
        content = content[0]  # Google wraps errors in a list
    if isinstance(content, Mapping):
        said = (content.get(name) for name in ("error", "detail", "message", "Message"))  # Bedrock's has a capital
        error = next(filter(None, said), content)
        if isinstance(error, Mapping):
            codes = [str(error[key]) for key in ("code", "type") if isinstance(error.get(key), str)]
            content = " ".join([*codes, str(error.get("message", "" if codes else error))])
        else:
            content = str(error)
    line = "".join(c if c.isprintable() else " " for c in str(content))
    return " ".join(line.split())[:longest]
