"""The one seam where the failures of HTTP become `BackendError`.

httpx.HTTPError
├── TimeoutException          timeout, retried
├── NetworkError              connection, retried (a bad certificate is not)
├── RemoteProtocolError       connection, retried: closed or garbled by the server
├── LocalProtocolError        internal: we sent something that HTTP does not allow
├── ProxyError, UnsupportedProtocol, TooManyRedirects   bad_request
├── DecodingError             malformed, retried
└── HTTPStatusError           never raised by us: `from_status` reads the status itself
httpx.InvalidURL              bad_request
httpx.CookieConflict, StreamError   internal
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from backends.errors import BackendError, ErrorKind
from backends.openai.retry_after import seconds_to_wait

#: Each foreign exception: kind, retryable. The nearest class in the exception's ancestry counts.
MAPPED: Mapping[type[Exception], tuple[ErrorKind, bool]] = {
    httpx.TimeoutException: ("timeout", True),
    httpx.NetworkError: ("connection", True),
    httpx.RemoteProtocolError: ("connection", True),
    httpx.LocalProtocolError: ("internal", False),
    httpx.ProxyError: ("bad_request", False),
    httpx.UnsupportedProtocol: ("bad_request", False),
    httpx.TooManyRedirects: ("bad_request", False),
    httpx.DecodingError: ("malformed", True),
    httpx.HTTPStatusError: ("server", False),
    httpx.InvalidURL: ("bad_request", False),
    httpx.CookieConflict: ("internal", False),
    httpx.StreamError: ("internal", False),
}

LONGEST_MESSAGE = 240

_QUOTA = re.compile(r"insufficient_quota|quota|billing|credit|balance", re.I)
#: Google says in the text alone when a minute's quota is full again.
_RETRY_IN = re.compile(r"retry in (\d+(?:\.\d+)?) ?s", re.I)
_CONTEXT = re.compile(r"context.{0,12}(length|size|window)|exceed_context|maximum context|too many tokens", re.I)
#: A refusal for good that some servers send as a 500 (llama-cpp-python: its body failed validation).
_REFUSED_AS_500 = re.compile(r"validation error|value_error|must be one of", re.I)


def from_exception(error: Exception) -> BackendError:
    """An httpx exception as ours. Messages carry the exception's type, never its request."""
    for ancestor in type(error).__mro__:
        if ancestor in MAPPED:
            kind, retryable = MAPPED[ancestor]
            break
    else:
        return BackendError("internal", f"unexpected {type(error).__name__}")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return BackendError(
                "connection", "the server's certificate is not trusted", hint="Check the host name and the certificate"
            )
        cause = cause.__cause__ or cause.__context__
    return BackendError(kind, type(error).__name__, retryable=retryable)


def from_status(status: int, headers: Mapping[str, str], said: str) -> BackendError:
    """An HTTP answer that is no success. ``said`` is its body as `message_of` gives it."""
    message = f"HTTP {status}" + (f": {said}" if said else "")
    wait = seconds_to_wait(headers)
    if wait is None and (told := _RETRY_IN.search(said)):
        wait = float(told[1])
    if 300 <= status < 400:
        return BackendError(
            "bad_request", f"HTTP {status}: a redirect, which is not followed", hint="Give the final URL"
        )
    if status in (401, 403):
        return BackendError("auth", message, hint="Check the key and its permissions")
    # Google and Azure speak of a quota that is full again in a moment, and say when.
    soon = wait is not None or "check quota" in said
    used_up = _QUOTA.search(said) and (not soon or "insufficient_quota" in said)
    if status == 402 or (status == 429 and used_up):
        return BackendError("quota", message, hint="The account's quota is used up")
    if status == 429:
        return BackendError("rate_limited", message, retryable=True, retry_after=wait)
    if status in (404, 405):
        return BackendError("not_found", message, hint="Check base_url and the model's name")
    if status == 408:
        return BackendError("timeout", message, retryable=True, retry_after=wait)
    if status in (400, 413, 422):
        return BackendError("context_length" if _CONTEXT.search(said) else "bad_request", message)
    if status == 501:
        return BackendError("unsupported", message)
    if status == 500 and _CONTEXT.search(said):
        return BackendError("context_length", message)
    if status == 500 and _REFUSED_AS_500.search(said):
        return BackendError("bad_request", message)
    if status >= 500:
        return BackendError("server", message, retryable=True, retry_after=wait)
    return BackendError("bad_request" if status >= 400 else "malformed", message)


def from_error_body(body: Mapping[str, Any], headers: Mapping[str, str]) -> BackendError | None:
    """The error that a body with status 200 carries, or one of its choices (OpenRouter); None when there is none."""
    choices = body.get("choices")
    held = choices if isinstance(choices, Sequence) else ()
    error = body.get("error") or next((c["error"] for c in held if isinstance(c, Mapping) and c.get("error")), None)
    if not error and body.get("object") != "error":
        return None
    said = message_of({"error": error} if error else body)
    details = error if isinstance(error, Mapping) else body
    codes = f"{details.get('code', '')} {details.get('type', '')}"
    number = re.search(r"\b[45]\d\d\b", codes)
    if number:
        return from_status(int(number[0]), headers, said)
    for pattern, status in (
        (r"rate.?limit|overload", 429),
        (r"quota|billing", 402),
        (r"auth|api.?key|permission", 401),
        (r"not.?found", 404),
        (r"invalid|bad.?request", 400),
    ):
        if re.search(pattern, codes, re.I):
            return from_status(status, headers, said)
    return BackendError("server", f"an error with HTTP 200: {said}", retryable=True)


def message_of(body: bytes | Mapping[str, Any], *, longest: int = LONGEST_MESSAGE) -> str:
    """What an error body says, in one short line of printable characters."""
    said: Any = body
    if isinstance(body, bytes):
        try:
            said = json.loads(body)
        except ValueError:
            said = body[: 4 * longest].decode("utf-8", "replace")
    if isinstance(said, list) and said:
        said = said[0]  # Google's
    if isinstance(said, Mapping):
        error = said.get("error") or said.get("detail") or said.get("message") or said
        if isinstance(error, Mapping):
            codes = [str(error[key]) for key in ("code", "type") if isinstance(error.get(key), str)]
            said = " ".join([*codes, str(error.get("message", "" if codes else error))])
        else:
            said = str(error)
    line = "".join(c if c.isprintable() else " " for c in str(said))
    return " ".join(line.split())[:longest]
