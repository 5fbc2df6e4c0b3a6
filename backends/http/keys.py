"""Credentials of a server: a key from a variable or a file, or tokens that are renewed. None of them is ever shown."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import ipaddress
import json
import logging
import os
import re
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from pydantic import AfterValidator

from backends.errors import BackendError, ConfigError, ErrorKind, MissingExtra
from backends.options import refused_at

#: How to say that there is no key, in Python, in a file and on the command line.
NO_KEY_HINT = 'name no key (api_key_env=None, in a TOML file api_key_env = "", on the command line --api-key-env "")'
#: What helps where none was sent.
NO_KEY_SENT_HINT = "Put the key into a variable, and name that by api_key_env, on the command line by --api-key-env"
#: A key below this many characters, or of letters alone, is a word that answers may hold.
_SHORTEST_KEY = 12
#: Characters of a variable's name from which on one with small letters and digits is rather a key.
_LONGEST_WITH_DIGITS = 20
#: Sources of tokens by name: the module that each needs, the package that has it, its extra, and how to sign in.
_NAMED = {
    "azure": (
        *("azure.identity", "azure-identity", "azure"),
        "Sign in (az login), or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    ),
    "google": (
        *("google.auth.transport.requests", "google-auth", "google"),
        "Sign in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS",
    ),
}
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def _variable(given: str | None) -> str | None:
    """The name of an environment variable. A key that is given in place of it is refused, and not shown."""
    looks_like_a_key = len(given or "") >= _LONGEST_WITH_DIGITS and re.search("[a-z].*[0-9]|[0-9].*[a-z]", given or "")
    if given and (looks_like_a_key or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", given)):
        hint = "Give the name of the variable that holds the key, not the key"
        raise refused_at((), "…", "not the name of an environment variable", hint)
    return given


#: What ``api_key_env`` must hold.
VARIABLE = AfterValidator(_variable)


class Credential:
    """A key from a variable or a file that only its owner can read, or a token that is renewed; read when it is used.

    Parameters
    ----------
    variable, file : optional
        Where the key is: the variable is read anew at each use.
    token : callable or str, optional
        A function that returns a valid token, such as `azure.identity.get_bearer_token_provider` makes or
        `aws_bedrock_token_generator.provide_token` is; ``"module:function"`` for such a one; ``"azure"`` for Entra,
        ``"google"`` for the application default credentials.
    """

    def __init__(
        self,
        variable: str | None = None,
        file: str | Path | None = None,
        token: Callable[[], str] | str | None = None,
    ) -> None:
        self._variable, self._file = variable, None if file is None else Path(file)
        self._named = token if isinstance(token, str) else ""
        self._source: Callable[[bool], str] | None = (lambda _: token()) if callable(token) else None
        #: Whether it holds for some time only, and reading it may take a while.
        self.ends = token is not None
        self._last = ""
        self._renewing = threading.Lock()

    def __repr__(self) -> str:
        return f"Credential({self.source()!r})"

    def read(self) -> str | None:
        """The key or token to send now, or None."""
        if self.ends:
            self._last = self._token(anew=False)
        return self.secret() or None

    def secret(self) -> str:
        """The value that must never be shown or stored; empty if there is none."""
        if self.ends:
            return self._last
        return (_content(self._file) if self._file else os.environ.get(self._variable or "", "")).strip()

    def renewed(self, value: str) -> str | None:
        """The token to send in place of one that was refused; None if there is no other. It may block."""
        with self._renewing:  # of several requests that are refused together, one renews it
            if self._last == value:
                self._last = self._token(anew=True)
            return self._last if self._last != value else None

    def check(self, *, needed: bool) -> None:
        """Raise `ConfigError` if it cannot be used, or is needed and missing."""
        if self._named in _NAMED:
            module, package, extra, _ = _NAMED[self._named]
            if not _is_there(module):
                raise MissingExtra("token", package, extra)
        elif self._named:
            self._source = _source(self._named)
        if self._file is not None:
            _check_file(self._file)
        field, source = ("key_file", str(self._file)) if self._file else ("api_key_env", self._variable)
        if re.search(r"[^\x21-\x7e]", self.secret()):
            raise ConfigError(field, source, "the key holds spaces or non-ASCII characters", "Fix it")
        if source and needed and not self.ends and not self.secret():
            hint = "Write the key into it" if self._file else f"Set it, or {NO_KEY_HINT}"
            raise ConfigError(field, source, "it is empty or not set, and the server is not local", hint)

    def identity(self) -> str:
        """Distinguishes keys without revealing them; ``none`` for no key."""
        if self.ends:
            return "token"
        value = self.secret()
        return hashlib.sha256(b"bias-audit key identity\0" + value.encode()).hexdigest()[:8] if value else "none"

    def source(self) -> str:
        """Where a key comes from, for a hint."""
        if self._file:
            return f"the key in {self._file} (key_file)"
        return f"the key in {self._variable} (api_key_env)" if self._variable and not self.ends else ""

    def redact(self, text: str, *, words: bool = True) -> str:
        """The text without the key, as it is or as JSON writes it; a key that is a word only if ``words``."""
        value = self.secret()
        is_word = len(value) < _SHORTEST_KEY or value.isalpha()
        if value and (words or not is_word):
            for form in {value, json.dumps(value)[1:-1], value.replace("/", "\\/")}:
                text = text.replace(form, "[key]")
        return text

    def _token(self, *, anew: bool) -> str:
        try:
            self._source = self._source or _source(self._named)
            return self._source(anew)
        except Exception as error:
            *_, sign_in = _NAMED.get(self._named, ("Check that you are signed in",))
            named = f"token={self._named!r}" if self._named else "the function of token"
            # Who has given one token will give the next: what gives them is down for a moment.
            kind: ErrorKind = "connection" if self._last else "auth"
            message = f"{named} gives no token ({type(error).__name__})"
            hint = f"{sign_in}; check this machine's clock"
            raise BackendError(kind, message, retryable=bool(self._last), hint=hint) from None


@functools.cache
def _content(file: Path) -> str:
    """The file's content, read once: the event loop must not wait for a disk at every request."""
    return file.read_text()


