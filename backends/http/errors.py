"""Turns HTTP failures, and responses that cannot be true, into `BackendError`."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from backends.errors import BackendError, ErrorKind
from backends.http.retries import seconds_to_wait
from backends.reading.reasoning import UnfinishedThoughtError

#: For each exception of httpx: kind, retryable. The first class that fits applies.
ERROR_OF_EXCEPTION: Mapping[type[Exception], tuple[ErrorKind, bool]] = {
    httpx.TimeoutException: ("timeout", True),
    httpx.NetworkError: ("connection", True),
    httpx.RemoteProtocolError: ("connection", True),
    httpx.DecodingError: ("malformed", True),
    httpx.LocalProtocolError: ("internal", False),
    httpx.HTTPError: ("bad_request", False),
    httpx.InvalidURL: ("bad_request", False),
    httpx.CookieConflict: ("internal", False),
    httpx.StreamError: ("internal", False),
}

MAX_MESSAGE_CHARS = 240
#: Codes in front of a sentence that repeats them.
_CODES = re.compile(r"^(?:[a-z]+(?:_[a-z]+)+ )+(?=[A-Z`'])")
#: Money that is used up, which Anthropic and OpenAI say by a 400 (continuedev/continue #5499).
_NO_CREDIT = re.compile(r"credit balance is too low|billing.{0,6}hard.{0,6}limit|insufficient.{0,6}balance", re.I)
_QUOTA = re.compile(r"insufficient_quota|quota|billing|credit|balance", re.I)
#: Google's quotas that come back by themselves, although it names no wait.
_SHORT_QUOTA = re.compile(r"check quota|per.?(?:second|minute|base_model)", re.I)
#: Google says only in the text when a per-minute quota is available again.
_RETRY_IN = re.compile(r"retry in (\d+(?:\.\d+)?) ?s", re.I)
_CONTEXT = re.compile(r"context.{0,12}(length|size|window)|exceed_context|maximum context|too many tokens", re.I)
#: A parameter of the request, and words that refuse it: such a 403 says nothing about the key.
_PARAMETER = re.compile(
    r"\b(logprobs|top_logprobs|temperature|top_p|max(_completion)?_tokens|stop|seed|parameter|argument)\b", re.I
)
_REFUSED = re.compile(r"not allowed|not supported|unsupported|deprecated|does not support|not permitted|invalid", re.I)
#: OpenAI's words when the token limit was used up before the answer began.
_UNFINISHED = re.compile(r"could not finish the message because max_tokens", re.I)
#: A permanent refusal that some servers send as a 500 (llama-cpp-python: the body failed validation).
_REFUSED_AS_500 = re.compile(r"validation error|value_error|must be one of", re.I)


#: Failures before a request has reached its server, which cannot have charged for it.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.PoolTimeout)


class UnsentError(BackendError):
    """A request that never reached its server."""


def inconsistent(message: str, *, retryable: bool = False) -> BackendError:
    """The error for a response that can be read but cannot be true."""
    return BackendError("inconsistent", message, retryable=retryable)


def from_exception(error: Exception, url: str = "", proxy: str = "") -> BackendError:
    """An httpx exception as `BackendError`: its type, the system's cause and ``url``, never its headers or body.

    ``proxy`` names the proxy that requests go through, without its password.
    """
    failed = UnsentError if isinstance(error, _NEVER_SENT) else BackendError
    kind, retryable = next(
        (meaning for known, meaning in ERROR_OF_EXCEPTION.items() if isinstance(error, known)),
        ("internal", False),
    )
    reason, hint = message_of(str(error).encode(), longest=80), ""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        hint = "Check proxy, and that it is running" if proxy else "Check base_url, and that the server is running"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            hint, retryable = "For a private authority, set ca_bundle to the file of its certificate", False
            reason = f"the certificate is not trusted: {cause.verify_message}"
        elif isinstance(cause, ssl.SSLError):
            retryable = False
        elif isinstance(cause, OSError) and cause.strerror:
            reason = cause.strerror
        cause = cause.__cause__ or cause.__context__
    through = f" by the proxy {proxy}" if proxy else ""
    return failed(
        kind,
        f"{type(error).__name__} at {url}{through}" + (f": {reason}" if reason else ""),
        retryable=retryable,
        hint=hint,
    )


def from_status(status: int, headers: Mapping[str, str], text: str) -> BackendError:
    """The error for an HTTP response other than 200. ``text`` is its body, as `message_of` returns it."""
    shown = _CODES.sub("", text)[:MAX_MESSAGE_CHARS]
    message = f"HTTP {status}" + (f": {shown}" if shown else "")
    wait = seconds_to_wait(headers)
    if wait is None and (retry_in := _RETRY_IN.search(text)):
        wait = float(retry_in[1])
    if 300 <= status < 400:
        return BackendError(
            "bad_request", f"HTTP {status}: a redirect, which is not followed", hint="Give the final URL"
        )
    # Google and Azure also say "quota" for a limit that resets in a moment, and then say when.
    temporary = wait is not None or _SHORT_QUOTA.search(text)
    used_up = _QUOTA.search(text) and (not temporary or "insufficient_quota" in text)
    too_long = _CONTEXT.search(text)
    match status:
        case 400 if _UNFINISHED.search(text):
            return UnfinishedThoughtError(message)
        case 400 | 403 if _NO_CREDIT.search(text):
            return BackendError("quota", message, hint="The account's credit is used up")
        case 403 if _PARAMETER.search(text) and _REFUSED.search(text):
            return BackendError("unsupported", message, hint="The model does not accept this parameter")
        case 401 | 403:
            return BackendError("auth", message, hint="Check the key and its permissions")
        case 402:
            return BackendError("quota", message, hint="The account's quota is used up")
        case 429 if used_up:
            return BackendError("quota", message, hint="The account's quota is used up")
        case 429:
            return BackendError("rate_limited", message, retryable=True, retry_after=wait)
        case 404 | 405:
            return BackendError("not_found", message, hint="Check base_url (most end in /v1) and the model's name")
        case 408:
            return BackendError("timeout", message, retryable=True, retry_after=wait)
        case 400 | 413 | 422 | 500 if too_long:
            return BackendError("context_length", message)
        case 424:  # Bedrock: the model failed, not the request
            return BackendError("server", message, retryable=True, retry_after=wait)
        case 501:
            return BackendError("unsupported", message)
        case 500 if _REFUSED_AS_500.search(text):
            return BackendError("bad_request", message)
        case _ if status >= 500:
            return BackendError("server", message, retryable=True, retry_after=wait)
    return BackendError("bad_request" if status >= 400 else "malformed", message)


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
    if number:
        return from_status(int(number[0]), headers, text)
    for pattern, status in (
        (r"rate.?limit|overload", 429),
        (r"quota|billing", 402),
        (r"auth|api.?key|permission", 401),
        (r"not.?found", 404),
        (r"invalid|bad.?request", 400),
    ):
        if re.search(pattern, codes, re.I):
            return from_status(status, headers, text)
    return BackendError("server", f"an error with HTTP 200: {text[:MAX_MESSAGE_CHARS]}", retryable=True)


def message_of(body: bytes | Mapping[str, Any], *, longest: int = MAX_MESSAGE_CHARS) -> str:
    """The message of an error body, as one short line of printable characters."""
    content: Any = body
    if isinstance(body, bytes):
        try:
            content = json.loads(body)
        except ValueError:
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
