"""Tokens that end after minutes or hours, and are renewed while a run asks."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from backends.errors import BackendError, ConfigError, ErrorKind, MissingExtra
from backends.http.errors import is_about_time
from backends.http.keys import ApiKey, Credential, KeyRing

#: Sources by name: the module that each needs, the package that has it, and the extra that installs it.
_NAMED = {
    "azure": ("azure.identity", "azure-identity", "azure"),
    "google": ("google.auth.transport.requests", "google-auth", "google"),
}
#: Seconds before a token that is refused for its time is sent again, by the number of refusals.
_PAUSES = {0: 1.0, 1: 1.0, 2: 4.0}
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


#: What gives the sources by name a token.
_SIGN_IN = {
    "azure": "Sign in (az login), or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    "google": "Sign in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS",
}


class Source(Protocol):
    """Where a token comes from."""

    def __call__(self, *, anew: bool) -> str:
        """A token that is valid by this machine's clock; ``anew``: not a remembered one, if that can be had."""


class BearerToken(Credential):
    """A token that is renewed by its source, also when the server refuses it.

    Parameters
    ----------
    source : callable or str
        A function that returns a valid token, such as `azure.identity.get_bearer_token_provider` makes or
        `aws_bedrock_token_generator.provide_token` is; ``"module:function"`` for such a one; ``"azure"`` for Entra,
        ``"google"`` for the application default credentials.
    """

    ends = True

    def __init__(self, source: Callable[[], str] | str) -> None:
        self._given, self._source = source, None if isinstance(source, str) else _of_function(source)
        self._last = ""
        self._renewing = threading.Lock()

    def __repr__(self) -> str:
        return "BearerToken()"

    @property
    def _named(self) -> str:
        return f"token={self._given!r}" if isinstance(self._given, str) else "the function of token"

    def read(self) -> str | None:
        self._last = self._token(anew=False)
        return self._last

    def replaced(self, value: str, error: BackendError, attempt: int) -> float | None:
        if error.kind != "auth":
            return None
        with self._renewing:  # of several requests that are refused together, one renews it
            if self._last == value:
                self._last = self._token(anew=True)
        if attempt == 0 and self._last != value:
            return 0.0
        # The clocks of this machine and the server may differ by some seconds, or what writes the token be late.
        return _PAUSES.get(attempt) if is_about_time(error.message) else None

    def check(self, *, needed: bool) -> None:
        if self._given in _NAMED:
            module, package, extra = _NAMED[str(self._given)]
            if not _is_there(module):
                raise MissingExtra("token", package, extra)
        elif isinstance(self._given, str):
            self._source = _source(self._given)

    def identity(self) -> str:
        return "token"

    def secrets(self) -> Iterator[str]:
        if self._last:
            yield self._last

    def _token(self, *, anew: bool) -> str:
        try:
            if self._source is None:
                self._source = _source(str(self._given))
            return self._source(anew=anew)
        except Exception as error:
            hint = f"{_SIGN_IN.get(str(self._given), 'Check that you are signed in')}; check this clock"
            # Who has given one token will give the next: what gives them is down for a moment.
            kind: ErrorKind = "connection" if self._last else "auth"
            raise BackendError(
                kind, f"{self._named} gives no token ({type(error).__name__})", retryable=bool(self._last), hint=hint
            ) from None


class _Azure:
    """Tokens of Entra, by azure-identity."""

    def __init__(self) -> None:
        self._provider: Callable[[], str] | None = None

    def __call__(self, *, anew: bool) -> str:
        from azure.identity import DefaultAzureCredential, get_bearer_token_provider

        log = logging.getLogger("azure.identity")
        if log.level == logging.NOTSET:  # it warns of every way to sign in that is not used, at every try
            log.setLevel(logging.ERROR)
        if self._provider is None or anew:  # a new credential remembers no token
            self._provider = get_bearer_token_provider(DefaultAzureCredential(), _AZURE_SCOPE)
        return self._provider()


class _Google:
    """Tokens of Google's application default credentials, by google-auth."""

    def __init__(self) -> None:
        self._credentials: Any = None

    def __call__(self, *, anew: bool) -> str:
        import google.auth
        from google.auth.transport.requests import Request

        if self._credentials is None:
            self._credentials, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])
        if anew or not self._credentials.valid:
            self._credentials.refresh(Request())
        return str(self._credentials.token)


def _source(name: str) -> Source:
    if name == "azure":
        return _Azure()
    return _Google() if name == "google" else _of_function(_function(name))


def _of_function(function: Callable[[], str]) -> Source:
    def source(*, anew: bool) -> str:
        return function()  # whether it remembers one is its own affair

    return source


def _function(name: str) -> Callable[[], str]:
    """The function that ``module:function`` names. Raises `ConfigError` if there is none."""
    module, _, attribute = name.partition(":")
    found: Any = None
    if attribute and _is_there(module):
        found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        hint = f"Name one as module:function, or write {' or '.join(map(repr, _NAMED))}"
        raise ConfigError("token", name, "no such function", hint)
    return found  # type: ignore[no-any-return]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def credential(
    names: str | Sequence[str] | None, file: str | Path | None, token: Callable[[], str] | str | None
) -> Credential:
    """The credential that a backend's options name: a token, a key from a file or the environment, or several keys."""
    if token is not None:
        return BearerToken(token)
    if isinstance(names, str) or not names or file is not None:
        return ApiKey(names if isinstance(names, str) else None, file)
    return KeyRing([ApiKey(name, None) for name in names])