def _check_file(file: Path) -> None:
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise ConfigError("key_file", str(file), f"cannot be read ({error.strerror})", "Give a file") from None
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise ConfigError("key_file", str(file), "others may read it", f"Run: chmod 600 {file}")


def _source(name: str) -> Callable[[bool], str]:
    """What gives the tokens of a name; its argument: whether a remembered one will not do."""
    if name == "azure":
        return _azure()
    if name == "google":
        return _google()
    function = _function(name)
    return lambda _: function()


def _azure() -> Callable[[bool], str]:
    from azure.identity import DefaultAzureCredential, get_bearer_token_provider

    logging.getLogger("azure.identity").setLevel(logging.ERROR)  # it warns of every way to sign in that is not used
    providers: list[Callable[[], str]] = []

    def token(anew: bool) -> str:
        if anew or not providers:  # a new credential remembers no token
            providers[:] = [get_bearer_token_provider(DefaultAzureCredential(), _AZURE_SCOPE)]
        return providers[0]()

    return token


def _google() -> Callable[[bool], str]:
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=[_GOOGLE_SCOPE])

    def token(anew: bool) -> str:
        if anew or not credentials.valid:
            credentials.refresh(Request())
        return str(credentials.token)

    return token


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


def is_this_machine(host: str) -> bool:
    """Whether a host is this machine's loopback interface."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_key_for(urls: Sequence[str], key: Credential) -> None:
    """Raise `ConfigError` for a key that cannot be used, or is missing, or would reach a server unencrypted."""
    key.check(needed=not all(is_this_machine(httpx.URL(url).host) for url in urls))
    for url in map(httpx.URL, urls):
        if url.scheme == "http" and not is_this_machine(url.host) and (key.ends or key.read()):
            field = "base_url" if len(urls) == 1 else "urls"
            hint = f"Use https, or {NO_KEY_HINT}"
            raise ConfigError(field, str(url), "the key would be sent unencrypted", hint)
